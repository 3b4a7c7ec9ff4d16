// Package drawing draws a screen as a picture, whose bytes depend on the screen alone:
// an SVG that needs no font, script or file of others, or a PNG.
//
// The picture is a grid. Backgrounds, underlines, lines and blocks are drawn as
// shapes, so that they meet whatever the font is.
//
// What is on a screen is untrusted: text goes through one escape, and everything
// else in an SVG is a number or a word of this package. Links are not made.
package drawing

import (
	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/vt"
)

// The measures are whole numbers, so that edges are sharp. Nearly every
// monospace font is 0.6 of its size wide: 15 makes a cell of 9.
const (
	fontSize   = 15
	cellWidth  = 9
	cellHeight = 18
	baseline   = 14 // of text, below the top of its row
	padding    = 14 // around the grid
)

// cursorIn is the column of the cursor, if it is in a row; else -1.
func cursorIn(screen *api.SessionScreenResult, row int) int {
	if row != screen.Cursor.Row || screen.Cursor.Hidden {
		return -1
	}
	return screen.Cursor.Column
}

// cell is one place of the grid, or two if its character is wide.
type cell struct {
	x, width int
	text     string
	style    api.ScreenStyle
}

// cellsOf are the cells of a line, in order. The one that the cursor is on, if
// it is on any, is inverted.
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
			width = max(width, 1) // a mark that stands alone has a place
			if at+width > cols {
				break
			}
			cells = append(cells, cell{x: at, width: width, text: string(r), style: style})
			at += width
		}
		x += min(max(run.Width, 0), cols) // the daemon knows
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
