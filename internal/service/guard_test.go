package service

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/notify"
)

// taggedSessions has one session for each of two teams. A call beyond what
// these tests allow is a nil dereference, and so a panic.
type taggedSessions struct {
	Sessions
	Execs
	reached []string
}

func (f *taggedSessions) table(system System) *Table {
	return New(Config{Sessions: f, Execs: f, System: system})
}

func (f *taggedSessions) Visible(tag, sessionID, execID string) error {
	if sessionID != "" && sessionID != "s-"+tag {
		return api.Errorf(api.CodeSessionNotFound, "no session")
	}
	if execID != "" && execID != "e-"+tag {
		return api.Errorf(api.CodeExecNotFound, "no exec")
	}
	return nil
}

func (f *taggedSessions) reach(what string) { f.reached = append(f.reached, what) }

func (f *taggedSessions) Create(_ context.Context, p api.SessionCreateParams, _ string) (*api.Session, error) {
	f.reach("create")
	return &api.Session{Tags: p.Tags}, nil
}

func (f *taggedSessions) List(_ context.Context, p api.SessionListParams) (*api.SessionListResult, error) {
	out := &api.SessionListResult{}
	for _, s := range []api.Session{
		{SessionID: "s-red", Tags: []string{"red"}, State: api.StateIdle, ExecCount: 3},
		{SessionID: "s-blue", Tags: []string{"blue"}, State: api.StateIdle, ExecCount: 3},
		{SessionID: "s-both", Tags: []string{"blue", "red"}, State: api.StateRunning, ExecCount: 4},
		{SessionID: "s-none", State: api.StateIdle, ExecCount: 3},
	} {
		if p.Tag == "" || slices.Contains(s.Tags, p.Tag) {
			out.Sessions = append(out.Sessions, s)
		}
	}
	return out, nil
}

func (f *taggedSessions) Watch(_ context.Context, p api.SessionWatchParams) (*api.SessionWatchResult, notify.Feed, error) {
	feed := func(_ context.Context, send func(notify.Notification) error) error {
		if p.Snapshot && p.Execs {
			for _, e := range []api.SessionEvent{
				{Type: api.EventSnapshot, SessionID: "s-blue", Tags: []string{"blue"}},
				{Type: api.EventExecStarted, SessionID: "s-blue", ExecID: "e-blue", Tags: []string{"blue"}},
				{Type: api.EventWaiting, SessionID: "s-none", ExecID: "e-none"},
				{Type: api.EventSnapshotEnd},
			} {
				if err := send(&e); err != nil {
					return err
				}
			}
		}
		for _, e := range []api.SessionEvent{
			{Type: api.EventCreated, SessionID: "s-red", Tags: []string{"red"}},
			{Type: api.EventGap, Missed: 2},
			{Type: api.EventState, SessionID: "s-blue", Tags: []string{"blue"}},
			{Type: api.EventDestroyed, SessionID: "s-none"},
			{Type: api.EventDestroyed, SessionID: "s-both", Tags: []string{"blue", "red"}},
		} {
			if err := send(&e); err != nil {
				return err
			}
		}
		return nil
	}
	return &api.SessionWatchResult{StreamID: "st-1"}, feed, nil
}

func (f *taggedSessions) Info(context.Context, api.SessionParams) (*api.SessionInfo, error) {
	f.reach("info")
	return &api.SessionInfo{}, nil
}

func (f *taggedSessions) Cancel(context.Context, api.ExecCancelParams) (*api.ExecCancelResult, error) {
	f.reach("cancel")
	return &api.ExecCancelResult{}, nil
}

func as(t testing.TB, scope access.Scope, tag string) context.Context {
	return access.With(t.Context(), access.Actor{Transport: "test", Scope: scope, Tag: tag})
}

