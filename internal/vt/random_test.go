package vt

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// difference describes how two screens differ; "" means in nothing that a person
// or a program could notice. It ignores whether a line continues the one above:
// that can't be restored if that line is gone.
func difference(a, b *Screen) string {
	var d strings.Builder
	compare := func(what string, x, y any) {
		if !cmp.Equal(x, y, cmp.AllowUnexported(savedCursor{}, pen{}, extra{}, charsets{}, modes{}, palette{})) {
			fmt.Fprintf(&d, "%s: %+v and %+v\n", what, x, y)
		}
	}
	grids := func(what string, g, h *grid) {
		compare(what+" margins", [4]int{g.top, g.bottom, g.left, g.right}, [4]int{h.top, h.bottom, h.left, h.right})
		compare(what+" tabs", g.tabs, h.tabs)
		compare(what+" saved cursor", g.saved, h.saved)
		for y := range g.lines {
			for x := range g.lines[y].cells {
				c, e := g.lines[y].cells[x], h.lines[y].cells[x]
				if c == e && c.ch&chCluster == 0 && c.extra() == 0 {
					continue
				}
				if i, j := a.describe(c), b.describe(e); (i != j || (c.attrs^e.attrs)&protected != 0) && d.Len() < 2000 {
					compare(fmt.Sprintf("%s row %d column %d", what, y, x), i, j)
				}
			}
		}
	}
	grids("main", &a.main, &b.main)
	if a.on == &a.alt && b.on == &b.alt {
		grids("alternate", &a.alt, &b.alt)
	}
	compare("cursor", a.Cursor(), b.Cursor())
	compare("modes", a.modes, b.modes)
	p, q := a.pen, b.pen
	p.setExtra(0)
	q.setExtra(0)
	compare("pen", p, q)
	compare("extra", a.extra, b.extra)
	compare("sets", a.sets, b.sets)
	compare("titles", []string{a.title, a.icon, a.dir}, []string{b.title, b.icon, b.dir})
	compare("palette", a.palette, b.palette)
	return d.String()
}

// check fails the test if the screen is in an invalid state.
func (s *Screen) check(t testing.TB) {
	t.Helper()
	if s.x < 0 || s.x >= s.cols || s.y < 0 || s.y >= s.rows {
		t.Fatalf("the cursor is at %d,%d of %d,%d", s.y, s.x, s.rows, s.cols)
	}
	if len(s.history.lines) > s.history.limit {
		t.Fatalf("the scrollback has %d lines of %d", len(s.history.lines), s.history.limit)
	}
	for _, g := range []*grid{&s.main, &s.alt} {
		if g.lines == nil {
			continue
		}
		if len(g.lines) != s.rows || len(g.tabs) != s.cols {
			t.Fatalf("%d lines, %d tabs", len(g.lines), len(g.tabs))
		}
		if g.top < 0 || g.top > g.bottom || g.bottom >= s.rows || g.left < 0 || g.left > g.right || g.right >= s.cols {
			t.Fatalf("margins %d to %d and %d to %d", g.top, g.bottom, g.left, g.right)
		}
		if g.narrow(s.cols) && !s.modes.on(leftRightMargins) {
			t.Fatal("margins while their mode is off")
		}
		seen := map[*line]bool{}
		for y, l := range g.lines {
			if len(l.cells) != s.cols || seen[l] {
				t.Fatalf("row %d has %d cells", y, len(l.cells))
			}
			seen[l] = true
			for x, c := range l.cells {
				wide := c.ch&chWide != 0
				if next := x+1 < s.cols && l.cells[x+1].ch&chTail != 0; wide != next {
					t.Fatalf("row %d column %d: half of a wide character", y, x)
				}
				if c.ch&chCluster != 0 && s.clusters.get(c.ch&chValue) == "" {
					t.Fatalf("row %d column %d: an empty cluster", y, x)
				}
				if int(c.extra()) >= max(1, len(s.extras.items)) {
					t.Fatalf("row %d column %d: extra %d of %d", y, x, c.extra(), len(s.extras.items))
				}
			}
			if l.cells[0].ch&chTail != 0 {
				t.Fatalf("row %d begins with half of a wide character", y)
			}
		}
	}
	if s.clusters.used > internBudget || s.extras.used > internBudget || len(s.answers) > maxAnswers+64 {
		t.Fatalf("%d, %d and %d bytes outside of the cells", s.clusters.used, s.extras.used, len(s.answers))
	}
}

