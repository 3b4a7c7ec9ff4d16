package drawing

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/vt"
)

var update = flag.Bool("update", false, "write the expected pictures; check them in a browser")

// screenOf returns what a terminal shows after text, as the daemon reports it.
func screenOf(rows, cols int, text string) *api.SessionScreenResult {
	s := vt.New(vt.Config{Rows: rows, Cols: cols})
	_, _ = s.Write([]byte(text))
	cells := s.Cells()
	return &api.SessionScreenResult{
		Rows: cells.Rows, Cols: cells.Cols, Title: cells.Title, Lines: cells.Lines,
		Cursor: api.ScreenCursor{Row: cells.Cursor.Row, Column: cells.Cursor.Column, Hidden: cells.Cursor.Hidden},
	}
}

// charRange returns the characters from first to last, n per line.
func charRange(first, last rune, n int) string {
	var b strings.Builder
	for r := first; r <= last; r++ {
		b.WriteRune(r)
		if int(r-first)%n == n-1 {
			b.WriteString("\r\n")
		}
	}
	return b.String()
}

func TestPictures(t *testing.T) {
	for name, screen := range map[string]*api.SessionScreenResult{
		"empty": screenOf(2, 20, ""),
		"styles": screenOf(16, 60, "\x1b]0;a <title> & \"more\"\x07"+
			"plain  two blanks   three\r\n"+
			"\x1b[1mbold\x1b[m \x1b[2mdim\x1b[m \x1b[3mitalic\x1b[m \x1b[1;3;31mall three\x1b[m \x1b[8mhidden\x1b[m \x1b[5mblink\x1b[m\r\n"+
			"\x1b[4msingle\x1b[m \x1b[4:2mdouble\x1b[m \x1b[4:3;58:5:9mcurly\x1b[m \x1b[4:4mdotted\x1b[m \x1b[4:5;58:2::255:0:0mdashed\x1b[m \x1b[9mstrike\x1b[m \x1b[53mover\x1b[m\r\n"+
			"\x1b[31;42mnamed\x1b[m \x1b[91;102mbright\x1b[m \x1b[38;5;208;48;5;236mindexed\x1b[m \x1b[38;2;1;2;3;48;2;250;251;252mtrue\x1b[m\r\n"+
			"\x1b[7minverse\x1b[m \x1b[7;31minverse red\x1b[m \x1b[2;31;47mdim on white\x1b[m\r\n"+
			"日本語|한글|e\u0301a\u030a\u0323|Привет žluť|שלום|☃\r\n"+
			"<&> \"quoted\" 'single' ]]> --> \u202egnp.exe\r\n"+
			"\x1b]8;;https://example.com/\x1b\\link\x1b]8;;\x1b\\ \x1b[44mto the end\x1b[K\x1b[m\r\n"+
			"$ "),
		"shapes":      screenOf(14, 32, charRange(0x2500, 0x259f, 16)+"\x1b[31m┌──┬──┐\x1b[32m━━━━╸\x1b[m\x1b[?25l"),
		"wide cursor": screenOf(1, 10, "a日b\x1b[1;3H"),
		"last column": screenOf(1, 4, "abcd"),
	} {
		t.Run(name, func(t *testing.T) {
			got := SVG(screen, screen.Title)
			file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".svg")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Error(diff)
			}
			checkPicture(t, got)
		})
	}
}

// allowed lists the elements and attributes that a picture may have.
var allowed = map[string][]string{
	"svg":    {"xmlns", "width", "height", "viewBox", "role"},
	"title":  nil,
	"g":      {"font-family", "font-size", "fill"},
	"rect":   {"x", "y", "width", "height", "rx", "fill", "fill-opacity", "shape-rendering"},
	"circle": {"cx", "cy", "r", "fill"},
	"text":   {"x", "y", "textLength", "text-anchor", "fill", "font-weight", "font-style", "font-size"},
	"path":   {"d", "fill", "stroke", "stroke-dasharray", "shape-rendering"},
}

