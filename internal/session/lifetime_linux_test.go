package session

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// reasonOf waits for the end of a session and returns its reason.
func reasonOf(t *testing.T, p *Pool, id string) string {
	t.Helper()
	s, err := p.session(id)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.destroyed:
	case <-time.After(trltest.Patience):
		t.Fatalf("%s has not ended", id)
	}
	return s.snapshot().Terminated.Reason
}

// TestEndsWithItsParent: a session ends with its parent, at any depth, and the
// parent's end is reported when nothing is left of either.
func TestEndsWithItsParent(t *testing.T) {
	p := newPool(t, Config{})
	parent := create(t, p, api.SessionCreateParams{})
	child := create(t, p, api.SessionCreateParams{Parent: parent.SessionID})
	grandchild := create(t, p, api.SessionCreateParams{Parent: child.SessionID, Argv: []string{"sleep", "3600"}})
	other := create(t, p, api.SessionCreateParams{})
	if child.Parent != parent.SessionID || parent.Parent != "" {
		t.Errorf("parents: %q and %q", child.Parent, parent.Parent)
	}
	res, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: parent.SessionID})
	if err != nil || res.Survivors == nil || len(res.Survivors) > 0 {
		t.Errorf("%+v, %v", res, err)
	}
	for id, want := range map[string]string{parent.SessionID: api.ReasonDestroyed, child.SessionID: api.ReasonParent, grandchild.SessionID: api.ReasonParent} {
		info, err := p.Info(t.Context(), api.SessionParams{SessionID: id})
		if err != nil || info.Terminated == nil || info.Terminated.Reason != want {
			t.Errorf("%s: %+v, %v", id, info, err)
		}
	}
	if info, err := p.Info(t.Context(), api.SessionParams{SessionID: other.SessionID}); err != nil || info.State != api.StateIdle {
		t.Errorf("a session without a parent: %+v, %v", info, err)
	}
	if len(p.children) > 0 {
		t.Errorf("children are left: %v", p.children)
	}
	for id, code := range map[string]api.Code{parent.SessionID: api.CodeSessionTerminated, "s-nosuch0000": api.CodeSessionNotFound} {
		_, err := p.Create(t.Context(), api.SessionCreateParams{Parent: id}, "tester")
		if e := api.AsError(err); err == nil || e.Code != code || e.Details["field"] != "parent" {
			t.Errorf("with the parent %s: %v", id, err)
		}
	}
}

// TestEndsWithTheCommandOfItsParent: when the command of a direct session ends, the
// children of that session end too.
func TestEndsWithTheCommandOfItsParent(t *testing.T) {
	p := newPool(t, Config{})
	parent := create(t, p, api.SessionCreateParams{Argv: []string{"cat"}})
	child := create(t, p, api.SessionCreateParams{Parent: parent.SessionID})
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: parent.ExecID, EOF: true}); err != nil {
		t.Fatal(err)
	}
	if reason := reasonOf(t, p, child.SessionID); reason != api.ReasonParent {
		t.Error(reason)
	}
	if reason := reasonOf(t, p, parent.SessionID); reason != api.ReasonExited {
		t.Error(reason)
	}
}

// TestNoChildOutlivesItsParent: a child that is created while its parent ends is
// refused, or ends with it.
func TestNoChildOutlivesItsParent(t *testing.T) {
	p := newPool(t, Config{})
	for range 5 {
		parent := create(t, p, api.SessionCreateParams{})
		var made sync.Map
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				s, err := p.Create(t.Context(), api.SessionCreateParams{Parent: parent.SessionID, Argv: []string{"sleep", "3600"}}, "tester")
				if err == nil {
					made.Store(i, s.SessionID)
				}
			})
		}
		if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: parent.SessionID, Force: true}); err != nil {
			t.Error(err)
		}
		wg.Wait()
		made.Range(func(_, id any) bool {
			if reason := reasonOf(t, p, id.(string)); reason != api.ReasonParent {
				t.Error(reason)
			}
			return true
		})
	}
}

// connection returns the context of a connection that requests come over, until it
// is cut.
func connection(t *testing.T) (ctx context.Context, cut func()) {
	conn, cut := context.WithCancel(t.Context())
	return arrival.With(conn, func() {}), cut
}

