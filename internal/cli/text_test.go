package cli

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// --json prints the daemon's answer, without anything that a terminal would
// interpret.
func TestJSONHidesNothing(t *testing.T) {
	const odd = "a\x1b[2J\n\u009b31m\u202e\u2066\U000e0041\u2028\x7fz日本"
	raw, err := json.Marshal(api.Session{Name: odd})
	if err != nil {
		t.Fatal(err)
	}
	var out, complaint bytes.Buffer
	a := &app{stdout: &out, stderr: &complaint, json: true}
	if err := a.printJSON(raw); err != nil {
		t.Fatal(err)
	}
	a.printError(api.Errorf(api.CodeInternal, "%s", odd).With("cwd", odd))
	var session api.Session
	if err := json.Unmarshal(out.Bytes(), &session); err != nil || session.Name != odd {
		t.Errorf("%q, %v", session.Name, err)
	}
	for name, text := range map[string]string{"answer": out.String(), "error": complaint.String()} {
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); visible(line) != line {
				t.Errorf("%s: %q", name, line)
			}
		}
		if !strings.Contains(text, `\u009b31m\u202e\u2066\udb40\udc41`) || !strings.Contains(text, "日本") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"":        "''",
		"ls":      "ls",
		"-l":      "-l",
		"a b":     "'a b'",
		"it's":    `'it'\''s'`,
		"$HOME":   "'$HOME'",
		"a=b":     "'a=b'",
		"~":       "'~'",
		"é":       "'é'",
		"a\nb":    "'a\nb'",
		"!":       "'!'",
		"./a-b.c": "./a-b.c",
	} {
		if got := quote(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
	if got := commandText([]string{"echo $HOME | cat"}); got != "echo $HOME | cat" {
		t.Errorf("a single argument: %q", got)
	}
	if got := commandText([]string{"ls", "a b"}); got != "ls 'a b'" {
		t.Errorf("several arguments: %q", got)
	}
}

// A real shell returns quoted text unchanged.
func FuzzQuote(f *testing.F) {
	for _, word := range []string{"", "'", "''", "a'b\"c`d$e\\", "\n", "-n", "*", "~root", "#x", "\xff", "{a,b}", "=ls"} {
		f.Add(word)
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		f.Skip("no sh here")
	}
	f.Fuzz(func(t *testing.T, word string) {
		if strings.ContainsRune(word, 0) {
			t.Skip("an argument can't contain NUL")
		}
		out, err := exec.Command(shell, "-c", commandText([]string{"printf", "%s", word})).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q came out as %q, %v", word, out, err)
		}
	})
}

func TestDurationFlag(t *testing.T) {
	for text, want := range map[string]int64{"30s": 30_000, "1h30m": 5_400_000, "30": 30_000, "1.5": 1_500, "0": 0, "10us": 1, "1d": 86_400_000} {
		var d durationFlag
		if err := d.Set(text); err != nil || *d.milliseconds() != want {
			t.Errorf("%s: %v, %v, want %d ms", text, d, err, want)
		}
	}
	for _, text := range []string{"soon", "-1s", "", "1w", "NaN", "1e300"} {
		var d durationFlag
		if err := d.Set(text); err == nil {
			t.Errorf("%q was accepted as %v", text, d.value)
		}
	}
	var none durationFlag
	if none.milliseconds() != nil {
		t.Error("an unset flag has a value")
	}
}
