package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/trltest"
)

const delegateLine = `{"jsonrpc":"2.0","id":"delegate","method":"system.delegate"}` + "\n"

// delegating returns a connection that acts for others.
func delegating(t testing.TB, path string) *peer {
	t.Helper()
	p := dial(t, path)
	p.send(delegateLine)
	if r := p.reply(); r.Error != nil || string(r.Result) != fmt.Sprintf(`{"max_connections":%d}`, maxCallers) {
		t.Fatalf("%s, %v", r.Result, r.Error)
	}
	return p
}

// actingLine is a request for the actor.
func actingLine(method, params, actor string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s,"actor":%s}`+"\n", method, params, actor)
}

func (p *peer) acting(method, params, actor string) reply {
	p.t.Helper()
	p.send(actingLine(method, params, actor))
	return p.reply()
}

const runParams = `{"session_id":"s","command":"x"}`

func unreached(t testing.TB) runFunc {
	return func(context.Context, api.ExecRunParams) (*api.ExecResult, error) {
		t.Error("the command was run")
		return &api.ExecResult{}, nil
	}
}

// Over a connection that acts for others, a request without a valid actor is
// refused, and the connection stays usable.
func TestActorIsRequired(t *testing.T) {
	_, path := start(t, Config{}, unreached(t))
	p := delegating(t, path)
	long := strings.Repeat("x", access.MaxLabel+1)
	for actor, want := range map[string]struct {
		code  api.Code
		field any
	}{
		``:                                          {api.CodeUnauthorized, nil},
		`null`:                                      {api.CodeInvalidRequest, "actor"},
		`"admin"`:                                   {api.CodeInvalidRequest, "actor"},
		`[{"scope":"run"}]`:                         {api.CodeInvalidRequest, "actor"},
		`{}`:                                        {api.CodeInvalidRequest, "scope"},
		`{"scope":null}`:                            {api.CodeInvalidRequest, "scope"},
		`{"scope":""}`:                              {api.CodeInvalidRequest, "scope"},
		`{"scope":"root"}`:                          {api.CodeInvalidRequest, "scope"},
		`{"scope":"Run"}`:                           {api.CodeInvalidRequest, "scope"},
		`{"scope":["run"]}`:                         {api.CodeInvalidRequest, "scope"},
		`{"Scope":"run"}`:                           {api.CodeInvalidRequest, "Scope"},
		`{"scope":"run","sandbox":true}`:            {api.CodeInvalidRequest, "sandbox"},
		`{"scope":"run","tag":1}`:                   {api.CodeInvalidRequest, "tag"},
		`{"scope":"run","tag":"a\nb"}`:              {api.CodeInvalidRequest, "tag"},
		`{"scope":"run","tag":"` + long + `"}`:      {api.CodeInvalidRequest, "tag"},
		`{"scope":"run","token":"t\u001b"}`:         {api.CodeInvalidRequest, "token"},
		`{"scope":"run","name":"` + long + `"}`:     {api.CodeInvalidRequest, "name"},
		`{"scope":"run","user":"` + long + `"}`:     {api.CodeInvalidRequest, "user"},
		`{"scope":"run","connection":"c\u202e"}`:    {api.CodeInvalidRequest, "connection"},
		`{"scope":"read"},"actor":{"scope":"run"}`:  {api.CodeInvalidRequest, nil},
		`{"scope":"read"},"act\u006fr":{"scope":1}`: {api.CodeInvalidRequest, nil},
	} {
		member := ""
		if actor != "" {
			member = `,"actor":` + actor
		}
		for _, id := range []string{`"id":7,`, ``} {
			p.send(`{"jsonrpc":"2.0",` + id + `"method":"exec.run","params":` + runParams + member + "}\n")
			r := p.reply()
			if r.Error == nil || r.Error.Code != want.code || r.Error.Details["field"] != want.field || r.Error.Hint == "" {
				t.Errorf("%.80s: %+v", actor, r.Error)
			}
			if r.Error != nil && strings.Contains(r.Error.Error(), long) {
				t.Errorf("%.80s: the error repeats the value", actor)
			}
			if wantID := map[bool]string{true: "7", false: "null"}[id != ""]; string(r.ID) != wantID {
				t.Errorf("%.80s: answered as %s instead of %s", actor, r.ID, wantID)
			}
		}
	}
	if r := p.acting(api.MethodSystemPing, `{}`, `{"scope":"read"}`); r.Error != nil {
		t.Error(r.Error)
	}
}

// An actor is never ignored: its request would have the rights of the connection.
func TestActorIsRefusedWithoutDelegation(t *testing.T) {
	_, path := start(t, Config{}, unreached(t))
	p := dial(t, path)
	for _, actor := range []string{`{"scope":"read"}`, `null`, `{}`, `1`} {
		r := p.acting(api.MethodExecRun, runParams, actor)
		if !api.IsCode(r.Error, api.CodeInvalidRequest) || !strings.Contains(r.Error.Hint, api.MethodSystemDelegate) {
			t.Errorf("%s: %v", actor, r.Error)
		}
	}
	if r := p.acting(api.MethodSystemDelegate, `{}`, `{"scope":"admin"}`); !api.IsCode(r.Error, api.CodeInvalidRequest) {
		t.Errorf("%s, %v", r.Result, r.Error)
	}
	p.send(`{"jsonrpc":"2.0","id":1,"method":"system.disconnect","params":{"connection":"c-1"}}` + "\n")
	if r := p.reply(); !api.IsCode(r.Error, api.CodeInvalidRequest) {
		t.Errorf("%s, %v", r.Result, r.Error)
	}
	p.ping()

	rig := startHTTP(t, webOptions{run: unreached(t)})
	s := rig.socket("trl_admin")
	for _, line := range []string{
		actingLine(api.MethodExecRun, runParams, `{"scope":"read"}`),
		call(api.MethodSystemDelegate, `{}`),
	} {
		s.send(websocket.MessageText, line)
		if r := s.reply(); r.Error == nil {
			t.Errorf("over a WebSocket: %s was answered with %s", line, r.Result)
		}
	}
}

// slowDelegation delegates late, so that a request has time to overtake it.
type slowDelegation struct {
	*conn
	overtaken <-chan struct{}
}

func (d slowDelegation) Delegate() int {
	select {
	case <-d.overtaken:
	case <-time.After(20 * time.Millisecond): // absence: nothing may be served meanwhile
	}
	return d.conn.Delegate()
}

// slowDelegate is a handler whose system.delegate is slow.
type slowDelegate struct {
	*service.Table
	server    *Server
	overtaken chan struct{}
}

func (h *slowDelegate) Call(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if method == api.MethodSystemDelegate {
		h.server.mu.Lock()
		for c := range h.server.conns { // there is one
			ctx = service.WithDelegation(ctx, slowDelegation{c, h.overtaken})
		}
		h.server.mu.Unlock()
	} else {
		h.overtaken <- struct{}{}
	}
	return h.Table.Call(ctx, method, params)
}

// A request right behind system.delegate is read after that was served.
func TestNothingSlipsPastDelegate(t *testing.T) {
	const behind = 20
	h := &slowDelegate{Table: tableWith(unreached(t)), overtaken: make(chan struct{}, behind)}
	var path string
	h.server, path = start(t, Config{Handler: h}, nil)
	for range 5 {
		p := dial(t, path)
		p.send(delegateLine + strings.Repeat(runLine(1, "x"), behind))
		refused := 0
		for range behind + 1 {
			switch r := p.reply(); {
			case string(r.ID) == `"delegate"`:
				if r.Error != nil {
					t.Fatal(r.Error)
				}
			case api.IsCode(r.Error, api.CodeUnauthorized):
				refused++
			default:
				t.Fatalf("%s, %v", r.Result, r.Error)
			}
		}
		if refused != behind {
			t.Fatalf("%d of %d were refused", refused, behind)
		}
		p.Close()
		trltest.Eventually(t, "the connection has ended", func() bool {
			h.server.mu.Lock()
			defer h.server.mu.Unlock()
			return len(h.server.conns) == 0
		})
	}
}

// A request is served with the rights and under the name of its actor. The
// requests before system.delegate keep those of the connection.
func TestActorsHaveTheirOwnRights(t *testing.T) {
	actors := make(chan access.Actor, 1)
	_, path := start(t, Config{}, func(ctx context.Context, _ api.ExecRunParams) (*api.ExecResult, error) {
		actor, _ := access.From(ctx)
		actors <- actor
		return &api.ExecResult{}, nil
	})
	p := delegating(t, path)
	if r := p.acting(api.MethodExecRun, runParams, `{"scope":"read"}`); !api.IsCode(r.Error, api.CodeForbidden) {
		t.Errorf("read: %v", r.Error)
	}
	if r := p.acting(api.MethodExecRun, runParams, `{"scope":"run","token":"t-1","name":"ci","user":"alice"}`); r.Error != nil {
		t.Error(r.Error)
	}
	got := <-actors
	got.UID, got.PID = 0, 0 // of this process
	if want := (access.Actor{Transport: "delegated", TokenID: "t-1", TokenName: "ci", User: "alice", Scope: access.ScopeRun}); got != want {
		t.Errorf("%+v", got)
	}
	for actor, want := range map[string]string{
		`{"scope":"read","token":"t-1","name":"ci","user":"alice"}`: "token:ci",
		`{"scope":"read","user":"alice"}`:                           "alice",
		`{"scope":"read","user":"token:ci"}`:                        "token%3Aci",
	} {
		if r := p.acting(api.MethodSystemPing, `{}`, actor); !strings.Contains(string(r.Result), fmt.Sprintf(`"caller":%q`, want)) {
			t.Errorf("%s: %s, %v", actor, r.Result, r.Error)
		}
	}
	for _, method := range []string{api.MethodSystemUpgrade, api.MethodSystemDelegate} {
		if r := p.acting(method, `{}`, `{"scope":"admin"}`); !api.IsCode(r.Error, api.CodeForbidden) {
			t.Errorf("%s: %s, %v", method, r.Result, r.Error)
		}
	}
}

// connectionsOf serves a table whose commands report the connection of their
// caller, or nil.
func connectionsOf(t *testing.T) (path string, connections <-chan context.Context) {
	t.Helper()
	seen := make(chan context.Context, 1)
	_, path = start(t, Config{}, func(ctx context.Context, _ api.ExecRunParams) (*api.ExecResult, error) {
		connection, _ := arrival.Connection(ctx)
		seen <- connection
		return &api.ExecResult{}, nil
	})
	return path, seen
}

func ended(t *testing.T, what string, ctx context.Context) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(trltest.Patience):
		t.Fatalf("%s has not ended", what)
	}
}

// The connection of a caller is the same over all connections of a router, and
// ends when the router says so, or with the last of them.
func TestConnectionsOfCallers(t *testing.T) {
	path, seen := connectionsOf(t)
	calls, streams := delegating(t, path), delegating(t, path)
	of := func(p *peer, name string) context.Context {
		t.Helper()
		if r := p.acting(api.MethodExecRun, runParams, `{"scope":"run","connection":"`+name+`"}`); r.Error != nil {
			t.Fatal(r.Error)
		}
		return <-seen
	}
	disconnect := func(p *peer, name string) string {
		t.Helper()
		r := p.acting(api.MethodSystemDisconnect, `{"connection":"`+name+`"}`, `{"scope":"read"}`)
		if r.Error != nil {
			t.Fatal(r.Error)
		}
		return string(r.Result)
	}
	if r := calls.acting(api.MethodExecRun, runParams, `{"scope":"run"}`); r.Error != nil || <-seen != nil {
		t.Errorf("a caller without a connection has one: %v", r.Error)
	}
	left, stays := of(calls, "left"), of(calls, "stays")
	if of(calls, "left") != left || of(streams, "left") != left || of(streams, "stays") != stays || left == stays {
		t.Error("a name does not stand for one connection")
	}
	if got := disconnect(streams, "left"); got != `{"connection":"left","disconnected":true}` {
		t.Error(got)
	}
	ended(t, "a disconnected caller's connection", left)
	for _, name := range []string{"left", "never"} {
		if got := disconnect(calls, name); got != `{"connection":"`+name+`","disconnected":false}` {
			t.Error(got)
		}
		// A request that was overtaken is refused.
		r := calls.acting(api.MethodExecRun, runParams, `{"scope":"run","connection":"`+name+`"}`)
		if !api.IsCode(r.Error, api.CodeInvalidRequest) || r.Error.Details["field"] != "connection" {
			t.Errorf("%s: %v", name, r.Error)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", access.MaxLabel+1)} {
		r := calls.acting(api.MethodSystemDisconnect, `{"connection":"`+name+`"}`, `{"scope":"read"}`)
		if !api.IsCode(r.Error, api.CodeInvalidParams) {
			t.Errorf("%d bytes: %v", len(name), r.Error)
		}
	}
	alone := of(streams, "alone")
	streams.Close()
	ended(t, "the connection of a caller whose router has left", alone)
	if stays.Err() != nil || of(calls, "stays") != stays {
		t.Error("a connection has ended that is used over another one")
	}
	if again := of(calls, "alone"); again == alone || again.Err() != nil {
		t.Error("a name that was lost does not come back")
	}
	calls.Close()
	ended(t, "the last one", stays)
}

// A waiting call and a stream end with the connection of their caller.
func TestRequestsEndWithTheirCaller(t *testing.T) {
	g := newGate()
	_, path := start(t, Config{}, g.run)
	p := delegating(t, path)
	p.send(actingLine(api.MethodExecRun, runParams, `{"scope":"run","connection":"c-1"}`))
	<-g.begun
	p.send(actingLine(api.MethodSystemDisconnect, `{"connection":"c-1"}`, `{"scope":"read"}`))
	<-g.cancelled
	p.reply()
	p.reply()

	began, over := make(chan struct{}), make(chan struct{})
	_, path = startFeeds(t, func(ctx context.Context, _ func(notify.Notification) error) error {
		close(began)
		<-ctx.Done()
		close(over)
		return ctx.Err()
	})
	p = delegating(t, path)
	p.acting("open", `{}`, `{"scope":"run","connection":"c-2"}`)
	<-began
	p.acting(api.MethodSystemDisconnect, `{"connection":"c-2"}`, `{"scope":"read"}`)
	<-over
	if r := p.acting(api.MethodSystemPing, `{}`, `{"scope":"read"}`); r.Error != nil {
		t.Error(r.Error)
	}
}

func TestConnectionsOfCallersAreBounded(t *testing.T) {
	s, path := start(t, Config{}, nil)
	p := delegating(t, path)
	named := func(n int) string { return fmt.Sprintf(`{"scope":"read","connection":"c-%d"}`, n) }
	for i := range maxCallers {
		if r := p.acting(api.MethodSystemPing, `{}`, named(i)); r.Error != nil {
			t.Fatal(i, r.Error)
		}
	}
	r := p.acting(api.MethodSystemPing, `{}`, named(maxCallers))
	if !api.IsCode(r.Error, api.CodeInvalidRequest) || r.Error.Details["max_connections"] != float64(maxCallers) || r.Error.Hint == "" {
		t.Errorf("%+v", r.Error)
	}
	p.acting(api.MethodSystemDisconnect, `{"connection":"c-0"}`, `{"scope":"read"}`)
	if r := p.acting(api.MethodSystemPing, `{}`, named(maxCallers)); r.Error != nil {
		t.Errorf("after one has left: %v", r.Error)
	}
	for i := range 2 * maxEnded {
		s.callers.end(fmt.Sprint("x-", i))
	}
	if s.callers.mu.Lock(); len(s.callers.ended) != maxEnded || len(s.callers.order) != maxEnded {
		t.Errorf("%d ended names are kept", len(s.callers.ended))
	}
	s.callers.mu.Unlock()
}
