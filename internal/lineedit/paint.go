package lineedit

import (
	"fmt"
	"strings"

	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/vt"
)

// continuation is before every line but the first.
const continuation = "> "

const clearScreen = "\x1b[H\x1b[2J"

// tabWidth is the distance of tab stops.
const tabWidth = 8

// Paint returns what brings the terminal from what was painted last to the
// current text. The cursor of the terminal must be where Paint left it.
func (e *Editor) Paint() []byte {
	p := e.layout()
	top := p.top(e.visibleRows())
	text := p.print(top, e.visibleRows())
	if text == e.painted {
		return nil
	}
	var b strings.Builder
	if e.painted == clearScreen {
		b.WriteString(clearScreen)
	}
	b.WriteString(toStart(e.cursorRow) + text)
	e.painted, e.cursorRow = text, p.row-top
	return []byte(b.String())
}

// Finish returns what leaves the line on the screen, with a mark behind it, and
// the cursor on the line below.
func (e *Editor) Finish(mark string) []byte {
	e.search = nil
	e.at = len(e.text)
	b := append(e.Paint(), mark+"\r\n"...)
	e.forget()
	return b
}

// Resize adapts to a new size of the terminal, which has wrapped the painted rows
// again at its new width.
func (e *Editor) Resize(rows, cols int) {
	e.config.Rows, e.config.Cols = rows, cols
	p := e.layout()
	e.painted, e.cursorRow = "", p.row-p.top(e.visibleRows())
}

// forget makes the next Paint begin where the cursor is.
func (e *Editor) forget() { e.painted, e.cursorRow = "", 0 }

// visibleRows is how many rows of a long text are painted: with all of the
// screen, the terminal would scroll.
func (e *Editor) visibleRows() int { return max(1, e.config.Rows-1) }

func (e *Editor) prompt() string {
	if e.search != nil {
		return e.search.prompt()
	}
	return e.config.Prompt
}

// toStart returns what clears the painted rows, with the cursor in the given one.
func toStart(cursorRow int) string {
	if cursorRow > 0 {
		return fmt.Sprintf("\r\x1b[%dA\x1b[J", cursorRow)
	}
	return "\r\x1b[J"
}

// picture is a text in rows as wide as the terminal.
type picture struct {
	cols     int
	rows     []pictureRow
	width    int // of the last row
	row, col int // of the cursor
}

// pictureRow is one row. wraps means that the text goes on without a line break,
// so the terminal itself begins the next row.
type pictureRow struct {
	text  strings.Builder
	wraps bool
}

// layout arranges prompt and text.
func (e *Editor) layout() *picture {
	p := &picture{cols: max(e.config.Cols, tabWidth), rows: make([]pictureRow, 1)}
	p.add(e.prompt())
	for i, r := range e.text {
		if i == e.at {
			p.mark(r)
		}
		if r == '\n' {
			p.newRow(false)
			p.add(continuation)
			continue
		}
		p.add(visible(r, p.width))
	}
	if e.at == len(e.text) {
		p.mark(' ')
	}
	return p
}

// visible returns how a character is shown at a column: what could act on the
// terminal is escaped.
func visible(r rune, col int) string {
	if r == '\t' {
		return strings.Repeat(" ", tabWidth-col%tabWidth)
	}
	return printable.Text(string(r))
}

// mark puts the cursor where the next character begins.
func (p *picture) mark(next rune) {
	if next != '\n' && p.width+vt.Columns(next) > p.cols {
		p.newRow(true)
	}
	p.row, p.col = len(p.rows)-1, min(p.width, p.cols-1)
}

func (p *picture) add(text string) {
	for _, r := range text {
		if p.width+vt.Columns(r) > p.cols {
			p.newRow(true)
		}
		p.rows[len(p.rows)-1].text.WriteRune(r)
		p.width += vt.Columns(r)
	}
}

func (p *picture) newRow(wraps bool) {
	p.rows[len(p.rows)-1].wraps = wraps
	p.rows = append(p.rows, pictureRow{})
	p.width = 0
}

// top returns the first of the rows to show, so that the cursor is among them.
func (p *picture) top(height int) int {
	return max(0, min(len(p.rows)-height, p.row), p.row-height+1)
}

// print returns the bytes that paint the rows from top on and place the cursor.
func (p *picture) print(top, height int) string {
	end := min(len(p.rows), top+height)
	var b strings.Builder
	for i := top; i < end; i++ {
		row := &p.rows[i]
		b.WriteString(row.text.String())
		if i+1 < end && (!row.wraps || p.rows[i+1].text.Len() == 0) {
			b.WriteString("\r\n")
		}
	}
	b.WriteByte('\r')
	if up := end - 1 - p.row; up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	if p.col > 0 {
		fmt.Fprintf(&b, "\x1b[%dC", p.col)
	}
	return b.String()
}
