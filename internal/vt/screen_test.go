package vt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

// Each feature on a screen of 5 rows and 10 columns: the content and the cursor
// afterwards ("row,column", with a "!" if a wrap is pending).
func TestScreen(t *testing.T) {
	const lines = "1\r\n2\r\n3\r\n4\r\n5"
	for _, c := range []struct {
		name, in, want, cursor string
	}{
		{"text", "hello\r\nworld", "hello\nworld", "1,5"},
		{"wrap is late", "0123456789", "0123456789", "0,9!"},
		{"wrap", "0123456789ab", "0123456789\nab", "1,2"},
		{"no wrap", "\x1b[?7l0123456789abc", "012345678c", "0,9!"},
		{"pending ends with a move", "0123456789\x1b[Dx", "01234567x9", "0,9"},
		{"pending ends with a backspace", "0123456789\bx", "01234567x9", "0,9"},
		{"pending ends with CR", "0123456789\rx", "x123456789", "0,1"},
		{"pending ends with LF", "0123456789\nx", "0123456789\n         x", "1,9!"},
		{"pending stays with SGR", "0123456789\x1b[1mx", "0123456789\nx", "1,1"},
		{"pending stays with tab", "0123456789\tx", "0123456789\nx", "1,1"},
		{"EL at a pending wrap", "0123456789\x1b[Kx", "0123456789\nx", "1,1"},
		{"scroll", lines + "\r\n6", "2\n3\n4\n5\n6", "4,1"},
		{"wrap scrolls", lines + "\x1b[5;10Hab", "2\n3\n4\n5        a\nb", "4,1"},
		{"CUP is clamped", "\x1b[99;99Hx", "\n\n\n\n         x", "4,9!"},
		{"CUP zero", "\x1b[0;0Hx", "x", "0,1"},
		{"huge numbers", "\x1b[99999999999999999999Bx\x1b[2147483647Cy", "\n\n\n\nx        y", "4,9!"},
		{"CUU stops at the margin", "\x1b[2;4r\x1b[3;1H\x1b[9Ax", "\nx", "1,1"},
		{"CUU above the margin", "\x1b[3;4r\x1b[2;1H\x1b[9Ax", "x", "0,1"},
		{"CUD below the margin", "\x1b[2;3r\x1b[4;1H\x1b[9Bx", "\n\n\n\nx", "4,1"},
		{"CNL and CPL", "\x1b[2;5H\x1b[2Ea\x1b[1Fb", "\n\nb\na", "2,1"},
		{"CHA, HPA, VPA, HPR, VPR", "\x1b[5Ga\x1b[2`b\x1b[3dc\x1b[2ad\x1b[ee", " b  a\n\n  c  d\n      e", "3,7"},
		{"region scrolls", lines + "\x1b[2;4r\x1b[4;1H\n\nx", "1\n4\n\nx\n5", "3,1"},
		{"region refuses one line", "\x1b[3;3r\x1b[9;1Hx", "\n\n\n\nx", "4,1"},
		{"RI scrolls", lines + "\x1b[H\x1bMx", "x\n1\n2\n3\n4", "0,1"},
		{"RI in a region", lines + "\x1b[2;4r\x1b[2;1H\x1bMx", "1\nx\n2\n3\n5", "1,1"},
		{"IND keeps the column", "ab\x1bDc", "ab\n  c", "1,3"},
		{"NEL", "ab\x1bEc", "ab\nc", "1,1"},
		{"C1", "ab\u0085c\u0084d\u009b1;1HX", "Xb\nc\n d", "0,1"},
		{"IL", lines + "\x1b[2;2H\x1b[2Lx", "1\nx\n\n2\n3", "1,1"},
		{"DL", lines + "\x1b[2;2H\x1b[2Mx", "1\nx\n5", "1,1"},
		{"IL outside the region", lines + "\x1b[2;3r\x1b[5;1H\x1b[Lx", "1\n2\n3\n4\nx", "4,1"},
		{"SU and SD", lines + "\x1b[2S\x1b[T", "\n3\n4\n5", "4,1"},
		{"ICH", "abcdef\x1b[1;3H\x1b[2@", "ab  cdef", "0,2"},
		{"ICH loses the end", "0123456789\x1b[1;1H\x1b[3@", "   0123456", "0,0"},
		{"DCH", "abcdef\x1b[1;3H\x1b[2P", "abef", "0,2"},
		{"ECH", "abcdef\x1b[1;3H\x1b[2X", "ab  ef", "0,2"},
		{"insert mode", "abc\x1b[1;2H\x1b[4hXY\x1b[4lZ", "aXYZc", "0,4"},
		{"EL", "abcdef\x1b[1;3H\x1b[1K\x1b[2;1Habcdef\x1b[2;3H\x1b[K\x1b[3;1Habc\x1b[2K", "   def\nab", "2,3"},
		{"ED below", lines + "\x1b[3;1H\x1b[J", "1\n2", "2,0"},
		{"ED above", lines + "\x1b[3;1H\x1b[1J", "\n\n\n4\n5", "2,0"},
		{"ED all", lines + "\x1b[2Jx", "\n\n\n\n x", "4,2"},
		{"selective erase", "\x1b[1\"qab\x1b[0\"qcd\x1b[?2K", "ab", "0,4"},
		{"selective erase of all", "\x1b[1\"qab\x1b[0\"qcd\x1b[?2J", "ab", "0,4"},
		{"REP", "ab\x1b[3bc", "abbbbc", "0,6"},
		{"REP wraps", "x\x1b[11b", "xxxxxxxxxx\nxx", "1,2"},
		{"REP after a control", "a\r\x1b[3bc", "c", "0,1"},
		{"REP of a wide one", "日\x1b[2b", "日日日", "0,6"},
		{"tabs", "a\tb\tc", "a       bc", "0,9!"},
		{"tab stops", "\x1b[3g\x1b[4G\x1bH\r\tx\x1b[Zy\x1b[Z\x1b[Zz", "z  y", "0,1"},
		{"CHT", "\x1b[3g\x1b[4G\x1bH\x1b[6G\x1bH\r\x1b[2Ix", "     x", "0,6"},
		{"TBC of one", "\x1b[9G\x1b[g\r\tx", "         x", "0,9!"},
		{"origin", "\x1b[2;4r\x1b[?6h\x1b[1;1Ha\x1b[9;1Hb\x1b[?6lc", "c\na\n\nb", "0,1"},
		{"relative moves in origin mode", "\x1b[2;4r\x1b[?6h\x1b[2;2H\x1b[A\x1b[Cx", "\n  x", "1,3"},
		{"DECSC", "\x1b[2;3H\x1b7\x1b[5;5Hx\x1b8y", "\n  y\n\n\n    x", "1,3"},
		{"DECSC keeps the origin mode", "\x1b[2;4r\x1b[?6h\x1b7\x1b[?6l\x1b8\x1b[1;1Hx", "\nx", "1,1"},
		{"DECSC keeps the set", "\x1b(0\x1b7\x1b(B\x1b8q", "─", "0,1"},
		{"SCOSC", "ab\x1b[scd\x1b[uX", "abXd", "0,3"},
		{"line drawing", "\x1b(0lqk\x1b(Blqk", "┌─┐lqk", "0,6"},
		{"SO and SI", "\x1b)0q\x0eq\x0fq", "q─q", "0,3"},
		{"G2 and G3", "\x1b*0\x1b+Aq\x1bnq\x1bo#\x0f#", "q─£#", "0,4"},
		{"wide", "日本", "日本", "0,4"},
		{"wide wraps early", "012345678日", "012345678\n日", "1,2"},
		{"wide without wrap", "\x1b[?7l012345678日", "012345678", "0,9"},
		{"left half overwritten", "日本\x1b[1;1Hx", "x 本", "0,1"},
		{"right half overwritten", "日本\x1b[1;2Hx", " x本", "0,2"},
		{"wide over two", "日本\x1b[1;2H語", " 語", "0,3"},
		{"ICH cuts a wide one", "日本\x1b[1;2H\x1b[@", "   本", "0,1"},
		{"DCH cuts a wide one", "日本語\x1b[1;2H\x1b[P", " 本語", "0,1"},
		{"ECH cuts a wide one", "日本\x1b[1;2H\x1b[X", "  本", "0,1"},
		{"wide at the end is lost", "日本\x1b[1;1H\x1b[7@", "       日", "0,0"},
		{"combining", "e\u0301x", "e\u0301x", "0,2"},
		{"combining at the end", "012345678e\u0301x", "012345678e\u0301\nx", "1,1"},
		{"combining on a wide one", "日\u0301x", "日\u0301x", "0,3"},
		{"combining after a control", "e\x1b[m\u0301x", "e\u0301x", "0,3"},
		{"joined emoji", "👨\u200d👩x", "👨\u200d👩x", "0,3"},
		{"byte order mark", "\ufeffx", "x", "0,1"},
		{"bad UTF-8", "a\xffb\xe2\x82c\xed\xa0\x80d", "a\ufffdb\ufffdc\ufffd\ufffd\ufffdd", "0,9"},
		{"controls inside of a sequence", "ab\x1b[2\r;3Hx", "ab\n  x", "1,3"},
		{"CAN ends a sequence", "a\x1b[2\x18Hx", "aHx", "0,3"},
		{"ESC ends a sequence", "a\x1b[2\x1b[3Gx", "a x", "0,3"},
		{"unknown sequences", "a\x1b[5z\x1b[?9999h\x1b[>4;2m\x1b[=3;1ub", "ab", "0,2"},
		{"too many intermediates", "a\x1b[! p\x1b !xb", "ab", "0,2"},
		{"a late prefix", "a\x1b[2?Jb", "ab", "0,2"},
		{"strings", "a\x1b]0;t\x07b\x1bPq#1\x1b\\c\x1b_x\x1b\\d\x1b^y\x1b\\e\x1bXz\x1b\\f", "abcdef", "0,6"},
		{"long strings", "a\x1b]0;" + strings.Repeat("x", 3*maxString) + "\x07b", "ab", "0,2"},
		{"cancelled strings", "a\x1b]0;t\x18b", "ab", "0,2"},
		{"alternate", "main\x1b[?1049h\x1b[Halt", "alt", "0,3"},
		{"back from alternate", "main\x1b[?1049h\x1b[Halt\x1b[?1049lx", "mainx", "0,5"},
		{"1047 keeps the cursor", "main\x1b[?1047h\x1b[3;3Halt\x1b[?1047lx", "main\n\n     x", "2,6"},
		{"alternate is blank", "\x1b[?47hold\x1b[?47l\x1b[?47hx", "   x", "0,4"},
		{"margins of the alternate are its own", "\x1b[?1049h\x1b[2;3r\x1b[?1049l" + lines + "\r\n6", "2\n3\n4\n5\n6", "4,1"},
		{"DECALN", "\x1b[2;3r\x1b#8x", "xEEEEEEEEE\nEEEEEEEEEE\nEEEEEEEEEE\nEEEEEEEEEE\nEEEEEEEEEE", "0,1"},
		{"DECSTR", "a\x1b[2;3r\x1b[?6h\x1b[4h\x1b[!p\x1b[5;1Hx", "a\n\n\n\nx", "4,1"},
		{"RIS", "junk\x1b[2;3r\x1b[?6h\x1b[4h\x1b(0\x1bcq", "q", "0,1"},
		{"LNM", "ab\x1b[20h\nc", "ab\nc", "1,1"},
		{"reverse wrap", "\x1b[?45h0123456789a\b\b\bX", "01234567X9\na", "0,9"},
		{"no reverse wrap over a line feed", "\x1b[?45hab\r\n\bX", "ab\nX", "1,1"},
		{"SL and SR", "abcdef\x1b[2 @\x1b[ A", " cdef", "0,6"},
		{"DECIC and DECDC", "abcdef\x1b[1;3H\x1b[2'}\x1b[1;1H\x1b['~", "b  cdef", "0,0"},
		{"left and right margins wrap", "\x1b[?69h\x1b[3;5s\x1b[1;3Habcd", "  abc\n  d", "1,3"},
		{"left and right margins scroll", lines + "\x1b[?69h\x1b[1;1s\x1b[2;3s\x1b[5;2Hx\n", "1\n2\n3\n4x\n5", "4,2"},
		{"margins of SU", "abc\r\ndef\x1b[?69h\x1b[2;3s\x1b[S", "aef\nd", "0,0"},
		{"DCH within margins", "abcdef\x1b[?69h\x1b[2;4s\x1b[1;2H\x1b[P", "acd ef", "0,1"},
		{"ICH within margins", "abcdef\x1b[?69h\x1b[2;4s\x1b[1;2H\x1b[@", "a bcef", "0,1"},
		{"CR goes to the left margin", "\x1b[?69h\x1b[3;5s\x1b[1;4H\rx", "  x", "0,3"},
		{"DECSLRM needs its mode", "ab\x1b[3;5sc", "abc", "0,3"},
		{"cell of its own for NUL", "a\x00b\x7fc", "abc", "0,3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(Config{Rows: 5, Cols: 10})
			s.Write([]byte(c.in))
			s.check(t)
			if got := s.Text(0); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			cursor := fmt.Sprintf("%d,%d", s.y, s.x)
			if s.pending {
				cursor += "!"
			}
			if cursor != c.cursor {
				t.Errorf("cursor is at %s, want %s", cursor, c.cursor)
			}
			restored := New(Config{Rows: 5, Cols: 10})
			restored.Write(s.ANSI(0))
			if d := difference(s, restored); d != "" {
				t.Errorf("restored:\n%s%q", d, s.ANSI(0))
			}
		})
	}
}

