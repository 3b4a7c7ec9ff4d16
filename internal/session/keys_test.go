package session

import (
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// TestSums: equal params have equal checksums, and others do not.
func TestSums(t *testing.T) {
	number, text := int64(0), ""
	all := []any{
		api.ExecCommand{},
		api.ExecCommand{Command: "a"},
		api.ExecCommand{Cwd: "a"},
		api.ExecCommand{Command: "ab"},
		api.ExecCommand{Command: "a", Cwd: "b"},
		api.ExecCommand{TimeoutMS: &number},
		api.ExecCommand{Stdin: &text},
		api.ExecCommand{StdinOpen: true},
		api.ExecCommand{Env: map[string]string{"A": "1", "B": "2"}},
		api.ExecCommand{Env: map[string]string{"A": "1"}},
		api.ExecCommand{Env: map[string]string{"A": ""}},
		api.SessionCreateParams{Tags: []string{"a", "b"}},
		api.SessionCreateParams{Tags: []string{"b", "a"}},
		api.SessionCreateParams{Argv: []string{"a", "b"}},
		api.SessionCreateParams{TTY: &api.TTYSize{Rows: 24, Cols: 80}},
		api.SessionCreateParams{TTY: &api.TTYSize{Rows: 80, Cols: 24}},
		api.SessionCreateParams{Limits: &api.Limits{CPU: 0.5}},
		api.SessionCreateParams{Limits: &api.Limits{CPU: 0.25}},
		api.SessionCreateParams{Limits: &api.Limits{PIDs: 100}},
		api.SessionCreateParams{Limits: &api.Limits{OpenFiles: 100}},
		api.SessionCreateParams{Isolation: &api.Isolation{Profile: api.ProfileOffline}},
		api.SessionCreateParams{Isolation: &api.Isolation{NoNewPrivs: true}},
		api.SessionCreateParams{Isolation: &api.Isolation{Filesystem: &api.Filesystem{Read: []string{"/"}}}},
		api.SessionCreateParams{Isolation: &api.Isolation{Filesystem: &api.Filesystem{Write: []string{"/"}}}},
		api.SessionCreateParams{Isolation: &api.Isolation{Network: &api.Network{Mode: api.NetworkNone}}},
		api.SessionCreateParams{Isolation: &api.Isolation{Network: &api.Network{Allow: []string{"none"}}}},
		api.ExecInputParams{Data: string(make([]byte, 10_000))},
		api.ExecInputParams{Data: string(make([]byte, 10_001))},
		api.ExecInputParams{Keys: []string{"enter"}},
		api.ExecInputParams{At: &number},
		api.ExecInputParams{Whole: true},
	}
	for i, a := range all {
		for j, b := range all {
			if same := sumOf(a) == sumOf(b); same != (i == j) {
				t.Errorf("%+v and %+v: %t", a, b, same)
			}
		}
	}
}
