package vt

import (
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	for _, c := range []struct{ modes, key, want string }{
		{"", "a", "a"},
		{"", "A", "A"},
		{"", "é", "é"},
		{"", "日", "日"},
		{"", "-", "-"},
		{"", "+", "+"},
		{"", "enter", "\r"},
		{"", "Return", "\r"},
		{"\x1b[20h", "enter", "\r\n"},
		{"", "alt-enter", "\x1b\r"},
		{"", "tab", "\t"},
		{"", "shift-tab", "\x1b[Z"},
		{"", "escape", "\x1b"},
		{"", "space", " "},
		{"", "ctrl-space", "\x00"},
		{"", "backspace", "\x7f"},
		{"", "ctrl-backspace", "\b"},
		{"", "alt-backspace", "\x1b\x7f"},
		{"", "ctrl-c", "\x03"},
		{"", "Ctrl+C", "\x03"},
		{"", "c-x", "\x18"},
		{"", "ctrl-[", "\x1b"},
		{"", "ctrl-\\", "\x1c"},
		{"", "ctrl-_", "\x1f"},
		{"", "ctrl-/", "\x1f"},
		{"", "ctrl--", "\x1f"},
		{"", "ctrl-?", "\x7f"},
		{"", "ctrl-@", "\x00"},
		{"", "ctrl-2", "\x00"},
		{"", "ctrl-6", "\x1e"},
		{"", "ctrl-alt-a", "\x1b\x01"},
		{"", "alt-x", "\x1bx"},
		{"", "meta-X", "\x1bX"},
		{"", "shift-a", "A"},
		{"", "alt--", "\x1b-"},
		{"", "alt-é", "\x1bé"},
		{"", "up", "\x1b[A"},
		{"\x1b[?1h", "up", "\x1bOA"},
		{"\x1b[?1h", "home", "\x1bOH"},
		{"", "end", "\x1b[F"},
		{"\x1b[?1h", "ctrl-left", "\x1b[1;5D"},
		{"", "shift-right", "\x1b[1;2C"},
		{"", "ctrl-shift-alt-down", "\x1b[1;8B"},
		{"", "f1", "\x1bOP"},
		{"", "shift-F3", "\x1b[1;2R"},
		{"", "f5", "\x1b[15~"},
		{"", "f12", "\x1b[24~"},
		{"", "ctrl-f5", "\x1b[15;5~"},
		{"", "f20", "\x1b[34~"},
		{"", "insert", "\x1b[2~"},
		{"", "delete", "\x1b[3~"},
		{"", "PageUp", "\x1b[5~"},
		{"", "pgdn", "\x1b[6~"},
		{"", "alt-delete", "\x1b[3;3~"},
		{"", "kp-5", "5"},
		{"\x1b=", "kp-5", "\x1bOu"},
		{"\x1b=", "kp-enter", "\x1bOM"},
		{"\x1b=\x1b>", "kp-enter", "\r"},
		{"\x1b[?66h", "kp-add", "\x1bOk"},
		{"", "ctrl-minus", "\x1f"},
		{"", "plus", "+"},
		{"", "C-c", "\x03"},
		{"", "M-x", "\x1bx"},
		{"", "BSpace", "\x7f"},
		{"", "BTab", "\x1b[Z"},
		{"", "M-BTab", "\x1b\x1b[Z"},
		{"", "C-DC", "\x1b[3;5~"},
		{"", "IC", "\x1b[2~"},
		{"", "NPage", "\x1b[6~"},
		{"", "PPage", "\x1b[5~"},
	} {
		s := New(Config{})
		s.Write([]byte(c.modes))
		if got, err := s.Key(c.key); err != nil || string(got) != c.want {
			t.Errorf("%q after %q: got %q, %v, want %q", c.key, c.modes, got, err, c.want)
		}
	}
	for _, key := range []string{"", "nokey", "ctrl-", "f21", "ctrl-é", "hyper-x", "\x1b", "\x03", "ab", "\xff", "ctrl-alt", "shift-enter-x"} {
		if got, err := New(Config{}).Key(key); err == nil {
			t.Errorf("%q is %q", key, got)
		}
	}
}

func TestPaste(t *testing.T) {
	for _, c := range []struct{ modes, text, want string }{
		{"", "a\nb\r\nc\r", "a\rb\rc\r"},
		{"\x1b[?2004h", "a\nb", "\x1b[200~a\rb\x1b[201~"},
		{"\x1b[?2004h", "", "\x1b[200~\x1b[201~"},
		{"\x1b[?2004h", "x\x1b[201~rm\n", "\x1b[200~x[201~rm\r\x1b[201~"},
		{"\x1b[?2004h", "x\x1b\x1b[201~[201~y", "\x1b[200~x[201~[201~y\x1b[201~"},
		{"\x1b[?2004h", "x\u009b201~y\x9b201~z", "\x1b[200~x201~y201~z\x1b[201~"},
		{"\x1b[?2004h", "日本\té", "\x1b[200~日本\té\x1b[201~"},
		{"\x1b[?2004h\x1b[?2004l", "a\n", "a\r"},
	} {
		s := New(Config{})
		s.Write([]byte(c.modes))
		if got := string(s.Paste(c.text)); got != c.want {
			t.Errorf("%q after %q: got %q, want %q", c.text, c.modes, got, c.want)
		} else if strings.Count(got, "\x1b") > 2 {
			t.Errorf("%q contains more than its brackets", got)
		}
	}
}
