package cli

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/terminal-runtime/trl/internal/vt"
)

const (
	columnGap = "  " // between two columns
	// minColumn is how narrow a terminal makes a column: less says too little.
	minColumn = 6
	ellipsis  = "…"
)

// table prints rows in columns that are aligned on a terminal. It makes foreign
// text safe. On a terminal it has colours, and with headings it fits the width;
// elsewhere nothing is cut.
type table struct {
	out       io.Writer
	maxWidth  int // in columns of the terminal; 0 means any
	colours   bool
	hasHeader bool
	rows      [][]string
	styles    map[int]func(cell string) style // by column
	keepEnds  map[int]bool                    // columns that are cut at their beginning
}

func newTable(w io.Writer, headings ...string) *table {
	t := &table{out: w, colours: mayColour(w), styles: map[int]func(string) style{}, keepEnds: map[int]bool{}}
	if len(headings) > 0 {
		t.hasHeader, t.maxWidth = true, terminalWidth(w)
		t.row(headings...)
	}
	return t
}

// terminalWidth returns the width of the terminal that stream is, or 0.
func terminalWidth(stream any) int {
	f, ok := stream.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// style sets how the cells of a column look.
func (t *table) style(column int, of func(cell string) style) { t.styles[column] = of }

// keepEnd has the cells of a column cut at their beginning: the end of a path
// says more.
func (t *table) keepEnd(column int) { t.keepEnds[column] = true }

// row adds a row. An empty cell becomes a dash, so that scripts can count
// columns.
func (t *table) row(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		if cell == "" {
			cell = "-"
		}
		row[i] = visible(cell)
	}
	t.rows = append(t.rows, row)
}

// flush prints the table.
func (t *table) flush() error {
	widths := t.widths()
	var b strings.Builder
	for i, row := range t.rows {
		t.writeRow(&b, row, widths, t.hasHeader && i == 0)
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}

// widths returns the widths of the columns.
func (t *table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], textWidth(cell))
		}
	}
	if t.maxWidth > 0 {
		fit(widths, t.maxWidth)
	}
	return widths
}

// fit makes the widest columns narrower until a row has at most maxWidth columns
// of the terminal. The first column has ids and stays.
func fit(widths []int, maxWidth int) {
	excess := len(columnGap)*(len(widths)-1) - maxWidth
	for _, width := range widths {
		excess += width
	}
	for ; excess > 0; excess-- {
		widest := len(widths) - 1
		for i := widest; i > 0; i-- {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if widest == 0 || widths[widest] <= minColumn {
			return
		}
		widths[widest]--
	}
}

// writeRow writes a row. What still does not fit the terminal is left out.
func (t *table) writeRow(b *strings.Builder, row []string, widths []int, header bool) {
	used, padding := 0, ""
	for i, cell := range row {
		look := t.styleOf(i, cell, header)
		if t.maxWidth > 0 {
			room := min(widths[i], t.maxWidth-used-len(padding))
			if room <= 0 {
				break
			}
			cell = shorten(cell, room, t.keepEnds[i] && !header)
		}
		width := textWidth(cell)
		b.WriteString(padding + look.paint(cell))
		used += len(padding) + width
		padding = strings.Repeat(" ", widths[i]-width) + columnGap
	}
	b.WriteByte('\n')
}

func (t *table) styleOf(column int, cell string, header bool) style {
	switch of := t.styles[column]; {
	case !t.colours:
		return ""
	case header:
		return styleBold
	case of != nil:
		return of(cell)
	}
	return ""
}

// textWidth returns how many columns of a terminal visible text takes.
func textWidth(text string) int {
	width := 0
	for _, r := range text {
		width += vt.Columns(r)
	}
	return width
}

// shorten returns text if it takes at most width columns, and otherwise its
// beginning or its end with an ellipsis.
func shorten(text string, width int, keepEnd bool) string {
	if textWidth(text) <= width {
		return text
	}
	room := width - textWidth(ellipsis)
	if keepEnd {
		at := len(text)
		for {
			r, size := utf8.DecodeLastRuneInString(text[:at])
			if room -= vt.Columns(r); room < 0 {
				return ellipsis + strings.TrimLeftFunc(text[at:], joinsPrevious)
			}
			at -= size
		}
	}
	for at, r := range text {
		if room -= vt.Columns(r); room < 0 {
			return text[:at] + ellipsis
		}
	}
	return text
}

// joinsPrevious reports whether a character has no column of its own, as
// combining marks.
func joinsPrevious(r rune) bool { return vt.Columns(r) == 0 }