func TestWithoutActorNothingIsServed(t *testing.T) {
	table := (&taggedSessions{}).table(fakeSystem{})
	for _, m := range table.Methods() {
		if _, err := table.Call(t.Context(), m.Name, nil); !api.IsCode(err, api.CodeUnauthorized) {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

func TestScopesAreEnforced(t *testing.T) {
	table := (&taggedSessions{}).table(fakeSystem{})
	for _, m := range table.Methods() {
		for _, has := range append(access.Scopes(), "", "root") {
			_, err := table.Call(as(t, has, ""), m.Name, json.RawMessage(`{"no such field":1}`))
			if refused := api.IsCode(err, api.CodeForbidden); refused == has.Covers(m.Scope) {
				t.Errorf("%s with scope %q: %v", m.Name, has, err)
			} else if refused && !strings.Contains(api.AsError(err).Hint, string(m.Scope)) {
				t.Errorf("%s: the hint does not say which scope it needs: %v", m.Name, err)
			}
		}
	}
}

// TestForeignSessionsDoNotExist names the session, and the exec, of another
// team in every method that can name one.
func TestForeignSessionsDoNotExist(t *testing.T) {
	sessions := &taggedSessions{}
	table := sessions.table(fakeSystem{})
	ctx := as(t, access.ScopeAdmin, "red")
	others := `"command":"x","data":"x","signal":"INT","rows":1,"cols":1,"holder":"x","lease":"x"`
	named := 0
	for _, m := range table.Methods() {
		for field, code := range map[string]api.Code{"session_id": api.CodeSessionNotFound, "exec_id": api.CodeExecNotFound} {
			params := fieldsOf(m.Params, field, field[:1]+"-blue", others)
			if params == "" {
				continue
			}
			named++
			if _, err := table.Call(ctx, m.Name, json.RawMessage(params)); !api.IsCode(err, code) {
				t.Errorf("%s %s: %v", m.Name, params, err)
			}
		}
	}
	if named < 13 {
		t.Errorf("only %d calls could name a session or an exec", named)
	}
	if len(sessions.reached) > 0 {
		t.Errorf("calls that reached the backend: %v", sessions.reached)
	}
	for method, params := range map[string]string{
		api.MethodSessionInfo: `{"session_id":"s-red"}`,
		api.MethodExecCancel:  `{"exec_id":"e-red"}`,
	} {
		if _, err := table.Call(ctx, method, json.RawMessage(params)); err != nil {
			t.Errorf("%s of its own session: %v", method, err)
		}
	}
	if _, err := table.Call(ctx, api.MethodExecCancel, json.RawMessage(`{"exec_id":"e-red","session_id":"s-blue"}`)); !api.IsCode(err, api.CodeSessionNotFound) {
		t.Errorf("one of each: %v", err)
	}
}

// fieldsOf returns params with the named field set and the other required
// fields filled in, or "" if there is no such field.
func fieldsOf(params reflect.Type, field, value, others string) string {
	known := map[string]bool{}
	for i := range params.NumField() {
		name, _, _ := strings.Cut(params.Field(i).Tag.Get("json"), ",")
		known[name] = true
	}
	if !known[field] {
		return ""
	}
	out := `{"` + field + `":"` + value + `"`
	for pair := range strings.SplitSeq(others, ",") {
		if name := strings.Trim(strings.SplitN(pair, ":", 2)[0], `"`); known[name] {
			out += "," + pair
		}
	}
	return out + "}"
}

func TestTagOfCreatedSessions(t *testing.T) {
	for name, tc := range map[string]struct {
		tag, params string
		want        api.Code
	}{
		"none needed":  {"", `{}`, ""},
		"missing":      {"red", `{}`, api.CodeForbidden},
		"another":      {"red", `{"tags":["blue"]}`, api.CodeForbidden},
		"in capitals":  {"red", `{"tags":["Red"]}`, api.CodeForbidden},
		"its own":      {"red", `{"tags":["red"]}`, ""},
		"among others": {"red", `{"tags":["x","red"]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sessions := &taggedSessions{}
			_, err := New(Config{Sessions: sessions}).Call(as(t, access.ScopeRun, tc.tag), api.MethodSessionCreate, json.RawMessage(tc.params))
			if got := codeOf(err); got != tc.want || (len(sessions.reached) > 0) != (tc.want == "") {
				t.Errorf("%v, reached %v", err, sessions.reached)
			}
		})
	}
}

func codeOf(err error) api.Code {
	if err == nil {
		return ""
	}
	return api.AsError(err).Code
}

func TestListShowsTheTagsOfItsCaller(t *testing.T) {
	table := New(Config{Sessions: &taggedSessions{}})
	for name, tc := range map[string]struct {
		tag, params string
		want        []string
	}{
		"all":         {"", `{}`, []string{"s-red", "s-blue", "s-both", "s-none"}},
		"red":         {"red", `{}`, []string{"s-red", "s-both"}},
		"red of blue": {"red", `{"tag":"blue"}`, []string{"s-both"}},
		"red of red":  {"red", `{"tag":"red"}`, []string{"s-red", "s-both"}},
		"green":       {"green", `{}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := table.Call(as(t, access.ScopeRead, tc.tag), api.MethodSessionList, json.RawMessage(tc.params))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range result.(*api.SessionListResult).Sessions {
				got = append(got, s.SessionID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWatchShowsTheTagsOfItsCaller(t *testing.T) {
	table := New(Config{Sessions: &taggedSessions{}})
	const whole = `{"snapshot":true,"execs":true}`
	for _, tc := range []struct {
		tag, params string
		want        []string
	}{
		{"", "", []string{"s-red", "", "s-blue", "s-none", "s-both"}},
		{"red", "", []string{"s-red", "", "s-both"}},
		{"blue", "", []string{"", "s-blue", "s-both"}},
		{"", whole, []string{"s-blue", "s-blue", "s-none", "", "s-red", "", "s-blue", "s-none", "s-both"}},
		{"red", whole, []string{"", "s-red", "", "s-both"}},
		{"blue", whole, []string{"s-blue", "s-blue", "", "", "s-blue", "s-both"}},
	} {
		result, err := table.Call(as(t, access.ScopeRead, tc.tag), api.MethodSessionWatch, json.RawMessage(tc.params))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := result.(*OpenedStream).Feed(t.Context(), func(n notify.Notification) error {
			got = append(got, n.(*api.SessionEvent).SessionID)
			return nil
		}); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%q %s: %s", tc.tag, tc.params, diff)
		}
	}
}

// A method that names no session must be listed in tagAware.
func TestUnguardedMethodIsRefused(t *testing.T) {
	m := method("session.everything", ScopeRead, "Show all.", func(context.Context, struct {
		SessionID string `json:"session_id,omitempty"`
	},
	) (*api.None, error) {
		return &api.None{}, nil
	})
	defer func() {
		if recover() == nil {
			t.Error("the method was accepted")
		}
	}()
	mustBeGuarded(&m)
}

func TestCallsAreObserved(t *testing.T) {
	type call struct {
		Method string
		Code   api.Code
	}
	var got []call
	table := New(Config{System: fakeSystem{}, Execs: &taggedSessions{}, Observe: func(method string, code api.Code, took time.Duration) {
		if took < 0 {
			t.Errorf("%s took %v", method, took)
		}
		got = append(got, call{method, code})
	}})
	_, _ = table.Call(as(t, access.ScopeRead, ""), api.MethodSystemPing, nil)
	_, _ = table.Call(as(t, access.ScopeRead, ""), api.MethodExecRun, nil)
	_, _ = table.Call(as(t, access.ScopeRead, ""), "made.up", nil)
	_, _ = table.Call(as(t, access.ScopeRun, ""), api.MethodExecRun, json.RawMessage(`{"session_id":"s","command":"x"}`)) // panics
	want := []call{
		{api.MethodSystemPing, ""}, {api.MethodExecRun, api.CodeForbidden}, {"", api.CodeMethodNotFound}, {api.MethodExecRun, api.CodeInternal},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// fullSystem sets every field that a caller could see.
type fullSystem struct{ fakeSystem }

func (fullSystem) SystemInfo(context.Context) *api.SystemInfo {
	return &api.SystemInfo{
		Version: "1", Protocol: 1, OS: "linux", Arch: "amd64", PID: 7, Config: map[string]any{"socket": "/secret/path"},
		Runtimes: []string{"host"}, Shells: []string{"sh"}, Limits: []string{}, Isolates: []string{},
		Process: api.ProcessSupport{Tracking: "cgroup", Cgroup: "/secret/path", Reason: "/secret/path", Subreaper: true},
	}
}

func (fullSystem) Stats(context.Context) *api.SystemStats {
	return &api.SystemStats{
		UptimeMS: 999, Sessions: map[api.State]int{api.StateIdle: 999}, SessionsTotal: 999, ExecsRunning: 999, ExecsTotal: 999,
		ExecsRetained: 999, BytesCaptured: 999, JournalMemory: 999, JournalSpilled: 999, Memory: 999, FDs: 999, Goroutines: 999, Orphans: 999,
	}
}

// The methods that name no session reveal nothing about the rest of the daemon
// to a caller that is restricted to a tag.
func TestTagSeesNothingOfTheDaemon(t *testing.T) {
	table := (&taggedSessions{}).table(fullSystem{})
	for _, method := range []string{api.MethodSystemPing, api.MethodSystemInfo, api.MethodSystemStats} {
		got, err := table.Call(as(t, access.ScopeAdmin, "red"), method, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"/secret/path", "999", `"pid":7`} {
			if strings.Contains(string(text), secret) {
				t.Errorf("%s shows %s: %s", method, secret, text)
			}
		}
	}
	got, err := table.Call(as(t, access.ScopeRead, "red"), api.MethodSystemStats, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &api.SystemStats{
		Sessions:      map[api.State]int{api.StateCreating: 0, api.StateIdle: 1, api.StateRunning: 1, api.StateTerminated: 0},
		SessionsTotal: 2, ExecsRunning: 1, ExecsTotal: 7,
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("system.stats of red (-want +got):\n%s", diff)
	}
	for _, method := range []string{api.MethodSystemInfo, api.MethodSystemStats} {
		got, err := table.Call(as(t, access.ScopeRead, ""), method, nil)
		want := any(fullSystem{}.SystemInfo(t.Context()))
		if method == api.MethodSystemStats {
			want = fullSystem{}.Stats(t.Context())
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s without a tag (-want +got):\n%s%v", method, diff, err)
		}
	}
}