// plausible are typical pieces of program output; %d is a number.
var plausible = strings.Split(strings.ReplaceAll(
	"ESC[%dA|ESC[%dB|ESC[%dC|ESC[%dD|ESC[%dE|ESC[%dF|ESC[%dG|ESC[%d;%dH|ESC[%dI|ESC[%dJ|ESC[%dK|ESC[%dL|ESC[%dM|ESC[%dP|ESC[%dS|ESC[%dT|"+
		"ESC[%dX|ESC[%dZ|ESC[%d@|ESC[%d`|ESC[%da|ESC[%db|ESC[%dd|ESC[%de|ESC[%dg|ESC[%d;%df|ESC[%d;%dr|ESC[%d;%ds|ESC[s|ESC[u|"+
		"ESC[?%dJ|ESC[?%dK|ESC[%d'}|ESC[%d'~|ESC[%d @|ESC[%d A|ESC[%d q|ESC[1\"q|ESC[0\"q|ESC[!p|ESC[%d;%dm|ESC[38;5;%dm|ESC[48;2;%d;%d;7m|"+
		"ESC[4:%dm|ESC[58:5:%dm|ESC[m|ESC[4h|ESC[4l|ESC[20h|ESC[20l|ESC[?6h|ESC[?6l|ESC[?7h|ESC[?7l|ESC[?45h|ESC[?45l|ESC[?69h|ESC[?69l|"+
		"ESC[?1049h|ESC[?1049l|ESC[?47h|ESC[?1047l|ESC[?1048h|ESC[?1048l|ESC[?25l|ESC[?2004h|ESC[?1006h|ESC[?%dh|ESC[?%dl|"+
		"ESC7|ESC8|ESCD|ESCE|ESCH|ESCM|ESCc|ESC=|ESC>|ESC(0|ESC(B|ESC)0|ESC*A|ESCn|ESCo|ESC#8|"+
		"\r|\n|\t|\b|\x0e|\x0f|\r\n|\v|\u0084|\u0085|\u0088|\u008d|日|本語|e\u0301|\u0301|👨\u200d👩|x|hello|0123456789abcdefghij| |"+
		"ESC]0;t%dESC\\|ESC]8;;http://%d/ESC\\|ESC]8;;ESC\\|ESC]4;%d;#123ESC\\|ESC]11;#%d00ESC\\|ESC[%dn|ESC[c|ESC[?%d$p|ESCP$qmESC\\|ESC[%dt|"+
		"\xff|\xe2\x82|ESC[|ESC|ESC]2;|ESCPq", "ESC", "\x1b"), "|")

func plausibleOutput(random *rand.Rand, n int) []byte {
	var b []byte
	for range n {
		piece := plausible[random.IntN(len(plausible))]
		for strings.Contains(piece, "%d") {
			number := random.IntN(12)
			if random.IntN(8) == 0 {
				number = random.IntN(3000)
			}
			piece = strings.Replace(piece, "%d", fmt.Sprint(number), 1)
		}
		b = append(b, piece...)
	}
	return b
}

// Whatever programs write, and however the window changes, the screen stays
// valid, a snapshot restores it, and splitting the output makes no difference.
func TestPlausibleOutput(t *testing.T) {
	total := 50_000
	if os.Getenv("TRL_LONG") == "1" {
		total = 1_000_000
	}
	const each = 25 // long enough to combine states, short enough to read
	for i := range total / each {
		random := rand.New(rand.NewPCG(uint64(i), 7))
		rows, cols := 1+random.IntN(8), 2+random.IntN(14)
		s, again := New(Config{Rows: rows, Cols: cols, Scrollback: 5}), New(Config{Rows: rows, Cols: cols, Scrollback: 5})
		var trace []string
		for range 5 {
			out := plausibleOutput(random, each/5)
			trace = append(trace, fmt.Sprintf("%q", out))
			s.Write(out)
			for _, c := range out {
				again.Write([]byte{c})
			}
			if random.IntN(4) == 0 {
				rows, cols = 1+random.IntN(8), 2+random.IntN(14)
				trace = append(trace, fmt.Sprintf("resize %d %d", rows, cols))
				s.Resize(rows, cols)
				again.Resize(rows, cols)
			}
			s.check(t)
			if d := difference(s, again); d != "" {
				t.Fatalf("case %d: byte by byte:\n%s%s", i, d, strings.Join(trace, "\n"))
			}
			restored := New(Config{Rows: rows, Cols: cols, Scrollback: 5})
			snapshot := s.ANSI(0)
			restored.Write(snapshot)
			restored.check(t)
			if d := difference(s, restored); d != "" {
				t.Fatalf("case %d: restored:\n%s%s\n%q", i, d, strings.Join(trace, "\n"), snapshot)
			}
			s.Text(5)
			s.Cells()
		}
	}
}

func FuzzScreen(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(plausibleOutput(random, 20), uint8(5), uint8(20))
	}
	for name, data := range corpus(f) {
		if strings.HasPrefix(name, "syn-") && len(data) < 300 {
			f.Add(data, uint8(24), uint8(80))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, rows, cols uint8) {
		s := New(Config{Rows: int(rows % 30), Cols: int(cols % 100), Scrollback: 10})
		half := len(data) / 2
		s.Write(data[:half])
		s.check(t)
		s.Resize(int(cols%50), int(rows%50))
		s.check(t)
		s.Write(data[half:])
		s.check(t)
		restored := New(Config{Rows: s.rows, Cols: s.cols})
		restored.Write(s.ANSI(0))
		restored.check(t)
		if d := difference(s, restored); d != "" {
			t.Errorf("restored:\n%s", d)
		}
		s.Text(10)
		s.Cells()
		PlainText(data)
	})
}
