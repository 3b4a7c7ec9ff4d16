package lineedit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/internal/vt"
)

// desk is an editor with the terminal that shows it.
type desk struct {
	*Editor
	t      *testing.T
	screen *vt.Screen
}

func newDesk(t *testing.T, rows, cols int, history ...string) *desk {
	d := &desk{t: t, screen: vt.New(vt.Config{Rows: rows, Cols: cols})}
	h := &History{}
	for _, line := range history {
		h.Add(line)
	}
	d.Editor = New(Config{
		Prompt: "$ ", Rows: rows, Cols: cols, History: h,
		Incomplete: func(text string) bool { return strings.HasSuffix(text, "do") },
	})
	return d
}

// typed types text, paints after each key, and returns the last outcome.
func (d *desk) typed(text string) (last Outcome) {
	for b := []byte(text); len(b) > 0; {
		key, n := Decode(b)
		if n == 0 {
			d.t.Fatalf("%q is not complete", b)
		}
		b = b[n:]
		last = d.Handle(key)
		d.write(d.Paint())
	}
	return last
}

func (d *desk) write(b []byte) { _, _ = d.screen.Write(b) } // it never fails

func (d *desk) expect(screen string, row, col int) {
	d.t.Helper()
	got := strings.TrimRight(d.screen.Text(0), "\n ")
	if cursor := d.screen.Cursor(); got != screen || cursor.Row != row || cursor.Column != col {
		d.t.Errorf("the screen is\n%s\nwith the cursor at %d,%d; want\n%s\nat %d,%d", got, cursor.Row, cursor.Column, screen, row, col)
	}
}

const (
	up, down, left, right   = "\x1b[A", "\x1b[B", "\x1b[D", "\x1b[C"
	home, end, del          = "\x1b[H", "\x1b[F", "\x1b[3~"
	wordLeft, wordRight     = "\x1b[1;5D", "\x1b[1;5C"
	ctrlA, ctrlC, ctrlD     = "\x01", "\x03", "\x04"
	ctrlE, ctrlG, ctrlK     = "\x05", "\x07", "\x0b"
	ctrlL, ctrlR, ctrlU     = "\x0c", "\x12", "\x15"
	ctrlW, ctrlY, backspace = "\x17", "\x19", "\x7f"
)

func TestKeys(t *testing.T) {
	for typed, want := range map[string]string{
		"abc" + left + left + "x":                  "ax|bc",
		"abc" + backspace + backspace:              "a|",
		"abc" + home + del + "x" + end + "y":       "xbcy|",
		"abc" + ctrlA + ctrlD + right + "x":        "bx|c",
		"one two" + wordLeft + "x":                 "one x|two",
		"one two" + "\x1bb\x1bb" + "x":             "x|one two",
		"one two" + ctrlA + wordRight + "x":        "onex| two",
		"one /two.x" + ctrlW + "y":                 "one y|",
		"one /two.x" + "\x1b\x7f" + "y":            "one /two.y|",
		"one two" + ctrlA + "\x1bd":                "| two",
		"one two" + ctrlU + "x" + ctrlY:            "xone two|",
		"one two" + "\x1bb" + ctrlK + ctrlY:        "one two|",
		"größe日" + left + left + backspace:         "grö|e日",
		"a\xffb":                                   "ab|",
		"ab\x1b[1;9Zc\x1bOP\x1b\x1bd":              "abc|", // keys without a meaning
		PasteBegin + "a\r\nb\rc\n" + PasteEnd:      "a\nb\nc|",
		"x" + left + PasteBegin + "a\n" + PasteEnd: "a\n|x",
		"for do\rx" + up + "y":                     "fy|or do\nx",
		"for do\rx" + up + down + ctrlA + "y":      "for do\ny|x",
		"for do\rx" + ctrlU + backspace:            "for do|",
		"\ta":                                      "\ta|",
	} {
		d := newDesk(t, 10, 40)
		d.typed(typed)
		if got := d.BeforeCursor() + "|" + d.Text()[len(d.BeforeCursor()):]; got != want {
			t.Errorf("%q makes %q, want %q", typed, got, want)
		}
	}
}

