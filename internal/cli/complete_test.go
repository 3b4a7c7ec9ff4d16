package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

func TestSessionCompletions(t *testing.T) {
	sessions := []api.Session{
		{SessionID: "s-1", Name: "build"},
		{SessionID: "s-2", Name: "twin"},
		{SessionID: "s-3", Name: "twin"},
		{SessionID: "s-4", Name: "trl run"},
		{SessionID: "s-5", Name: "$(reboot)"},
		{SessionID: "s-6"},
	}
	for prefix, want := range map[string][]string{
		"":     {"s-1\tbuild", "build\ts-1", "s-2\ttwin", "s-3\ttwin", "s-4\ttrl run", "s-5\t$(reboot)", "s-6\t"},
		"b":    {"build\ts-1"},
		"s-1":  {"s-1\tbuild"},
		"none": nil,
	} {
		if diff := cmp.Diff(want, sessionCompletions(sessions, prefix)); diff != "" {
			t.Errorf("%q: %s", prefix, diff)
		}
	}
}
