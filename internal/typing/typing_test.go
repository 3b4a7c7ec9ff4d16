package typing

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

func TestInput(t *testing.T) {
	onPipes := &api.ExecResult{ExecID: "e-1"}
	onTerminal := &api.ExecResult{ExecID: "e-1", TTY: &api.TTYSize{Rows: 24, Cols: 80}}
	for name, c := range map[string]struct {
		to   *api.ExecResult
		text string
		keys []string
		want api.ExecInputParams
	}{
		"a line":               {onPipes, "a\nb\n", nil, api.ExecInputParams{ExecID: "e-1", Data: "a\nb\n"}},
		"a line on a terminal": {onTerminal, "a\nb\n", nil, api.ExecInputParams{ExecID: "e-1", Data: "a\rb\r"}},
		"bytes":                {onPipes, "\xff", nil, api.ExecInputParams{ExecID: "e-1", Data: "/w==", Encoding: "base64"}},
		"keys":                 {onTerminal, "x", []string{"C-c", "F1", "BSpace"}, api.ExecInputParams{ExecID: "e-1", Data: "x", Keys: []string{"C-c", "F1", "BSpace"}}},
	} {
		got, err := Input(c.to, []byte(c.text), c.keys)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	if _, err := Input(onTerminal, nil, []string{"Up", "Entr"}); !api.IsCode(err, api.CodeInvalidParams) || !strings.Contains(err.Error(), `"Entr"`) {
		t.Errorf("an unknown key: %v", err)
	}
}
