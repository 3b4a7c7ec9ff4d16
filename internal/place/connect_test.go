package place

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// mustConnect connects, and checks that the daemon at the far end answers.
func mustConnect(t testing.TB, s transport) (*peer.Conn, *api.Hello) {
	t.Helper()
	wire, hello, err := s.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn := peer.NewConn(wire)
	t.Cleanup(conn.Close)
	mustPing(t, conn)
	return conn, hello
}

func mustPing(t testing.TB, conn *peer.Conn) {
	t.Helper()
	line, err := conn.Call(t.Context(), peer.Request{Method: api.MethodSystemPing}, nil)
	if err == nil {
		err = peer.Decode(api.MethodSystemPing, line, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wantRefusal checks why a place can't be reached.
func wantRefusal(t testing.TB, s transport, want reason, words ...string) {
	t.Helper()
	wire, _, err := s.connect(t.Context())
	if err == nil {
		_ = wire.Close()
		t.Fatalf("connected, want a refusal: %s", want)
	}
	r, ok := errors.AsType[*refusal](err)
	if !ok || r.reason != want || r.hint == "" {
		t.Fatalf("error %#v, want the reason %s and a hint", err, want)
	}
	for _, word := range words {
		if !strings.Contains(r.message, word) {
			t.Errorf("message %q does not contain %q", r.message, word)
		}
	}
}

// connectAtOnce makes connections at the same time: all must reach one daemon.
func connectAtOnce(t *testing.T, p transport, calls int) {
	t.Helper()
	boots := make([]string, calls)
	var running sync.WaitGroup
	for i := range boots {
		running.Go(func() {
			wire, hello, err := p.connect(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			boots[i] = hello.Boot
			_ = wire.Close()
		})
	}
	running.Wait()
	for _, boot := range boots {
		if boot != boots[0] || boot == "" {
			t.Fatalf("more than one daemon: %q", boots)
		}
	}
}