// checkPicture fails on anything that is not allowed, and returns the text in the
// picture.
func checkPicture(t testing.TB, picture []byte) string {
	t.Helper()
	var text strings.Builder
	d := xml.NewDecoder(bytes.NewReader(picture))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
		switch token := token.(type) {
		case xml.StartElement:
			attributes, ok := allowed[token.Name.Local]
			if !ok {
				t.Fatalf("there is a <%s>", token.Name.Local)
			}
			for _, a := range token.Attr {
				if !slices.Contains(attributes, a.Name.Local) {
					t.Fatalf("a <%s> has a %s", token.Name.Local, a.Name.Local)
				}
				if a.Name.Local != "xmlns" && strings.ContainsAny(a.Value, ":;(<&\\") {
					t.Fatalf("%s is %q", a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			text.Write(bytes.Trim(token, "\n"))
		case xml.EndElement:
		default:
			t.Fatalf("there is a %T", token)
		}
	}
}

// A malicious daemon's screen cannot inject anything into the picture.
func TestHostileScreen(t *testing.T) {
	const evil = `"/><script>alert(1)</script><x y='&#0;` + "\x00\x1b\ufffe\u2028]]>"
	style := &api.ScreenStyle{
		Foreground: evil, Background: `#12345"`, Underline: evil, UnderlineColor: "#-12345", Link: "javascript:" + evil, Bold: true,
	}
	screen := &api.SessionScreenResult{
		Rows: 2, Cols: 200, Title: evil, Cursor: api.ScreenCursor{Row: 1, Column: -5},
		Lines: []api.ScreenLine{
			{Runs: []api.ScreenRun{{Text: evil, Width: -1 << 62, Style: style}, {Text: evil, Width: 1 << 62}, {Text: "after"}}},
			{Runs: []api.ScreenRun{{Text: strings.Repeat("\u0301", 500), Width: 1}, {Text: "\xff\xfe", Width: 2}}},
			{Runs: []api.ScreenRun{{Text: "a third row of two"}}},
		},
	}
	got := SVG(screen, screen.Title)
	text := checkPicture(t, got)
	for _, want := range []string{"script", "alert(1)"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the text %q", want, text)
		}
	}
	if strings.Contains(text, "third") || len(got) > 20_000 {
		t.Errorf("%d bytes:\n%s", len(got), got)
	}
	checkPNG(t, screen)
	for _, screen := range []*api.SessionScreenResult{{}, {Rows: -1, Cols: -1}, {Rows: 1 << 30, Cols: 1 << 30}} {
		checkPicture(t, SVG(screen, ""))
		checkPNG(t, screen)
	}
}

// checkPNG draws a screen, unless it is too large, and returns its pixels.
func checkPNG(t testing.TB, screen *api.SessionScreenResult) image.Image {
	t.Helper()
	got, err := PNG(screen)
	if errors.Is(err, ErrTooLarge) {
		if screen.Rows*screen.Cols < 20_000 {
			t.Errorf("%d rows of %d are too large", screen.Rows, screen.Cols)
		}
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	again, err := PNG(screen)
	if err != nil || !bytes.Equal(got, again) {
		t.Errorf("two pictures of one screen differ, %v", err)
	}
	img, err := png.Decode(bytes.NewReader(got))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// A PNG has the screen's colors in the right cells, including letters.
func TestPNG(t *testing.T) {
	screen := screenOf(4, 20, "\x1b[31;44mA\x1b[m \x1b[7m \x1b[m \u2588\u2592\u65e5\r\n\x1b[4m___\x1b[m\x1b[1;3mbold\x1b[m\r\n✓\x1b[?25l")
	img := checkPNG(t, screen)
	if got, want := img.Bounds().Size(), image.Pt(20*cellWidth+2*padding, 4*cellHeight+2*padding); got != want {
		t.Fatalf("it is %v, want %v", got, want)
	}
	colors := func(row, column, width int) map[string]int {
		n := map[string]int{}
		for x := range width * cellWidth {
			for y := range cellHeight {
				r, g, b, _ := img.At(padding+column*cellWidth+x, padding+row*cellHeight+y).RGBA()
				n[fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)]++
			}
		}
		return n
	}
	const all = cellWidth * cellHeight
	for _, tt := range []struct {
		row, column, width int
		color              string
		least, most        int
	}{
		{0, 0, 1, palette[4], all / 2, all - 20}, // the background of A
		{0, 0, 1, palette[1], 1, all / 2},        // its letter, except the edges
		{0, 1, 1, defaultBackground, all, all},
		{0, 2, 1, defaultForeground, all, all}, // inverse
		{0, 4, 1, defaultForeground, all, all}, // a block
		{0, 5, 1, blend(defaultForeground, defaultBackground, 2, 4), all, all},
		{0, 6, 2, defaultBackground, all, 2*all - 20}, // a character that the font lacks is a box
		{2, 0, 1, defaultBackground, all / 2, all - 5},
		{1, 0, 3, defaultForeground, 3 * cellWidth, all},
		{1, 3, 4, defaultForeground, 20, 2 * all},
		{3, 0, 20, defaultBackground, 20 * all, 20 * all},
	} {
		if n := colors(tt.row, tt.column, tt.width)[tt.color]; n < tt.least || n > tt.most {
			t.Errorf("row %d, column %d: %d pixels are %s, want %d to %d: %v", tt.row, tt.column, n, tt.color, tt.least, tt.most, colors(tt.row, tt.column, tt.width))
		}
	}
}

func FuzzPictures(f *testing.F) {
	f.Add([]byte("\x1b[1;4:3;38;5;200mone\x1b[m\r\n日本│─┼═╬▟"), "title", "#12", 3)
	f.Fuzz(func(t *testing.T, output []byte, word, color string, n int) {
		screen := screenOf(4, 20, string(output))
		checkPicture(t, SVG(screen, word))
		style := &api.ScreenStyle{Foreground: color, Background: word, UnderlineColor: color, Underline: "curly", Inverse: n%2 == 0}
		screen.Lines[0].Runs = append(screen.Lines[0].Runs, api.ScreenRun{Text: word, Width: n, Style: style}, api.ScreenRun{Text: color, Width: -n})
		screen.Cursor.Column = n
		a, b := SVG(screen, color), SVG(screen, color)
		checkPicture(t, a)
		if !bytes.Equal(a, b) {
			t.Error("two pictures of one screen differ")
		}
		checkPNG(t, screen)
	})
}

// Lines of adjacent box characters meet: the middle of a cell's edge is covered
// exactly where there is an arm.
func TestBoxesMeet(t *testing.T) {
	edges := [4]struct{ x, y int }{up: {middleX, 0}, right: {cellWidth - 1, middleY}, down: {middleX, cellHeight - 1}, left: {0, middleY}}
	for r := rune(0x2500); r <= 0x257f; r++ {
		if !isShape(string(r)) || dashes(r) > 0 || 0x256d <= r && r <= 0x2570 {
			continue
		}
		s := &shape{}
		s.box(r)
		for arm, at := range edges {
			weight := int(arms[int(r-0x2500)*5+arm] - '0')
			covers := func(x, y int) bool {
				return slices.ContainsFunc(s.rects, func(q rect) bool {
					return q.x0 <= 8*x && 8*x < q.x1 && q.y0 <= 8*y && 8*y < q.y1
				})
			}
			aside := func(d int) bool {
				if arm == up || arm == down {
					return covers(at.x+d, at.y)
				}
				return covers(at.x, at.y+d)
			}
			want := [3]bool{weight > light, weight == light || weight == heavy, weight > light}
			if got := [3]bool{aside(-1), aside(0), aside(1)}; got != want {
				t.Errorf("%c, arm %d: %v, want %v", r, arm, got, want)
			}
		}
	}
}
