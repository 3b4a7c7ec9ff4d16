package service

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
)

// A table without sessions and execs describes its daemon and refuses all else:
// not for its params, which it does not read.
func TestTableWithoutSessions(t *testing.T) {
	counted := map[string]api.Code{}
	table := New(Config{System: fullSystem{}, Observe: func(method string, code api.Code, _ time.Duration) { counted[method] = code }})
	for _, m := range table.Methods() {
		want := api.CodeRuntimeUnavailable
		switch m.Name {
		case api.MethodSystemPing, api.MethodSystemInfo, api.MethodSystemStats, api.MethodPlaceList:
			want = ""
		case api.MethodSystemDelegate, api.MethodSystemDisconnect:
			continue // they are about the connection: see TestDelegateNeedsItsConnection
		case api.MethodPlaceAdd, api.MethodPlaceCheck, api.MethodPlaceRemove, api.MethodPlaceUpgrade:
			continue // served: a place needs no sessions on this machine
		}
		params := json.RawMessage(`{"a_field_of_a_later_version": 1}`)
		if want == "" {
			params = nil
		}
		_, err := table.Call(as(t, access.ScopeAdmin, ""), m.Name, params)
		if got := codeOf(err); got != want || counted[m.Name] != want {
			t.Errorf("%s: %v, counted as %q", m.Name, err, counted[m.Name])
		}
		if want != "" && !strings.Contains(api.AsError(err).Hint, "--address") {
			t.Errorf("%s: the hint is %q", m.Name, api.AsError(err).Hint)
		}
	}
	if _, err := table.Call(as(t, access.ScopeRead, ""), api.MethodSessionCreate, nil); codeOf(err) != api.CodeForbidden {
		t.Errorf("without the scope: %v", err)
	}
	if _, err := table.Call(as(t, access.ScopeAdmin, ""), "session.made", nil); codeOf(err) != api.CodeMethodNotFound {
		t.Errorf("unknown method: %v", err)
	}
	result, err := table.Call(as(t, access.ScopeRead, "red"), api.MethodSystemStats, nil)
	if err != nil {
		t.Fatal(err)
	}
	if stats := result.(*api.SystemStats); stats.SessionsTotal != 0 || stats.Sessions[api.StateIdle] != 0 {
		t.Errorf("a tagged caller sees %+v", stats)
	}
}
