// Package svg draws a screen as a picture: an SVG that needs no font, script or
// file of others, and whose bytes depend on the screen alone.
//
// The picture is a grid. Text is set in the viewer's monospace font and held to
// the grid piece by piece; backgrounds, underlines, lines and blocks are drawn as
// shapes, so that they meet whatever the font is.
//
// What is on a screen is untrusted: text goes through one escape, and everything
// else in the file is a number or a word of this package. Links are not made.
package svg

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"

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
	barHeight  = 32 // of the title's bar
)

// fonts are those that systems come with, the better ones first.
const fonts = `ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace`

// Render draws a screen that was asked for as JSON. A title is in a bar above it;
// without one there is no bar.
func Render(screen *api.SessionScreenResult, title string) []byte {
	p := &picture{top: padding, cols: max(screen.Cols, 1)}
	if title != "" {
		p.top = barHeight
	}
	rows := max(screen.Rows, 1)
	width, height := p.cols*cellWidth+2*padding, p.top+rows*cellHeight+padding
	p.print(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", width, height, width, height)
	p.print("<title>%s</title>\n", escape(cmp.Or(title, "terminal")))
	p.print(`<rect width="%d" height="%d" rx="8" fill="%s"/>`+"\n", width, height, defaultBackground)
	p.print(`<g font-family="%s" font-size="%d" fill="%s">`+"\n", fonts, fontSize, defaultForeground)
	if title != "" {
		p.bar(title, width)
	}
	cursor := screen.Cursor
	for y, line := range screen.Lines[:min(len(screen.Lines), rows)] {
		at := -1
		if y == cursor.Row && !cursor.Hidden {
			at = cursor.Column
		}
		p.row(y, cellsOf(line, p.cols, at))
	}
	p.print("</g>\n</svg>\n")
	return p.out.Bytes()
}

// picture is one being drawn.
type picture struct {
	out  bytes.Buffer
	top  int // of the grid
	cols int
}

func (p *picture) print(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

// escape makes text fit for the inside of an element. What XML can't hold is
// U+FFFD.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}

// bar draws the title between the buttons of a window.
func (p *picture) bar(title string, width int) {
	for i, fill := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		p.print(`<circle cx="%d" cy="16" r="5.5" fill="%s"/>`+"\n", 20+18*i, fill)
	}
	// It must not run over the buttons.
	if room := (width - 2*(20+18*3)) / 8; utf8.RuneCountInString(title) > max(room, 0) {
		title = string([]rune(title)[:max(room-1, 0)]) + "…"
	}
	p.print(`<text x="%d" y="20" font-size="13" text-anchor="middle" fill="%s">%s</text>`+"\n", width/2, mix(defaultForeground, defaultBackground), escape(title))
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

// row draws a row: stretches of one style after the other.
func (p *picture) row(y int, cells []cell) {
	for len(cells) > 0 {
		n := 1
		for n < len(cells) && cells[n].style == cells[0].style && cells[n].x == cells[n-1].x+cells[n-1].width {
			n++
		}
		p.stretch(y, cells[:n])
		cells = cells[n:]
	}
}

// stretch draws cells that follow each other in one style.
func (p *picture) stretch(y int, cells []cell) {
	look := lookOf(&cells[0].style)
	last := cells[len(cells)-1]
	left, top := p.place(cells[0].x, y)
	width := (last.x + last.width - cells[0].x) * cellWidth
	if look.background != defaultBackground {
		p.print(`<rect x="%d" y="%d" width="%d" height="%d" fill="%s" shape-rendering="crispEdges"/>`+"\n", left, top, width, cellHeight, look.background)
	}
	p.decorate(&cells[0].style, look, left, top, width)
	if cells[0].style.Invisible {
		return
	}
	for len(cells) > 0 {
		var n int
		switch {
		case cells[0].text == " ":
			n = 1
		case drawn(cells[0].text):
			n = p.shapes(y, cells, look)
		default:
			n = p.text(y, cells, look)
		}
		cells = cells[n:]
	}
}

// place is where the cell of a column and a row begins.
func (p *picture) place(x, y int) (left, top int) {
	return padding + x*cellWidth, p.top + y*cellHeight
}

// text draws a piece of text and returns how many cells it took: as many as are
// safely as wide as each other, else one.
func (p *picture) text(y int, cells []cell, look look) int {
	n := 0
	for n < len(cells) && ordinary(cells[n].text) {
		if cells[n].text == " " && (n+1 == len(cells) || !ordinary(cells[n+1].text) || cells[n+1].text == " ") {
			break // blanks that follow each other would become one
		}
		n++
	}
	left, top := p.place(cells[0].x, y)
	var attributes strings.Builder
	if n == 0 {
		// Who knows how wide it is in which font: it stands in the middle.
		n = 1
		left += cells[0].width * cellWidth / 2
		attributes.WriteString(` text-anchor="middle"`)
	} else if n > 1 {
		fmt.Fprintf(&attributes, ` textLength="%d"`, n*cellWidth)
	}
	if look.foreground != defaultForeground {
		fmt.Fprintf(&attributes, ` fill="%s"`, look.foreground)
	}
	if cells[0].style.Bold {
		attributes.WriteString(` font-weight="bold"`)
	}
	if cells[0].style.Italic {
		attributes.WriteString(` font-style="italic"`)
	}
	var text strings.Builder
	for _, c := range cells[:n] {
		text.WriteString(c.text)
	}
	p.print(`<text x="%d" y="%d"%s>%s</text>`+"\n", left, top+baseline, attributes.String(), escape(text.String()))
	return n
}

// ordinary reports whether a character is in every monospace font, as wide as
// the others there, and written from left to right: Latin, Greek and Cyrillic.
func ordinary(text string) bool {
	r, n := utf8.DecodeRuneInString(text)
	const softHyphen = 0xad
	return n == len(text) && (' ' <= r && r <= '~' || 0xa1 <= r && r <= 0x24f && r != softHyphen || 0x370 <= r && r <= 0x52f)
}

// decorate draws the lines under, through and over a stretch.
func (p *picture) decorate(style *api.ScreenStyle, look look, left, top, width int) {
	line := func(y int) {
		p.print(`<rect x="%d" y="%d" width="%d" height="1" fill="%s" shape-rendering="crispEdges"/>`+"\n", left, top+y, width, look.foreground)
	}
	under := look
	if color, ok := colorOf(style.UnderlineColor); ok {
		under.foreground = color
	}
	stroke := func(d, dashes string) {
		p.print(`<path d="%s" fill="none" stroke="%s"%s/>`+"\n", d, under.foreground, dashes)
	}
	straight := fmt.Sprintf("M%d %d.5h%d", left, top+16, width)
	switch style.Underline {
	case "single":
		stroke(straight, "")
	case "double":
		stroke(fmt.Sprintf("M%d %d.5h%dm-%d 2h%d", left, top+15, width, width, width), "")
	case "curly":
		stroke(fmt.Sprintf("M%d %dq1.5-3 3 0", left, top+16)+strings.Repeat("t3 0", width/3-1), "")
	case "dotted":
		stroke(straight, ` stroke-dasharray="1 2"`)
	case "dashed":
		stroke(straight, ` stroke-dasharray="5 4"`)
	}
	if style.Strike {
		line(10)
	}
	if style.Overline {
		line(0)
	}
}