// A screen keeps links to places, and none that could run something.
func TestLinks(t *testing.T) {
	for link, want := range map[string]string{
		"http://a/":               "http://a/",
		"HTTPS://a/?q=1;2":        "HTTPS://a/?q=1;2",
		"file:///etc/passwd":      "file:///etc/passwd",
		"mailto:a@b":              "mailto:a@b",
		"javascript:alert(1)":     "",
		"JavaScript:alert(1)":     "",
		"data:text/html,x":        "",
		"vscode://x":              "",
		"ssh://-oProxyCommand=x/": "",
		"\x20javascript:http:":    "",
		"httpx://a/":              "",
		"http":                    "",
		"//a/":                    "",
		":":                       "",
		"http://a/\u202egpj":      "",
		"http://a/\x7fx":          "",
	} {
		s := New(Config{Rows: 2, Cols: 9})
		// It replaces the link before it, which must not continue either.
		s.Write([]byte("\x1b]8;id=0;http://before/\x1b\\a\x1b]8;id=1\u202e:id=2;" + link + "\x1b\\b\x1b]8;;\x1b\\c"))
		got := map[string]string{}
		for _, run := range s.Cells().Lines[0].Runs {
			for _, r := range run.Text {
				got[string(r)] = ""
				if run.Style != nil {
					got[string(r)] = run.Style.Link
				}
			}
		}
		if d := cmp.Diff(map[string]string{"a": "http://before/", "b": want, "c": ""}, got); d != "" {
			t.Errorf("%q: %s", link, d)
		}
		for name, text := range map[string][]byte{"restored": s.ANSI(0), "painted": NewView(3, 9).Paint(s, Painting{})} {
			if whole := []byte(";" + link + "\x1b\\"); bytes.Contains(text, whole) != (want != "") || bytes.ContainsRune(text, '\u202e') {
				t.Errorf("%q %s: %q", link, name, text)
			}
		}
	}
}

