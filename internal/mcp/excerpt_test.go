package mcp

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzCuts checks that a cut stays within its budget, makes progress, and never
// splits a character.
func FuzzCuts(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "one\ntwo\nthree\n", strings.Repeat("x", 500), strings.Repeat("äö€", 300), strings.Repeat("line\n", 200),
		strings.Repeat("\r12%\x1b[K", 300), "\x1b[31m" + strings.Repeat("red\n", 100) + "\x1b[0m", "\xff\xfe\x00\n<&>\"\\",
		"&&&&&&&&&&&&&&&&\r000000\xbe", strings.Repeat("\x80", 300), "😀😀😀\r&&&😀", strings.Repeat("\x1b[1000Gx", 10),
	} {
		f.Add([]byte(seed), 40)
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, room int) {
		if room < 1 || room > 10000 || len(b) > 20000 {
			return
		}
		head, tail := headOf(b, room), tailOf(b, room)
		if head < 0 || head > len(b) || tail < 0 || tail > len(b) {
			t.Fatalf("%d and %d of %d", head, tail, len(b))
		}
		for name, part := range map[string][]byte{"head": b[:head], "tail": b[tail:]} {
			if c := cost(plain(part)); c > room {
				t.Errorf("the %s costs %d of %d", name, c, room)
			}
		}
		if head == 0 && len(b) > 0 && room >= 30 {
			t.Errorf("paging with a budget of %d makes no progress in %q", room, b)
		}
		if !utf8.Valid(b) {
			return
		}
		if head < len(b) && !utf8.RuneStart(b[head]) || tail < len(b) && !utf8.RuneStart(b[tail]) {
			t.Errorf("the cut at %d or %d splits a character", head, tail)
		}
	})
}

func TestHasFileLocation(t *testing.T) {
	for text, want := range map[string]bool{
		"main.go:17: undefined: x":       true,
		"  File \"a.py\", line 3":        false,
		"src/lib.rs:4:9":                 true,
		"at 12:30:45 it was fine":        false,
		"http://127.0.0.1:8080/":         false,
		"2026-11-15T10:00:00.123Z INFO ": false,
		"see example.com:443":            true, // looks like a file
		":1":                             false,
		"a.c:":                           false,
		".go:1":                          false,
	} {
		if got := hasFileLocation([]byte(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func TestWalkingLines(t *testing.T) {
	for _, pieces := range [][]string{
		{"one\ntwo\nthree"}, {"o", "ne", "\n", "two\nth", "ree"}, {"one\n", "two\n", "three"}, {"one", "\ntwo\n", "three"},
	} {
		for _, skip := range []bool{false, true} {
			var got []string
			var offsets []int64
			asked := 0
			w := lineSplitter{active: true, scan: lineScan{
				line: func(offset int64, text []byte) bool {
					got, offsets = append(got, string(text)), append(offsets, offset)
					return true
				},
				skip: func(block []byte) bool {
					asked++
					return skip && !strings.Contains(string(block), "t")
				},
			}}
			at := int64(0)
			for _, p := range pieces {
				w.feed(at, []byte(p))
				at += int64(len(p))
			}
			if len(w.partial) > 0 {
				w.scan.line(w.partialAt, w.partial)
			}
			if asked > len(pieces) {
				t.Errorf("%q: skip was called %d times", pieces, asked)
			}
			all := strings.Join(got, "|")
			if !skip && all != "one|two|three" || !strings.HasSuffix(all, "two|three") || offsets[len(offsets)-1] != 8 || offsets[len(offsets)-2] != 4 {
				t.Errorf("%q, skipping %t: %q at %v", pieces, skip, all, offsets)
			}
		}
	}
}

// A label that the model gives is one line, as the daemon wants it.
func TestLabels(t *testing.T) {
	for given, want := range map[string]string{
		"":                       "",
		"the\nbuild":             "the build",
		"a\n\tb":                 "a b",
		"\u202etxt":              `\u202etxt`,
		strings.Repeat("é", 200): strings.Repeat("é", maxLabel/2) + "…",
	} {
		if got := oneLine(given); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}

func TestNameShell(t *testing.T) {
	for text, want := range map[string]string{
		"/proc/1/fd/3: line 12: x: not found": "bash: line 12: x: not found",
		"see /proc/1/fd/3: line 12: x":        "see /proc/1/fd/3: line 12: x",
		"/proc/1/fd/3: symbolic link to x":    "/proc/1/fd/3: symbolic link to x",
		"/proc/1/fd/3":                        "/proc/1/fd/3",
		"a\n/proc/1/fd/3: line 1: b\n":        "a\nbash: line 1: b",
	} {
		if got := plain([]byte(text)); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestFormatMS(t *testing.T) {
	for ms, want := range map[int64]string{0: "less than 1ms", 1: "1ms", 2345: "2.3s"} {
		if got := formatMS(ms); got != want {
			t.Errorf("%d ms are shown as %s, want %s", ms, got, want)
		}
	}
}
