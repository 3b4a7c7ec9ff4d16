package session

import (
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// The result of a command says how much of its input it did not read: of the lines
// and the last, unfinished line of a terminal, edited or not, and of a pipe.
func TestUnreadInput(t *testing.T) {
	p := newPool(t, Config{})
	s := onTTY(t, p, "/bin/sh")
	for _, c := range []struct {
		command  string
		dialogue []string
		want     int64
	}{
		{"read -r x; echo go; $GATE", []string{"", "first\n", "go", "next\npart"}, int64(len("next\npart"))},
		{"echo go; $GATE", []string{"go", "ab\x7f\n"}, int64(len("a\n"))},
		{"stty raw -echo; echo go; $GATE", []string{"go", "ab\x7f\r"}, int64(len("ab\x7f\r"))},
		{"read -r x; $GATE", []string{"", "all\n"}, 0},
		{"echo go; $GATE", nil, 0}, // what others did not read is not its input
	} {
		if r := typing(t, p, s, c.command, c.dialogue...); r.InputUnread != c.want {
			t.Errorf("%s: %d bytes are unread, want %d", c.command, r.InputUnread, c.want)
		}
	}

	wait, open := trltest.Gate(t)
	exec := startReading(t, p, "read -r x; echo go; "+wait)
	long := strings.Repeat("x", 100_000) // more than a pipe holds
	for _, input := range []api.ExecInputParams{{Data: "first\nnext\n"}, {Data: long, Whole: true}} {
		input.ExecID = exec
		if _, err := p.Input(t.Context(), input); err != nil {
			t.Fatal(err)
		}
	}
	awaitText(t, p, exec, "go")
	open()
	said(t, p, exec)
	if r, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: exec}); err != nil || r.InputUnread != int64(len("next\n")+len(long)) {
		t.Errorf("%+v, %v", r, err)
	}
}