// TestEndsWithItsConnections: a session ends when no client that used it is
// connected, but not before they had time to reconnect.
func TestEndsWithItsConnections(t *testing.T) {
	p := newPool(t, Config{})
	const soon, never = 50, 3_600_000
	made := func(ctx context.Context, reconnect int64) string {
		s, err := p.Create(ctx, api.SessionCreateParams{WhileConnected: true, ReconnectMS: reconnect}, "tester")
		if err != nil {
			t.Fatal(err)
		}
		if !s.WhileConnected {
			t.Error("it does not say that it ends with its connections")
		}
		return s.SessionID
	}
	alive := func(id string) bool {
		s, err := p.session(id)
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.ending
	}

	first, cutFirst := connection(t)
	second, cutSecond := connection(t)
	defer cutSecond()
	lost, used, patient := made(first, soon), made(first, soon), made(first, never)
	use := api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: used, Command: "true"}}
	if _, err := p.Run(second, use); err != nil {
		t.Fatal(err)
	}
	cutFirst()
	if reason := reasonOf(t, p, lost); reason != api.ReasonDisconnected {
		t.Error(reason)
	}
	if !alive(used) || !alive(patient) {
		t.Error("a session that is used over another connection, or may be again, has ended")
	}
	third, cutThird := connection(t)
	if _, _, err := p.Watch(third, api.SessionWatchParams{SessionID: patient}); err != nil {
		t.Fatal(err)
	}
	s, _ := p.session(patient)
	s.endIfDisconnected() // as the timer would, if it ignored the client that came back
	if !alive(patient) {
		t.Error("it has ended while a client follows it")
	}
	cutThird()
	cutSecond()
	if reason := reasonOf(t, p, used); reason != api.ReasonDisconnected {
		t.Error(reason)
	}

	// A session that has ended needs no connection, and must not keep one.
	late, cutLate := connection(t)
	defer cutLate()
	over, err := p.session(used)
	if err != nil {
		t.Fatal(err)
	}
	over.mu.Lock()
	over.ending = false // as after a restart
	over.mu.Unlock()
	over.trackConnection(late)
	over.mu.Lock()
	defer over.mu.Unlock()
	if len(over.connections.stops) != 0 {
		t.Error("a connection is bound to a session that has ended")
	}
}

// TestEndsWithTheCallersConnection: a session that a program makes for its caller
// ends with the caller's connection, not with the one that carried the request.
func TestEndsWithTheCallersConnection(t *testing.T) {
	p := newPool(t, Config{})
	router, cutRouter := connection(t)
	defer cutRouter()
	caller, leave := context.WithCancel(t.Context())
	params := api.SessionCreateParams{WhileConnected: true, ReconnectMS: 1}
	s, err := p.Create(arrival.ForConnection(router, caller), params, "tester")
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if reason := reasonOf(t, p, s.SessionID); reason != api.ReasonDisconnected {
		t.Error(reason)
	}
	_, err = p.Create(arrival.ForConnection(router, nil), params, "tester")
	if e := api.AsError(err); err == nil || e.Code != api.CodeInvalidParams || e.Details["field"] != "while_connected" {
		t.Errorf("for a caller without a connection: %v", err)
	}
}

func TestInvalidParents(t *testing.T) {
	p := newPool(t, Config{})
	conn, cut := connection(t)
	defer cut()
	for _, tt := range []struct {
		ctx    context.Context
		params api.SessionCreateParams
		field  string
	}{
		{t.Context(), api.SessionCreateParams{WhileConnected: true}, "while_connected"},
		{conn, api.SessionCreateParams{ReconnectMS: 1000}, "reconnect_ms"},
		{conn, api.SessionCreateParams{WhileConnected: true, ReconnectMS: 1 << 40}, "reconnect_ms"},
	} {
		_, err := p.Create(tt.ctx, tt.params, "tester")
		if e := api.AsError(err); err == nil || e.Code != api.CodeInvalidParams || e.Details["field"] != tt.field {
			t.Errorf("%+v: %v", tt.params, err)
		}
	}
}

// A direct session whose command was cancelled is no longer alive.
func TestCancelEndsADirectSession(t *testing.T) {
	p := newPool(t, Config{})
	for range 50 {
		s := create(t, p, api.SessionCreateParams{Argv: []string{"sleep", "100"}})
		if _, err := p.Cancel(t.Context(), api.ExecCancelParams{ExecID: s.ExecID}); err != nil {
			t.Fatal(err)
		}
		alive, err := p.List(t.Context(), api.SessionListParams{Alive: true})
		if err != nil || len(alive.Sessions) > 0 {
			t.Fatalf("after exec.cancel: %+v, %v", alive, err)
		}
	}
}
