package route

import (
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// A session that ends with its client's connection survives the loss of the
// connection to its place, and ends when the client leaves.
func TestSessionEndsWithItsClient(t *testing.T) {
	k7 := start(t, "k7")
	r := New(Config{System: system{}, Places: testPlaces{k7}})
	u, other := newUser(t, r), newUser(t, r)
	const reconnect = 2 * time.Second
	var s api.Session
	u.call(api.MethodSessionCreate, api.SessionCreateParams{Runtime: "cmd:k7", WhileConnected: true, ReconnectMS: reconnect.Milliseconds()}, &s)
	k7.cut()
	time.Sleep(2 * reconnect) // absence: the session would have ended by then
	var info api.SessionInfo
	other.call(api.MethodSessionInfo, api.SessionParams{SessionID: s.SessionID}, &info)
	if info.State != api.StateIdle {
		t.Fatalf("the session is %s: %+v", info.State, info.Terminated)
	}
	u.leave()
	trltest.Eventually(t, "the session ends", func() bool {
		other.call(api.MethodSessionInfo, api.SessionParams{SessionID: s.SessionID}, &info)
		return info.State == api.StateTerminated
	})
	if info.Terminated.Reason != api.ReasonDisconnected {
		t.Errorf("it ended because of %s", info.Terminated.Reason)
	}
}