func TestStyle(t *testing.T) {
	for in, want := range map[string]api.ScreenStyle{
		"\x1b[1;2;3;4;5;7;8;9;53m": {
			Bold: true, Dim: true, Italic: true, Underline: "single", Blink: true, Inverse: true, Invisible: true, Strike: true, Overline: true,
		},
		"\x1b[1;2;3;4;5;7;8;9;53m\x1b[22;23;24;25;27;28;29;55m": {},
		"\x1b[1;31m\x1b[m":                        {},
		"\x1b[31;42m":                             {Foreground: "1", Background: "2"},
		"\x1b[91;102m":                            {Foreground: "9", Background: "10"},
		"\x1b[31;42;39;49m":                       {},
		"\x1b[38;5;200;48;5;17m":                  {Foreground: "200", Background: "17"},
		"\x1b[38;2;1;2;3;48;2;255;0;16m":          {Foreground: "#010203", Background: "#ff0010"},
		"\x1b[38:2::1:2:3m":                       {Foreground: "#010203"},
		"\x1b[38:2:1:2:3m":                        {Foreground: "#010203"},
		"\x1b[38:5:9;1m":                          {Foreground: "9", Bold: true},
		"\x1b[38;5m":                              {},
		"\x1b[38;9;1m":                            {Bold: true},
		"\x1b[4:3m":                               {Underline: "curly"},
		"\x1b[4:0m":                               {},
		"\x1b[4:1;21m":                            {Underline: "double"},
		"\x1b[4:4m":                               {Underline: "dotted"},
		"\x1b[4:5m":                               {Underline: "dashed"},
		"\x1b[4:9m":                               {Underline: "single"},
		"\x1b[4;58:2::9:8:7m":                     {Underline: "single", UnderlineColor: "#090807"},
		"\x1b[4;58;5;7m":                          {Underline: "single", UnderlineColor: "7"},
		"\x1b[4;58;5;7;59m":                       {Underline: "single"},
		"\x1b[4;58;5;7m\x1b[m":                    {},
		"\x1b]8;id=1;http://a/\x1b\\":             {Link: "http://a/"},
		"\x1b]8;;http://a/\x1b\\\x1b[1m\x1b[m":    {Link: "http://a/"},
		"\x1b]8;;http://a/\x1b\\\x1b]8;;\x1b\\":   {},
		"\x1b]8;;http://a/b;c\x07":                {Link: "http://a/b;c"},
		"\x1b[31m\x1b7\x1b[32m\x1b8":              {Foreground: "1"},
		"\x1b[>4;1m":                              {},
		"\x1b[;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;1m": {},
	} {
		s := New(Config{Rows: 2, Cols: 4})
		s.Write([]byte(in + "x"))
		run := api.ScreenRun{Text: "x", Width: 1}
		if want != (api.ScreenStyle{}) {
			run.Style = &want
		}
		if d := cmp.Diff([]api.ScreenRun{run}, s.Cells().Lines[0].Runs); d != "" {
			t.Errorf("%q: %s", in, d)
		}
		restored := New(Config{Rows: 2, Cols: 4})
		restored.Write(s.ANSI(0))
		if d := difference(s, restored); d != "" {
			t.Errorf("%q restored: %s", in, d)
		}
	}
}

