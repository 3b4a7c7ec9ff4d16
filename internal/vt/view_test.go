package vt

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// viewed is a real terminal and the view that paints it; the terminal is a Screen
// too.
type viewed struct {
	view *View
	real *Screen
}

func newViewed(rows, cols int) *viewed {
	v := &viewed{view: NewView(rows, cols), real: New(Config{Rows: rows, Cols: cols})}
	v.real.Write(v.view.Begin())
	return v
}

// paint shows s, and describes what the terminal then shows wrongly.
func (v *viewed) paint(s *Screen, p Painting) string {
	v.real.Write(v.view.Paint(s, p))
	var wrong strings.Builder
	top, left, rows, cols := v.view.Shows()
	for y := range rows {
		for x := range cols {
			want := blankCell
			if top+y < s.rows && left+x < s.cols {
				c := s.on.lines[top+y].cells[left+x]
				if c.ch&chTail != 0 && x == 0 || c.ch&chWide != 0 && x == cols-1 {
					c.ch = ' ' // half of a character
				}
				want = s.describe(c)
			}
			if got := v.real.describe(v.real.on.lines[y].cells[x]); got != want && wrong.Len() < 1000 {
				fmt.Fprintf(&wrong, "row %d column %d: %q, want %q\n", y, x, got, want)
			}
		}
	}
	got, want := v.real.Cursor(), s.Cursor()
	want.Row, want.Column, want.PendingWrap = want.Row-top, want.Column-left, false
	inside := want.Row >= 0 && want.Row < rows && want.Column >= 0 && want.Column < cols
	switch {
	case inside:
	case want.Hidden || left == 0 && s.x == s.cols-1:
		want.Hidden = true // the left end of the rows is shown in its place
	default:
		fmt.Fprintf(&wrong, "the cursor is outside of the shown part\n")
	}
	if got.Hidden && want.Hidden {
		got.Row, got.Column, got.PendingWrap = want.Row, want.Column, false
	}
	if got != want {
		fmt.Fprintf(&wrong, "cursor %+v, want %+v\n", got, want)
	}
	if answers := v.real.Answers(); len(answers) > 0 {
		fmt.Fprintf(&wrong, "the terminal answers %q\n", answers)
	}
	if v.view.Paint(s, p) != nil {
		fmt.Fprintf(&wrong, "a second paint is not empty\n")
	}
	return wrong.String()
}

// Whatever programs write, on terminals of any size: painting differences results
// in what is on the screen, as far as it is visible.
func TestViewShowsTheScreen(t *testing.T) {
	total := 3000
	if os.Getenv("TRL_LONG") == "1" {
		total = 100_000
	}
	for i := range total {
		random := rand.New(rand.NewPCG(uint64(i), 11))
		size := func() (rows, cols int) { return 1 + random.IntN(8), 2 + random.IntN(14) }
		rows, cols := size()
		s := New(Config{Rows: rows, Cols: cols})
		rows, cols = size()
		v := newViewed(rows, cols)
		var trace []string
		for range 8 {
			switch random.IntN(8) {
			case 0: // the session's terminal is resized
				rows, cols = size()
				s.Resize(rows, cols)
				trace = append(trace, fmt.Sprintf("resize %d %d", rows, cols))
			case 1: // the person's terminal is resized
				rows, cols = size()
				v.real.Resize(rows, cols)
				v.view.Resize(rows, cols)
				trace = append(trace, fmt.Sprintf("view %d %d", rows, cols))
			case 2: // the screen is fetched again
				again := New(Config{Rows: s.rows, Cols: s.cols})
				again.Write(s.ANSI(0))
				s = again
			}
			out := plausibleOutput(random, 5)
			trace = append(trace, fmt.Sprintf("%q", out))
			s.Write(out)
			s.palette = palette{} // TestViewResolvesColors
			if wrong := v.paint(s, Painting{Typing: true}); wrong != "" {
				t.Fatalf("case %d: %s%s", i, wrong, strings.Join(trace, "\n"))
			}
			got, want := v.real.Modes(), s.Modes()
			want.Alternate, want.Synchronized = true, false
			if got != want || v.real.title != printable(s.title) {
				t.Fatalf("case %d: modes %+v, want %+v; title %q, want %q\n%s", i, got, want, v.real.title, s.title, strings.Join(trace, "\n"))
			}
		}
		v.real.Write(v.view.End())
		if m := v.real.Modes(); m != (Modes{}) || v.real.Cursor().Hidden || v.real.style != (CursorStyle{}) ||
			!v.real.modes.on(autoWrap) || v.real.modes.on(altScroll) || v.real.pen != (pen{}) || v.real.title != "" {
			t.Fatalf("case %d: after the end: %+v\n%s", i, v.real.modes, strings.Join(trace, "\n"))
		}
	}
}