func TestOutcomes(t *testing.T) {
	for typed, want := range map[string]Outcome{
		"a\r": Accepted, "a\n": Accepted, "for do\r": Editing, "for do\rx\r": Accepted, "a" + ctrlC: Interrupted, "for do\r" + ctrlC: Interrupted,
		ctrlD: Ended, "a" + ctrlD: Editing, "for do\r" + ctrlD: Accepted, "a\t": Completing, " \t": Editing,
		"a" + ctrlR + "\r": Accepted, "a" + ctrlR + ctrlC: Editing,
	} {
		if got := newDesk(t, 10, 40).typed(typed); got != want {
			t.Errorf("%q: %d, want %d", typed, got, want)
		}
	}
}

// A key that has arrived in part is not decoded yet, wherever it is cut.
func TestPartsOfKeys(t *testing.T) {
	for _, key := range []string{up, wordLeft, "ö", "日", "\x1bd", PasteBegin + "a\nb" + PasteEnd} {
		for i := 1; i < len(key); i++ {
			if got, n := Decode([]byte(key[:i])); n != 0 {
				t.Errorf("%q is decoded as %+v of %d bytes", key[:i], got, n)
			}
		}
		if got, n := Decode([]byte(key + "x")); n < len(key) {
			t.Errorf("%q is decoded as %+v of %d bytes", key, got, n)
		}
	}
	if k, n := Decode([]byte(PasteBegin + strings.Repeat("x", maxPaste))); !k.Paste || n != len(PasteBegin)+maxPaste {
		t.Errorf("a paste without an end has %d bytes", n)
	}
}

func FuzzDecode(f *testing.F) {
	for _, key := range []string{up, PasteBegin + "a" + PasteEnd, "\x1b[200", "\xe6\x97", "abc\r"} {
		f.Add([]byte(key))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e := New(Config{Prompt: "$ ", Rows: 5, Cols: 10, History: &History{}})
		for len(b) > 0 {
			key, n := Decode(b)
			if n < 0 || n > len(b) {
				t.Fatalf("%d of %d bytes", n, len(b))
			}
			if n == 0 {
				return
			}
			b = b[n:]
			e.Handle(key)
			e.Paint()
		}
	})
}

func TestHistory(t *testing.T) {
	d := newDesk(t, 10, 40, "one", "", " secret", "two", "two", "for do\ndone")
	for _, step := range []struct{ keys, want string }{
		{"own", "own"},
		{up, "for do\ndone"},
		{up, "for do\ndone"},
		{up, "two"},
		{up, "one"},
		{up, "one"},
		{down, "two"},
		{down, "for do\ndone"},
		{down, "own"},
		{down, "own"},
	} {
		if d.typed(step.keys); d.Text() != step.want {
			t.Errorf("%q shows %q, want %q", step.keys, d.Text(), step.want)
		}
	}
	h := History{}
	for i := range maxHistory + 1 {
		h.Add(fmt.Sprint(i))
	}
	if len(h.lines) != maxHistory || h.lines[0] != "1" {
		t.Errorf("%d lines, the oldest is %q", len(h.lines), h.lines[0])
	}
}

func TestSearch(t *testing.T) {
	d := newDesk(t, 10, 60, "make all", "git log", "make test", "ls")
	d.typed("own" + ctrlR + "ma")
	d.expect("(search: ma) make test", 0, len("(search: ma) "))
	d.typed(ctrlR)
	d.expect("(search: ma) make all", 0, len("(search: ma) "))
	d.typed(ctrlR)
	d.expect("(no match: ma) make all", 0, len("(no match: ma) "))
	d.typed(backspace + "n")
	d.expect("(no match: mn) make test", 0, len("(no match: mn) "))
}