func TestCells(t *testing.T) {
	s := New(Config{Rows: 3, Cols: 6})
	s.Write([]byte("\x1b]2;ti\x07a\x1b[1;31m日\x1b[m b\x1b[2;3H\x1b[44m\x1b[2X\x1b[m\x1b[?25l\x1b[5 q\x1b[?1h\x1b=\x1b[?2004h\x1b[?1004h\x1b[?1002h\x1b[?1006h\x1b[?2026h"))
	got, err := json.Marshal(s.Cells())
	want := `{"rows":3,"cols":6,"cursor":{"row":1,"column":2,"hidden":true,"style":{"shape":"bar","blink":true}},` +
		`"modes":{"application_cursor":true,"application_keypad":true,"bracketed_paste":true,"focus_events":true,"mouse":1002,"mouse_encoding":1006,"synchronized":true},` +
		`"title":"ti","lines":[{"runs":[{"text":"a","width":1},{"text":"日","width":2,"style":{"fg":"1","bold":true}},{"text":" b","width":2}]},` +
		`{"runs":[{"text":"  ","width":2},{"text":"  ","width":2,"style":{"bg":"4"}}]},{}]}`
	if err != nil || string(got) != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
	}
	s.Write([]byte("\x1b[!p"))
	if m, c := s.Modes(), s.Cursor(); m.AppCursor || m.AppKeypad || !m.BracketedPaste || c.Hidden {
		t.Errorf("after a soft reset: %+v, %+v", m, c)
	}
	s.Write([]byte("\x1bc"))
	if d := difference(s, New(Config{Rows: 3, Cols: 6})); d != "" {
		t.Errorf("after a reset: %s", d)
	}
}