// A terminal that is narrower than the screen shows the left end of the rows,
// unless someone types further right.
func TestViewShowsTheLeftEnd(t *testing.T) {
	row := []byte("\x1b[HPID USER COMMAND")
	for name, c := range map[string]struct{ out, want string }{
		"at the left":         {"\x1b[2;1H", "PID USER C"},
		"a row that is full":  {"", "PID USER C"},
		"a hidden cursor":     {"\x1b[?25l\x1b[2;14H", "PID USER C"},
		"typing at the right": {"\x1b[2;13Hab", "SER COMMAN"},
		"and back":            {"\x1b[2;13Hab\x1b[2;1H", "PID USER C"},
	} {
		s := New(Config{Rows: 2, Cols: 16})
		v := newViewed(2, 10)
		s.Write(row)
		v.paint(s, Painting{})
		for _, b := range []byte(c.out) {
			s.Write([]byte{b})
			v.paint(s, Painting{})
		}
		if got, _, _ := strings.Cut(v.real.Text(0), "\n"); strings.TrimSpace(got) != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestViewResolvesColors(t *testing.T) {
	s := write(2, 10, []byte("\x1b]4;1;#010203\x1b\\\x1b]11;#0a0b0c\x1b\\\x1b[31mred"))
	v := newViewed(2, 10)
	v.real.Write(v.view.Paint(s, Painting{}))
	run := v.real.Cells().Lines[0].Runs[0]
	if run.Style.Foreground != "#010203" || run.Style.Background != "#0a0b0c" {
		t.Errorf("%+v", run.Style)
	}
	if len(v.real.palette.indexed) != 0 || v.real.palette.special != [3]uint32{} {
		t.Error("the colors of the real terminal were changed")
	}
}

// A read-only view does not set the modes that change what keys send.
func TestViewOfAReader(t *testing.T) {
	s := write(2, 10, []byte("\x1b[?1h\x1b=\x1b[?2004h\x1b[?1003h\x1b[?1006h\x1b[?1004h\x1b[5 q\x1b]2;a title\x1b\\"))
	v := newViewed(2, 10)
	if wrong := v.paint(s, Painting{}); wrong != "" {
		t.Error(wrong)
	}
	if got := v.real.Modes(); got != (Modes{Alternate: true}) || v.real.title != "a title" {
		t.Errorf("%+v, title %q", got, v.real.title)
	}
	if wrong := v.paint(s, Painting{Typing: true}); wrong != "" {
		t.Error(wrong)
	}
	if got := v.real.Modes(); !got.BracketedPaste || !got.AppCursor || !got.AppKeypad || !got.FocusEvents || got.Mouse != 1003 || got.MouseEncoding != 1006 {
		t.Errorf("typing: %+v", got)
	}
}

func TestViewStatusAndNotice(t *testing.T) {
	s := write(2, 12, []byte("first\r\nsecond\x1b[H"))
	rows := func(v *viewed, p Painting) string {
		v.real.Write(v.view.Paint(s, p))
		return v.real.Text(0)
	}
	spare := newViewed(3, 12)
	for _, c := range []struct {
		painting Painting
		want     string
	}{
		{Painting{Status: "status"}, "first\nsecond\nstatus"},
		{Painting{Status: "status", Notice: "look"}, "first\nsecond\n look"},
		{Painting{Notice: "too long \x1b[2Jfor it"}, "first\nsecond\n too long […"},
		{Painting{Status: "status"}, "first\nsecond\nstatus"},
	} {
		if got := rows(spare, c.painting); got != c.want {
			t.Errorf("%+v: %q, want %q", c.painting, got, c.want)
		}
	}
	full := newViewed(2, 12)
	if got := rows(full, Painting{Status: "status"}); got != "first\nsecond" {
		t.Errorf("a status without a row for it: %q", got)
	}
	if got := rows(full, Painting{Notice: "日本語日本語日"}); got != "first\n 日本語日本…" {
		t.Errorf("a notice: %q", got)
	}
	s.Write([]byte("\x1b[2;3H"))
	if got := rows(full, Painting{Notice: "look"}); got != " look\nsecond" {
		t.Errorf("a notice while the last row is being written: %q", got)
	}
	if got := rows(full, Painting{}); got != "first\nsecond" {
		t.Errorf("after the notice: %q", got)
	}
}

// Small changes cost little, and no changes cost nothing.
func TestViewPaintsDifferences(t *testing.T) {
	s := write(50, 200, bytes.Repeat([]byte("some text "), 900))
	v := NewView(50, 200)
	if n := len(v.Paint(s, Painting{})); n < 9000 {
		t.Errorf("%d bytes for 9000 characters", n)
	}
	s.Write([]byte("\x1b[7;9Hx"))
	if got := v.Paint(s, Painting{}); len(got) > 64 {
		t.Errorf("one character: %q", got)
	}
}

// ResetSequence restores a terminal that got a program's output.
func TestResetSequence(t *testing.T) {
	if undo := write(3, 10, []byte("some text\r\n")).ResetSequence(); undo != nil {
		t.Errorf("nothing to undo: %q", undo)
	}
	for i := range 2000 {
		out := plausibleOutput(rand.New(rand.NewPCG(uint64(i), 13)), 10)
		// An incomplete sequence, and a mode that no program sets, are not
		// undone.
		out = append(bytes.ReplaceAll(out, []byte("\x1b[20h"), nil), "\x1b\\\x1b[m"...)
		s := write(5, 10, out)
		s.Write(s.ResetSequence())
		if s.modes.flags&^(newLine|reverseWrap|synchronized) != newModes().flags || s.modes.tracking != 0 || s.style != (CursorStyle{}) ||
			s.on != &s.main || s.on.narrow(s.cols) || s.on.top > 0 || s.on.bottom < 4 || s.pen != (pen{}) || s.sets.gl != 0 || s.sets.g[0] != 0 {
			t.Fatalf("%q: modes %+v, style %+v, margins %+v, pen %+v", out, s.modes, s.style, [2]int{s.on.top, s.on.bottom}, s.pen)
		}
	}
}
