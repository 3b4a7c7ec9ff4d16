package must

import (
	"fmt"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// TestMustEndWithWhatItBelongsTo kills the daemon while sessions belong to a
// parent or to connections: they continue, those whose clients do not return end,
// and a parent's end ends its children.
func TestMustEndWithWhatItBelongsTo(t *testing.T) {
	r := start(t)
	const reconnect = 3000
	bound := api.SessionCreateParams{WhileConnected: true, ReconnectMS: reconnect}
	maker := r.dial()
	made := func(params api.SessionCreateParams) *api.Session {
		t.Helper()
		s, err := maker.CreateSession(r.ctx, params)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	parent := made(api.SessionCreateParams{})
	child := made(api.SessionCreateParams{Parent: parent.SessionID, Argv: []string{"sleep", "3600"}})
	kept, left := made(bound), made(bound)
	maker.Close()
	used := r.patientClient()
	for range 3 {
		r.killDaemon()
		// The client reconnects, and so returns in time.
		res, err := used.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: kept.SessionID, Command: "echo here"}})
		if err != nil || res.Stdout != "here\n" {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	became := func(id, want string) error {
		info, err := r.client.SessionInfo(r.ctx, api.SessionParams{SessionID: id})
		if err != nil {
			return err
		}
		got := ""
		if info.Terminated != nil {
			got = info.Terminated.Reason
		}
		if got != want {
			return fmt.Errorf("%s: got %q, want %q", id, got, want)
		}
		return nil
	}
	if err := eventually(trltest.Patience, func() error { return became(left.SessionID, api.ReasonDisconnected) }); err != nil {
		t.Error(err)
	}
	began := time.Now()
	for _, id := range []string{kept.SessionID, parent.SessionID, child.SessionID} {
		if err := became(id, ""); err != nil {
			t.Error(err)
		}
	}
	r.destroy(parent.SessionID)
	if err := became(child.SessionID, api.ReasonParent); err != nil {
		t.Error(err)
	}
	used.Close()
	if err := eventually(trltest.Patience, func() error { return became(kept.SessionID, api.ReasonDisconnected) }); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < reconnect*time.Millisecond {
		t.Errorf("its client had %s to return", took)
	}
	r.stop()
}
