package route

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/service"
)

type system struct{}

func (system) Ping(context.Context) *api.PingResult { return &api.PingResult{Version: "test"} }
func (system) SystemInfo(context.Context) *api.SystemInfo {
	return &api.SystemInfo{Runtimes: []string{}}
}
func (system) Stats(context.Context) *api.SystemStats { return &api.SystemStats{Goroutines: 7} }
func (system) Upgrade(context.Context) (*api.UpgradeResult, error) {
	return &api.UpgradeResult{}, nil
}

func as(t testing.TB, scope access.Scope) context.Context {
	return access.With(t.Context(), access.Actor{Scope: scope})
}

// A machine without sessions answers for itself, and refuses the rest with what to
// do instead. Who may call what is as with sessions.
func TestWithoutALocalPlace(t *testing.T) {
	var counted api.Code
	r := New(Config{System: system{}, Observe: func(_ string, code api.Code, _ time.Duration) { counted = code }})
	for name, tc := range map[string]struct {
		method, params string
		scope          access.Scope
		want           api.Code
	}{
		"ping":           {api.MethodSystemPing, ``, access.ScopeRead, ""},
		"info":           {api.MethodSystemInfo, ``, access.ScopeRead, ""},
		"stats":          {api.MethodSystemStats, ``, access.ScopeRead, ""},
		"create":         {api.MethodSessionCreate, `{"shell":"bash"}`, access.ScopeRun, api.CodeRuntimeUnavailable},
		"a later field":  {api.MethodSessionCreate, `{"later":1}`, access.ScopeRun, api.CodeRuntimeUnavailable},
		"list":           {api.MethodSessionList, ``, access.ScopeRead, api.CodeRuntimeUnavailable},
		"watch":          {api.MethodSessionWatch, ``, access.ScopeRead, api.CodeRuntimeUnavailable},
		"run":            {api.MethodExecRun, `{"session_id":"s-1","command":"true"}`, access.ScopeRun, api.CodeRuntimeUnavailable},
		"close a stream": {api.MethodStreamClose, `{"stream_id":"st-1"}`, access.ScopeRead, api.CodeRuntimeUnavailable},
		"upgrade":        {api.MethodSystemUpgrade, ``, access.ScopeAdmin, api.CodeRuntimeUnavailable},
		"no scope":       {api.MethodSessionCreate, `{}`, access.ScopeRead, api.CodeForbidden},
		"unknown":        {"session.made", `{}`, access.ScopeRead, api.CodeMethodNotFound},
		"unknown field":  {api.MethodSystemPing, `{"later":1}`, access.ScopeRead, api.CodeInvalidParams},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Call(as(t, tc.scope), tc.method, json.RawMessage(tc.params))
			var got api.Code
			if err != nil {
				got = api.AsError(err).Code
			}
			if got != tc.want || counted != tc.want {
				t.Fatalf("%v, counted as %q", err, counted)
			}
			if got == api.CodeRuntimeUnavailable {
				if e := api.AsError(err); !strings.Contains(e.Message, "no local place for sessions") || !strings.Contains(e.Hint, "--address") {
					t.Errorf("message %q, hint %q", e.Message, e.Hint)
				}
			}
		})
	}
	if _, err := r.Call(t.Context(), api.MethodSessionList, nil); !api.IsCode(err, api.CodeUnauthorized) {
		t.Errorf("without an actor: %v", err)
	}
}

// recorder is a table that keeps what it was called with.
type recorder struct {
	Table
	ctx    context.Context
	method string
	params json.RawMessage
	result any
}

func newRecorder() *recorder {
	return &recorder{Table: service.New(service.Config{System: system{}})}
}

// noPlaces are places of which there are none.
type noPlaces struct{ Places }

func (noPlaces) Find(string) Place { return nil }

func (r *recorder) Call(ctx context.Context, method string, params json.RawMessage) (any, error) {
	r.ctx, r.method, r.params = ctx, method, params
	return r.result, nil
}

// The local place gets the call itself, not a copy, and its result is passed on as
// it is.
func TestLocalPlaceGetsTheCall(t *testing.T) {
	opened := &service.OpenedStream{StreamID: "st-1"}
	local := newRecorder()
	local.result = opened
	params := json.RawMessage(`{"not even":JSON`)
	ctx := as(t, access.ScopeRead)
	got, err := New(Config{Local: local, Places: noPlaces{}}).Call(ctx, "made.up", params)
	if err != nil || got != any(opened) {
		t.Errorf("got %v, %v", got, err)
	}
	if local.ctx != ctx || local.method != "made.up" || &local.params[0] != &params[0] {
		t.Errorf("the place was called with %q %s", local.method, local.params)
	}
}

func TestLocalPlaceCostsNothing(t *testing.T) {
	for _, node := range []string{"", "eu1-n7"} {
		r := New(Config{Local: newRecorder(), Places: noPlaces{}, Node: node})
		ctx, params := as(t, access.ScopeRead), localParams(node)
		if n := testing.AllocsPerRun(100, func() { _, _ = r.Call(ctx, api.MethodExecRun, params) }); n != 0 {
			t.Errorf("%v allocations for a call", n)
		}
	}
}

func localParams(node string) json.RawMessage {
	if node != "" {
		node += "-"
	}
	return json.RawMessage(`{"session_id":"s-` + node + `0123456789","command":"make","env":{"A":"b"}}`)
}

func BenchmarkCall(b *testing.B) {
	for name, places := range map[string]Places{"alone": nil, "places": noPlaces{}} {
		b.Run(name, func(b *testing.B) {
			r := New(Config{Local: newRecorder(), Places: places, Node: "n7"})
			ctx, params := as(b, access.ScopeRead), localParams("n7")
			b.ReportAllocs()
			for b.Loop() {
				_, _ = r.Call(ctx, api.MethodExecRun, params)
			}
		})
	}
}
