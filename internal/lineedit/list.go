package lineedit

import (
	"fmt"
	"strings"

	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/vt"
)

// List returns what shows names in columns below the text; the line is painted
// again below them. What does not fit on the screen is counted.
func (e *Editor) List(names []string) []byte {
	rows := columns(names, max(e.config.Cols, 1), max(1, e.config.Rows-3))
	return e.Below(rows...)
}

// Below returns what shows lines of text below the text.
func (e *Editor) Below(lines ...string) []byte {
	at := e.at
	b := e.Finish("")
	e.at = at
	for _, line := range lines {
		b = append(b, line+"\r\n"...)
	}
	return b
}

// columnGap is the space between two columns.
const columnGap = 2

// columns arranges names in rows, sorted from top to bottom.
func columns(names []string, width, maxRows int) []string {
	shown, widest := make([]string, len(names)), 0
	for i, name := range names {
		shown[i] = printable.Text(name)
		widest = max(widest, textWidth(shown[i]))
	}
	perRow := max(1, (width+columnGap)/(widest+columnGap))
	rest := 0
	if most := perRow * maxRows; len(shown) > most {
		rest = len(shown) - most
		shown = shown[:most]
	}
	rows := make([]string, (len(shown)+perRow-1)/perRow)
	for i, name := range shown {
		row := &rows[i%len(rows)]
		*row += name
		if i+len(rows) < len(shown) {
			*row += strings.Repeat(" ", widest+columnGap-textWidth(name))
		}
	}
	if rest > 0 {
		rows = append(rows, fmt.Sprintf("… and %d more", rest))
	}
	return rows
}

func textWidth(text string) int {
	n := 0
	for _, r := range text {
		n += vt.Columns(r)
	}
	return n
}