func TestSearchEnds(t *testing.T) {
	for keys, want := range map[string]string{
		"own" + ctrlR + "gi" + ctrlG:                     "own",
		"own" + ctrlR + "gi" + ctrlC:                     "own",
		"own" + ctrlR + "nothing" + ctrlG:                "own",
		"own" + ctrlR + "gi" + end + "x":                 "git logx",
		"own" + ctrlR + "gi\x1b\x1b" + home:              "git log",
		"own" + ctrlR + "mak" + backspace + "":           "make test",
		"own" + ctrlR + "gi" + up:                        "make all",
		"own" + ctrlR + "gi" + down + down + down + down: "own",
	} {
		d := newDesk(t, 10, 60, "make all", "git log", "make test", "ls")
		if d.typed(keys); d.Text() != want {
			t.Errorf("%q ends with %q, want %q", keys, d.Text(), want)
		}
	}
}

// Rows wrap where the terminal wraps them, with wide characters and without.
func TestPaint(t *testing.T) {
	d := newDesk(t, 6, 10)
	d.typed("abcdefgh")
	d.expect("$ abcdefgh", 1, 0)
	d.typed("ij" + home)
	d.expect("$ abcdefgh\nij", 0, 2)
	d.typed(end + ctrlU + "日本語日本")
	d.expect("$ 日本語日\n本", 1, 2)
	d.typed(home + "a")
	d.expect("$ a日本語\n日本", 0, 3)
	d.typed(ctrlE + ctrlU + "do\rx")
	d.expect("$ do\n> x", 1, 3)
	d.typed(ctrlL)
	d.expect("$ do\n> x", 1, 3)
	if b := d.Paint(); b != nil {
		t.Errorf("%q is painted without a change", b)
	}
	d.write(d.Finish("^C"))
	d.expect("$ do\n> x^C", 2, 0)
}

// What was pasted can't act on the terminal.
func TestPaintIsSafe(t *testing.T) {
	d := newDesk(t, 6, 60)
	d.typed(PasteBegin + "a\x1b]0;title\ab\u202ec\x9bz\t|" + PasteEnd)
	if d.screen.Title() != "" || d.screen.Bells() > 0 {
		t.Error("the paste has set the title or rung the bell")
	}
	d.expect(`$ a\x1b]0;title\ab\u202ec\ufffdz        |`, 0, 41)
}

// A text that is longer than the screen is shown around its cursor.
func TestLongText(t *testing.T) {
	d := newDesk(t, 4, 20)
	d.typed(PasteBegin + "1\n2\n3\n4\n5" + PasteEnd)
	d.expect("> 3\n> 4\n> 5", 2, 3)
	d.typed(up + up + up)
	d.expect("> 2\n> 3\n> 4", 0, 3)
	d.typed(up)
	d.expect("$ 1\n> 2\n> 3", 0, 3)
}

// After a resize the line is painted over the rows that the terminal has wrapped
// again.
func TestResize(t *testing.T) {
	d := newDesk(t, 6, 20)
	d.typed("a line of words")
	for _, cols := range []int{12, 9, 30} {
		d.screen = vt.New(vt.Config{Rows: 6, Cols: cols})
		d.write([]byte("before\r\n$ a line of words"))
		d.Resize(6, cols)
		d.typed(home + end)
		d.expect("before\n"+strings.Join(wrapped("$ a line of words", cols), "\n"), 1+17/cols, 17%cols)
	}
}

// wrapped returns the rows of a text without blanks at their ends.
func wrapped(text string, cols int) (rows []string) {
	for ; len(text) > cols; text = text[cols:] {
		rows = append(rows, strings.TrimRight(text[:cols], " "))
	}
	return append(rows, text)
}

func TestList(t *testing.T) {
	d := newDesk(t, 8, 30)
	d.typed("ls x" + left)
	d.write(d.List([]string{"alpha", "beta/", "new\nline", "日本"}))
	d.write(d.Paint())
	d.expect("$ ls x\nalpha      new\\nline\nbeta/      日本\n$ ls x", 3, 5)
	var many []string
	for i := range 50 {
		many = append(many, fmt.Sprintf("name-number-%02d", i))
	}
	rows := columns(many, 30, 5)
	if len(rows) != 6 || rows[0] != "name-number-00  name-number-05" && rows[0] != "name-number-00" || !strings.HasPrefix(rows[5], "… and ") {
		t.Errorf("%q", rows)
	}
}
