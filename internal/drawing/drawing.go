// Package drawing draws a screen as a picture whose bytes depend only on the screen:
// an SVG that needs no external font, script or file, or a PNG.
//
// The picture is a grid. Backgrounds, underlines, lines and blocks are drawn as
// shapes, so that they join up in any font.
//
// The contents of a screen are untrusted: all text goes through one escape function,
// and everything else in an SVG is a number or a constant of this package. Links are
// not drawn as links.
package drawing

import (
	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/vt"
)

// The sizes are whole numbers, so that edges are sharp. In nearly every monospace font
// a character is 0.6 of the font size wide: size 15 makes a cell 9 wide.
const (
	fontSize   = 15
	cellWidth  = 9
	cellHeight = 18
	baseline   = 14 // of text, below the top of its row
	padding    = 14 // around the grid
)

// cursorIn returns the column of the cursor if it is visible in row, otherwise -1.
func cursorIn(screen *api.SessionScreenResult, row int) int {
	if row != screen.Cursor.Row || screen.Cursor.Hidden {
		return -1
	}
	return screen.Cursor.Column
}

// cell is one column of a row, or two if its character is wide.
type cell struct {
	x, width int
	text     string
	style    api.ScreenStyle
}

// cellsOf returns the cells of a line, in order. The cell under the cursor is
// inverted; a negative cursor means none.
func cellsOf(line api.ScreenLine, cols, cursor int) []cell {
	var cells []cell
	x := 0
	for _, run := range line.Runs {
		style := api.ScreenStyle{}
		if run.Style != nil {
			style = *run.Style
		}
		at, first := x, len(cells)
		for _, r := range run.Text {
			width := vt.Columns(r)
			if width == 0 && len(cells) > first {
				cells[len(cells)-1].text += string(r)
				continue
			}
			width = max(width, 1) // a combining mark on its own takes a cell
			if at+width > cols {
				break
			}
			cells = append(cells, cell{x: at, width: width, text: string(r), style: style})
			at += width
		}
		x += min(max(run.Width, 0), cols) // the daemon's width decides
	}
	if cursor < 0 || cursor >= cols {
		return cells
	}
	for i := range cells {
		if c := &cells[i]; c.x <= cursor && cursor < c.x+c.width {
			c.style.Inverse = !c.style.Inverse
			return cells
		}
	}
	return append(cells, cell{x: cursor, width: 1, text: " ", style: api.ScreenStyle{Inverse: true}})
}
