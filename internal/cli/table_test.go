package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTableFitsTheTerminal(t *testing.T) {
	rows := [][]string{
		{"s-0123456789", "build", "/home/alice/src/kingdom/deep/below"},
		{"s-1", "日本語日本語日本語", "/"},
		{"s-2", "cafe\u0301 au lait, s'il vous plai\u0302t", "/e\u0301/日本/日本語日本語"},
	}
	for width, want := range map[int]string{
		0: "" +
			"ID            NAME                           CWD\n" +
			"s-0123456789  build                          /home/alice/src/kingdom/deep/below\n" +
			"s-1           日本語日本語日本語             /\n" +
			"s-2           cafe\u0301 au lait, s'il vous plai\u0302t  /e\u0301/日本/日本語日本語\n",
		60: "" +
			"ID            NAME                    CWD\n" +
			"s-0123456789  build                   …rc/kingdom/deep/below\n" +
			"s-1           日本語日本語日本語      /\n" +
			"s-2           cafe\u0301 au lait, s'il vo…  /e\u0301/日本/日本語日本語\n",
		40: "" +
			"ID            NAME          CWD\n" +
			"s-0123456789  build         …/deep/below\n" +
			"s-1           日本語日本…   /\n" +
			"s-2           cafe\u0301 au lai…  …本語日本語\n",
		20: "" +
			"ID            NAME\n" +
			"s-0123456789  build\n" +
			"s-1           日本…\n" +
			"s-2           cafe\u0301 …\n",
		8: "" +
			"ID\n" +
			"s-01234…\n" +
			"s-1\n" +
			"s-2\n",
	} {
		var out bytes.Buffer
		table := newTable(&out, "ID", "NAME", "CWD")
		table.maxWidth = width
		table.keepEnd(2)
		for _, row := range rows {
			table.row(row...)
		}
		if err := table.flush(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%d columns: %s", width, diff)
		}
		for line := range strings.Lines(out.String()) {
			if got := textWidth(strings.TrimSuffix(line, "\n")); width > 0 && got > width {
				t.Errorf("%d columns: a line takes %d: %q", width, got, line)
			}
		}
	}
}

func TestTableColours(t *testing.T) {
	var out bytes.Buffer
	table := newTable(&out, "ID", "STATE")
	table.colours = true
	table.style(1, stateStyle)
	table.row("s-1", "idle")
	table.row("s-22", "running")
	table.row("s-3", "\x1b[0m")
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	want := "\x1b[1mID\x1b[0m    \x1b[1mSTATE\x1b[0m\n" +
		"s-1   idle\n" +
		"s-22  \x1b[32mrunning\x1b[0m\n" +
		"s-3   \\x1b[0m\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	table.maxWidth = 11
	if err := table.flush(); err != nil || !strings.Contains(out.String(), "\ns-22  \x1b[32mrunn…\x1b[0m\n") {
		t.Errorf("a state that is cut: %q, %v", &out, err)
	}
	const plainText = "trl: it failed\nhint: do this\n"
	if got := paintError(plainText); got != "\x1b[31mtrl:\x1b[0m it failed\n\x1b[36mhint:\x1b[0m do this\n" {
		t.Errorf("an error: %q", got)
	}
	for outcome, want := range map[string]style{"exit 0": "", "exit 3": styleRed, "timed out": styleRed, "running": styleGreen, "queued": styleYellow} {
		if got := outcomeStyle(outcome); got != want {
			t.Errorf("%s: %q, want %q", outcome, got, want)
		}
	}
	for grade, want := range map[string]style{"ok": styleGreen, "note": styleYellow, "problem": styleRed, " ": ""} {
		if got := gradeStyle(grade); got != want {
			t.Errorf("%s: %q, want %q", grade, got, want)
		}
	}
}

// A long cell costs time in proportion to its length: arguments of a session can
// have 128 kB.
func FuzzShorten(f *testing.F) {
	f.Add("plain", 3, false)
	f.Add("日本語e\u0301\u0301", 4, true)
	f.Add("\u0301\u0301", 1, true)
	f.Fuzz(func(t *testing.T, text string, width int, keepEnd bool) {
		if text = visible(text); width < 1 || width > 1000 {
			t.Skip()
		}
		got := shorten(text, width, keepEnd)
		if textWidth(got) > width {
			t.Errorf("%q takes %d columns, not %d", got, textWidth(got), width)
		}
		rest := strings.TrimSuffix(got, ellipsis)
		inside := strings.HasPrefix(text, rest)
		if keepEnd {
			rest = strings.TrimPrefix(got, ellipsis)
			inside = strings.HasSuffix(text, rest)
		}
		if got != text && !inside {
			t.Errorf("%q is no part of %q", got, text)
		}
	})
}