// Erasing leaves the background color and nothing else.
func TestBackgroundColorErase(t *testing.T) {
	for _, in := range []string{"\x1b[2J", "\x1b[K", "\x1b[4X", "\x1b[4P", "\x1b[4@", "\x1b[M", "\x1b[L", "\x1b[S", "\x1bM", "\n\n", "\x1b[?1049h"} {
		s := New(Config{Rows: 2, Cols: 4})
		s.Write([]byte("\x1b[1;31;44m" + in))
		want := api.ScreenStyle{Background: "4"}
		found := false
		for _, l := range s.Cells().Lines {
			for _, r := range l.Runs {
				found = true
				if r.Style == nil || *r.Style != want {
					t.Errorf("%q: %+v", in, r.Style)
				}
			}
		}
		if !found {
			t.Errorf("%q leaves no background", in)
		}
	}
}

func TestAnswers(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[c":                           "\x1b[?62;6;22c",
		"\x1b[0c":                          "\x1b[?62;6;22c",
		"\x1b[1c":                          "",
		"\x1bZ":                            "\x1b[?62;6;22c",
		"\x1b[>c":                          "\x1b[>1;10;0c",
		"\x1b[=c":                          "\x1bP!|54524C00\x1b\\",
		"\x1b[>q":                          "\x1bP>|TRL\x1b\\",
		"\x1b[5n":                          "\x1b[0n",
		"\x1b[3;4H\x1b[6n":                 "\x1b[3;4R",
		"\x1b[3;4H\x1b[?6n":                "\x1b[?3;4R",
		"\x1b[2;4r\x1b[?6h\x1b[6n":         "\x1b[1;1R",
		"0123456789\x1b[6n":                "\x1b[1;10R",
		"\x1b[?1$p\x1b[?1h\x1b[?1$p":       "\x1b[?1;2$y\x1b[?1;1$y",
		"\x1b[?7$p\x1b[?25$p\x1b[?8$p":     "\x1b[?7;1$y\x1b[?25;1$y\x1b[?8;3$y",
		"\x1b[?2026$p\x1b[?12345$p":        "\x1b[?2026;2$y\x1b[?12345;0$y",
		"\x1b[?1002h\x1b[?1002$p":          "\x1b[?1002;1$y",
		"\x1b[?1049h\x1b[?1049$p":          "\x1b[?1049;1$y",
		"\x1b[4$p\x1b[20$p\x1b[99$p":       "\x1b[4;2$y\x1b[20;2$y\x1b[99;0$y",
		"\x1bP$qm\x1b\\":                   "\x1bP1$r0m\x1b\\",
		"\x1b[1;31m\x1bP$qm\x1b\\":         "\x1bP1$r0;1;31m\x1b\\",
		"\x1b[2;3r\x1bP$qr\x1b\\":          "\x1bP1$r2;3r\x1b\\",
		"\x1bP$q q\x1b\\":                  "\x1bP1$r2 q\x1b\\",
		"\x1bP$qevil\x1b\\":                "\x1bP0$r\x1b\\",
		"\x1bP+q544e\x1b\\":                "\x1bP0+r\x1b\\",
		"\x1b[14t\x1b[16t\x1b[18t":         "\x1b[4;80;80t\x1b[6;16;8t\x1b[8;5;10t",
		"\x1b]2;evil\x07\x1b[21t":          "\x1b]l\x1b\\",
		"\x1b]1;evil\x07\x1b[20t":          "\x1b]L\x1b\\",
		"\x1b]10;?\x07":                    "\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
		"\x1b]11;?\x1b\\":                  "\x1b]11;rgb:0000/0000/0000\x1b\\",
		"\x1b]11;#102030\x07\x1b]11;?\x07": "\x1b]11;rgb:1010/2020/3030\x1b\\",
		"\x1b]11;#102030\x07\x1b]111\x07\x1b]11;?\x07": "\x1b]11;rgb:0000/0000/0000\x1b\\",
		"\x1b]10;?;?\x07":                               "\x1b]10;rgb:ffff/ffff/ffff\x1b\\\x1b]11;rgb:0000/0000/0000\x1b\\",
		"\x1b]4;1;?;196;?\x07":                          "\x1b]4;1;rgb:cdcd/0000/0000\x1b\\\x1b]4;196;rgb:ffff/0000/0000\x1b\\",
		"\x1b]4;1;rgb:1/22/3333\x07\x1b]4;1;?\x07":      "\x1b]4;1;rgb:1111/2222/3333\x1b\\",
		"\x1b]4;1;#123\x07\x1b]104;1\x07\x1b]4;1;?\x07": "\x1b]4;1;rgb:cdcd/0000/0000\x1b\\",
		"\x1b]52;c;?\x07":                               "",
		"\x1b]4;999;?\x07\x1b]4;x;?\x07\x1b]10;red\x07": "",
		"\x1b[?996n\x1b[?15n":                           "\x1b[?997;1n\x1b[?13n",
	} {
		s := New(Config{Rows: 5, Cols: 10})
		s.Write([]byte(in))
		if got := string(s.Answers()); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
		if a := s.Answers(); a != nil {
			t.Errorf("%q: answered twice: %q", in, a)
		}
	}
	s := New(Config{})
	s.Write(bytes.Repeat([]byte("\x1b[c"), 100_000))
	if n := len(s.Answers()); n > maxAnswers+len(primaryAttributes) {
		t.Errorf("%d bytes of answers are kept", n)
	}
}

// Nothing that a program writes comes back as input.
func TestAnswersRepeatNothing(t *testing.T) {
	s := New(Config{})
	secret := "rm -rf"
	for _, head := range []string{"\x1b]0;", "\x1b]1;", "\x1b]2;", "\x1b]7;", "\x1b]8;;", "\x1b]52;c;", "\x1b]4;1;", "\x1b]11;", "\x1bP$q", "\x1bP+q", "\x1bP", "\x1b_", "\x1b^", "\x1bX"} {
		s.Write([]byte(head + secret + "\x1b\\"))
	}
	s.Write([]byte(secret + "\x1b[20t\x1b[21t\x1b]0;?\x07\x1b]2;?\x07\x1b]7;?\x07\x1b]52;c;?\x07\x1b[>q\x1b[=c\x1bP$qm\x1b\\\x1b]4;1;?\x07\x1b]11;?\x07"))
	if a := s.Answers(); bytes.Contains(a, []byte("rm")) || len(a) == 0 {
		t.Errorf("%q", a)
	}
}

func TestTitles(t *testing.T) {
	s := New(Config{})
	s.Write([]byte("\x1b]0;both\x07\x1b[22t\x1b]2;ti\x01tle\x1b\\\x1b]1;icon\x07\x1b]7;file://host/dir\x07"))
	if s.Title() != "title" || s.IconName() != "icon" || s.Directory() != "file://host/dir" {
		t.Errorf("%q, %q, %q", s.Title(), s.IconName(), s.Directory())
	}
	s.Write([]byte("\x1b[23t\x1b[23t"))
	if s.Title() != "both" || s.IconName() != "both" {
		t.Errorf("%q, %q", s.Title(), s.IconName())
	}
	s.Write([]byte("\x1b]2;" + strings.Repeat("é", maxTitle) + "\x07"))
	if n := len(s.Title()); n > maxTitle || n < maxTitle-1 {
		t.Errorf("a title of %d bytes", n)
	}
}

func TestScrollback(t *testing.T) {
	s := New(Config{Rows: 2, Cols: 10, Scrollback: 3})
	for i := range 10 {
		fmt.Fprintf(s, "%d\r\n", i)
	}
	if got, want := s.Text(100), "6\n7\n8\n9"; got != want || s.Scrollback() != 3 {
		t.Errorf("got %q of %d, want %q", got, s.Scrollback(), want)
	}
	if got, want := s.Text(1), "8\n9"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	restored := New(Config{Rows: 2, Cols: 10, Scrollback: 3})
	restored.Write(s.ANSI(2))
	if got, want := restored.Text(100), "7\n8\n9"; got != want {
		t.Errorf("restored: got %q, want %q", got, want)
	}
	// Neither the alternate screen nor lines inside of a region are kept.
	s.Write([]byte("\x1b[?1049h\n\n\n\n\x1b[?1049l"))
	if s.Text(100) != "6\n7\n8\n9" {
		t.Errorf("%q", s.Text(100))
	}
	s.Write([]byte("\x1b[3J"))
	if got, want := s.Text(100), "9"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestResize(t *testing.T) {
	for _, c := range []struct {
		name, in   string
		rows, cols int
		want       string
		y, x       int
	}{
		{"wider", "ab", 3, 20, "ab", 0, 2},
		{"narrower cuts", "0123456789\r\nx", 3, 4, "0123\nx", 1, 1},
		{"narrower cuts a wide one", "012日", 3, 4, "012", 0, 3},
		{"higher brings lines back", "1\r\n2\r\n3\r\n4\r\n5", 5, 10, "1\n2\n3\n4\n5", 4, 1},
		{"higher with room below", "1\r\n2\r\n3\r\n4\r\n5\x1b[1;2H", 5, 10, "3\n4\n5", 0, 1},
		{"lower keeps the line of the cursor", "1\r\n2\r\n3", 1, 10, "3", 0, 1},
		{"lower drops lines below", "1\r\n2\r\n3\x1b[1;2H", 1, 10, "1", 0, 1},
		{"zero is one by two", "ab", 0, 0, "ab", 0, 1},
		{"alternate", "main\x1b[?1049h\x1b[3;1Halt", 1, 10, "alt", 0, 3},
		{"pending", "0123456789", 3, 12, "0123456789", 0, 9},
	} {
		s := New(Config{Rows: 3, Cols: 10, Scrollback: 10})
		s.Write([]byte(c.in))
		s.Resize(c.rows, c.cols)
		s.check(t)
		if got := s.Text(0); got != c.want || s.y != c.y || s.x != c.x {
			t.Errorf("%s: got %q at %d,%d, want %q at %d,%d", c.name, got, s.y, s.x, c.want, c.y, c.x)
		}
	}
	// Shrinking and growing again loses only what was cut.
	s := New(Config{Rows: 3, Cols: 10, Scrollback: 10})
	s.Write([]byte("1\r\n2\r\n3\r\n4"))
	s.Resize(1, 10)
	s.Resize(3, 10)
	if got := s.Text(9); got != "1\n2\n3\n4" || s.y != 2 {
		t.Errorf("%q, %d", got, s.y)
	}
	// The cursor saved before a full-screen program is where it was.
	s = New(Config{Rows: 3, Cols: 10, Scrollback: 10})
	s.Write([]byte("a\r\nb\r\n$ \x1b[?1049h\x1b[2;2H"))
	s.Resize(2, 10)
	s.Write([]byte("\x1b[?1049lx"))
	if got := s.Text(9); got != "a\nb\n$ x" {
		t.Errorf("%q", got)
	}
}

// How a stream is split makes no difference.
func TestSplits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, data := range corpus(t) {
		whole := write(corpusRows, corpusCols, data)
		answers := whole.Answers()
		for try := range 6 {
			s := New(Config{Rows: corpusRows, Cols: corpusCols, Scrollback: 1000})
			for rest := data; len(rest) > 0; {
				n := 1 // byte by byte first
				if try > 0 {
					n = 1 + random.IntN(min(len(rest), 1<<(2*try)))
				}
				s.Write(rest[:n])
				rest = rest[n:]
			}
			if d := difference(whole, s); d != "" {
				t.Errorf("%s:\n%s", name, d)
			}
			if got := s.Answers(); !bytes.Equal(got, answers) {
				t.Errorf("%s: answers %q, want %q", name, got, answers)
			}
			if s.Text(1000) != whole.Text(1000) {
				t.Errorf("%s: the scrollback differs", name)
			}
		}
	}
}

// A snapshot restores the screen wherever it is taken.
func TestSnapshotRestores(t *testing.T) {
	for name, data := range corpus(t) {
		for _, end := range cuts(len(data)) {
			s := write(corpusRows, corpusCols, data[:end])
			snapshot := s.ANSI(s.Scrollback())
			restored := write(corpusRows, corpusCols, snapshot)
			if d := difference(s, restored); d != "" {
				t.Errorf("%s at %d:\n%s%q", name, end, d, snapshot)
			}
			if got, want := restored.Text(1000), s.Text(1000); got != want {
				t.Errorf("%s at %d: the scrollback is %q, want %q", name, end, got, want)
			}
		}
	}
}

// The intern tables are bounded, whatever a program does, and keep what is on the
// screen.
func TestInternTablesAreBounded(t *testing.T) {
	s := New(Config{Rows: 10, Cols: 40, Scrollback: 50})
	for i := range 40_000 {
		fmt.Fprintf(s, "\x1b[58;2;%d;%d;%dm\x1b]8;;http://host/%d\x1b\\a%c%c", i&255, i>>8&255, i>>16, i, 0x300+i%100, 0x300+i/100%100)
	}
	s.check(t)
	fmt.Fprintf(s, "\x1b[2J\x1b[3J\x1b[H")
	for i := range 10_000 { // a program that uses few entries soon gets them again
		fmt.Fprintf(s, "\x1b[H\x1b]8;;http://few/%d\x1b\\e\u0301", i%3)
	}
	run := s.Cells().Lines[0].Runs[0]
	if run.Text != "e\u0301" || run.Style.Link != "http://few/0" {
		t.Errorf("%+v", run)
	}
}
