package vt

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// xterm.js is the reference: this package must show what it shows for a
// recording.

// differences are the recordings for which it deliberately does not.
var differences = map[string]string{
	"syn-decslrm":  "xterm.js has no left and right margins; DEC's VT420 manual and xterm (ctlseqs, DECSLRM) do",
	"syn-utf8-bad": "xterm.js drops what is no UTF-8; the Encoding Standard and xterm show U+FFFD, so that a reader sees that something was there",
}

// differsBytewise are those that xterm.js shows differently when it gets them
// byte by byte: its decoder (Utf8ToUtf32, the leftover bytes) takes a
// continuation byte of 0x80 for the end, and loses U+200B and U+200D. Here both
// ways are the same.
var differsBytewise = map[string]bool{
	"real-cat-unicode": true, "real-less-unicode": true, "real-tmux-split": true, "syn-emoji": true,
}

const corpusRows, corpusCols = 24, 80

// corpus returns the recordings by name.
func corpus(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/corpus/*.bin")
	if err != nil || len(files) < 111 {
		t.Fatalf("the corpus has %d recordings, %v", len(files), err)
	}
	recordings := map[string][]byte{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		recordings[strings.TrimSuffix(filepath.Base(file), ".bin")] = b
	}
	return recordings
}

type oracleCase struct {
	Rows     int      `json:"rows"`
	Cols     int      `json:"cols"`
	Data     [][]byte `json:"data"`
	Bytewise bool     `json:"bytewise"`

	Scrollback int `json:"scrollback"`
}

// oracleScreen is a screen as both sides describe it.
type oracleScreen struct {
	Lines []struct {
		Cells   []string `json:"cells"`
		Wrapped bool     `json:"wrapped"`
	} `json:"lines"`
	X          int  `json:"x"` // equal to the number of columns if a wrap is pending
	Y          int  `json:"y"`
	Alternate  bool `json:"alternate"`
	Scrollback int  `json:"scrollback"`

	Error string `json:"error"`
}

func runOracle(t *testing.T, arguments []string, input []byte) []byte {
	t.Helper()
	node, err := exec.LookPath("node")
	trltest.Need(t, err)
	if _, err := os.Stat("oracle/node_modules/@xterm/headless"); err != nil {
		trltest.Need(t, errors.New("xterm.js is not installed: run `npm ci` in internal/vt/oracle"))
	}
	command := exec.CommandContext(t.Context(), node, append([]string{"oracle.mjs"}, arguments...)...)
	command.Dir = "oracle"
	command.WaitDelay = time.Second
	command.Stdin = bytes.NewReader(input)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func askOracle(t *testing.T, cases []oracleCase) []oracleScreen {
	t.Helper()
	var input bytes.Buffer
	encoder := json.NewEncoder(&input)
	for _, c := range cases {
		if err := encoder.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	var pictures []oracleScreen
	lines := bufio.NewScanner(bytes.NewReader(runOracle(t, nil, input.Bytes())))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var p oracleScreen
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		pictures = append(pictures, p)
	}
	if len(pictures) != len(cases) {
		t.Fatalf("%d answers to %d cases", len(pictures), len(cases))
	}
	return pictures
}

const blankCell = " \x011\x01\x01\x010\x010\x01\x01"

// describe returns a cell in the form of oracle.mjs.
func (s *Screen) describe(c cell) string {
	if c == (cell{}) {
		return blankCell
	}
	text, width := string(s.appendChar(nil, c.ch)), 1
	switch {
	case c.ch&chTail != 0:
		text, width = " ", 0
	case c.ch&chWide != 0:
		width = 2
	case alone(c.ch):
		width = 0
	}
	e := s.extras.get(c.extra())
	if c.underline() == 0 {
		e.underline = colorDefault // of an underline that does not exist
	}
	return fmt.Sprintf("%s\x01%d\x01%s\x01%s\x01%d\x01%d\x01%s\x01%s", text, width,
		colorName(c.fg), colorName(c.bg), c.attrs&0xff, c.underline(), colorName(e.underline), e.link)
}

// diff compares a screen with what the oracle shows; "" means equal.
func (s *Screen) diff(p oracleScreen, wrapped bool) string {
	x := s.column()
	var b strings.Builder
	if x != p.X || s.y != p.Y {
		fmt.Fprintf(&b, "cursor is at %d,%d, want %d,%d\n", s.y, x, p.Y, p.X)
	}
	if s.modes.on(altScreen) != p.Alternate {
		fmt.Fprintf(&b, "alternate screen is %v\n", !p.Alternate)
	}
	for y, want := range p.Lines {
		got := s.on.lines[y]
		for x := range want.Cells {
			if g := s.describe(got.cells[x]); g != want.Cells[x] && b.Len() < 2000 {
				fmt.Fprintf(&b, "row %d column %d: %q, want %q\n", y, x, g, want.Cells[x])
			}
		}
		if wrapped && got.wrapped != want.Wrapped {
			fmt.Fprintf(&b, "row %d: wrapped is %v\n", y, got.wrapped)
		}
	}
	return b.String()
}

func write(rows, cols int, parts ...[]byte) *Screen {
	s := New(Config{Rows: rows, Cols: cols, Scrollback: 1000})
	for _, part := range parts {
		s.Write(part)
	}
	return s
}

// Each recording is compared at its end and at intermediate points, written at
// once; at its end written byte by byte; and in windows of other sizes.
func TestOracleShowsTheSame(t *testing.T) {
	recordings := corpus(t)
	var names []string
	var cases []oracleCase
	for name, data := range recordings {
		add := func(rows, cols int, data []byte, bytewise bool) {
			names = append(names, name)
			cases = append(cases, oracleCase{Rows: rows, Cols: cols, Data: [][]byte{data}, Bytewise: bytewise, Scrollback: 1000})
		}
		for _, end := range cuts(len(data)) {
			add(corpusRows, corpusCols, data[:end], false)
		}
		add(corpusRows, corpusCols, data, true)
		// In a window of another size everything wraps and clamps.
		add(9, 31, data, false)
		add(40, 132, data, false)
	}
	different := map[string]bool{}
	for i, p := range askOracle(t, cases) {
		name, data, bytewise := names[i], cases[i].Data[0], cases[i].Bytewise
		d := write(cases[i].Rows, cases[i].Cols, data).diff(p, true)
		if d == "" || bytewise && differsBytewise[name] {
			continue
		}
		different[name] = true
		if differences[name] == "" {
			t.Errorf("%s (%d bytes, bytewise %v, %d columns):\n%s", name, len(data), bytewise, cases[i].Cols, d)
		}
	}
	for name, why := range differences {
		if !different[name] {
			t.Errorf("%s is listed as different but is equal: %s", name, why)
		}
	}
	t.Logf("%d of %d recordings are exact, in %d comparisons", len(recordings)-len(different), len(recordings), len(cases))
}

// A snapshot restores the screen in xterm.js too.
func TestOracleRestoresSnapshots(t *testing.T) {
	var names []string
	var cases []oracleCase
	var screens []*Screen
	for name, data := range corpus(t) {
		for _, end := range cuts(len(data)) {
			s := write(corpusRows, corpusCols, data[:end])
			names = append(names, fmt.Sprintf("%s at %d", name, end))
			cases = append(cases, oracleCase{Rows: corpusRows, Cols: corpusCols, Data: [][]byte{s.ANSI(0)}, Scrollback: 1000})
			screens = append(screens, s)
		}
	}
	for i, p := range askOracle(t, cases) {
		// Whether a line continues another can't be restored if that one is gone.
		if difference := screens[i].diff(p, false); difference != "" {
			t.Errorf("%s:\n%s%q", names[i], difference, cases[i].Data[0])
		}
	}
}

// cuts returns the positions at which a recording is compared: every thousandth
// byte, and the end.
func cuts(n int) []int {
	var at []int
	for i := 1000; i < n; i += 1000 {
		at = append(at, i)
	}
	return append(at, n)
}

// Random plausible output shows the same too, except for these pieces of it.
func TestOraclePlausibleOutput(t *testing.T) {
	without := map[string]string{
		"\x1b[?69h":                "xterm.js has no left and right margins",
		"\x1b[?6h":                 "in origin mode xterm.js counts relative moves from the margin, twice",
		"\x1b#8":                   "DECALN leaves the margins in xterm.js; DEC's manuals say that they are reset",
		"\u008d":                   "xterm.js does not know RI as one character",
		"\xff":                     "xterm.js drops what is no UTF-8",
		"\xe2\x82":                 "the same",
		"\u0301":                   "a mark alone after the last column puts xterm.js' cursor outside of the screen",
		"\x1b[?7l":                 "without wrapping, xterm.js leaves halves of wide characters at the right edge",
		"\x1b[%d'}":                "with a wrap pending, xterm.js takes the first column for the cursor's",
		"\x1b[%d'~":                "the same",
		"\x1b]8;;http://%d/\x1b\\": "xterm.js does not save the link with the cursor, which it does with the other attributes",
		"\x1b[58:5:%dm":            "the same, for the color of the underline",
		"\x1b[4:%dm":               "the same, for its style",
		"\x1b[%d;%dm":              "rapid blinking (6) is not known to xterm.js",
	}
	all := plausible
	defer func() { plausible = all }()
	plausible = slices.DeleteFunc(slices.Clone(all), func(piece string) bool { return without[piece] != "" })
	if len(plausible) != len(all)-len(without) {
		t.Fatal("an excluded piece does not exist")
	}
	plausible = append(plausible, "\x1b[1m", "\x1b[3;9%dm", "\x1b[7;4%dm", "\x1b[38:2::1:2:%dm", "\x1b[22;24m")
	// This many cases find common problems. Many more find special cases of
	// xterm.js: what RIS and DECRC leave (LNM, the set in use) differs.
	cases := make([]oracleCase, 1500)
	for i := range cases {
		random := rand.New(rand.NewPCG(uint64(i), 11))
		// Without a scrollback: with one, xterm.js restores a cursor to the line
		// that it was on, wherever that is now, and not to its position. And with
		// one row, it confuses the line that it leaves with the next.
		cases[i] = oracleCase{Rows: 2 + random.IntN(6), Cols: 2 + random.IntN(12), Data: [][]byte{plausibleOutput(random, 12)}}
	}
	failed := 0
	for i, p := range askOracle(t, cases) {
		if p.Error != "" {
			failed++ // xterm.js itself fails: at ED 1 on the last row, and with links that are gone
			continue
		}
		s := New(Config{Rows: cases[i].Rows, Cols: cases[i].Cols})
		s.Write(cases[i].Data[0])
		if d := s.diff(p, true); d != "" {
			t.Errorf("case %d, %d rows, %d columns, %q:\n%s", i, cases[i].Rows, cases[i].Cols, cases[i].Data[0], d)
		}
	}
	if failed > len(cases)/50 {
		t.Errorf("xterm.js failed %d times", failed)
	}
}

func TestOracleHasTheSameWidths(t *testing.T) {
	want := runOracle(t, []string{"widths"}, nil)
	got, err := os.ReadFile("width_table.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("width_table.go does not match xterm.js: run `go generate`")
	}
}
