package drawing

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/terminal-runtime/trl/api"
)

// barHeight is the height of the title bar.
const barHeight = 32

// fonts are monospace fonts that systems ship with, in order of preference.
const fonts = `ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace`

// SVG draws a screen that was requested as JSON. Text uses the viewer's monospace font
// and is fitted to the grid piece by piece. A title is shown in a bar above the screen;
// without a title there is no bar.
func SVG(screen *api.SessionScreenResult, title string) []byte {
	p := &svgWriter{top: padding, cols: max(screen.Cols, 1)}
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
	for y, line := range screen.Lines[:min(len(screen.Lines), rows)] {
		p.row(y, cellsOf(line, p.cols, cursorIn(screen, y)))
	}
	p.print("</g>\n</svg>\n")
	return p.out.Bytes()
}

// svgWriter is an SVG being drawn.
type svgWriter struct {
	out  bytes.Buffer
	top  int // of the grid
	cols int
}

func (p *svgWriter) print(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

// escape escapes text for the inside of an element. Characters that XML cannot
// represent become U+FFFD.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // writing to a Builder never fails
	return b.String()
}

// bar draws the title bar with the buttons of a window.
func (p *svgWriter) bar(title string, width int) {
	for i, fill := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		p.print(`<circle cx="%d" cy="16" r="5.5" fill="%s"/>`+"\n", 20+18*i, fill)
	}
	// The title must not overlap the buttons.
	if room := (width - 2*(20+18*3)) / 8; utf8.RuneCountInString(title) > max(room, 0) {
		title = string([]rune(title)[:max(room-1, 0)]) + "…"
	}
	p.print(`<text x="%d" y="20" font-size="13" text-anchor="middle" fill="%s">%s</text>`+"\n", width/2, dim(defaultForeground, defaultBackground), escape(title))
}

// row draws a row as runs of cells of one style.
func (p *svgWriter) row(y int, cells []cell) {
	for len(cells) > 0 {
		n := 1
		for n < len(cells) && cells[n].style == cells[0].style && cells[n].x == cells[n-1].x+cells[n-1].width {
			n++
		}
		p.styledRun(y, cells[:n])
		cells = cells[n:]
	}
}

// styledRun draws consecutive cells of one style.
func (p *svgWriter) styledRun(y int, cells []cell) {
	look := colorsOf(&cells[0].style)
	last := cells[len(cells)-1]
	left, top := p.cellOrigin(cells[0].x, y)
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
		case isShape(cells[0].text):
			n = p.shapes(y, cells, look)
		default:
			n = p.text(y, cells, look)
		}
		cells = cells[n:]
	}
}

// cellOrigin returns the upper left corner of the cell at column x and row y.
func (p *svgWriter) cellOrigin(x, y int) (left, top int) {
	return padding + x*cellWidth, p.top + y*cellHeight
}

// text draws the leading cells as one piece of text and returns their number: all
// whose width is reliable, otherwise one.
func (p *svgWriter) text(y int, cells []cell, look colors) int {
	n := 0
	for n < len(cells) && hasReliableWidth(cells[n].text) {
		if cells[n].text == " " && (n+1 == len(cells) || !hasReliableWidth(cells[n+1].text) || cells[n+1].text == " ") {
			break // consecutive blanks would collapse into one
		}
		n++
	}
	left, top := p.cellOrigin(cells[0].x, y)
	var attributes strings.Builder
	if n == 0 {
		// Its width depends on the font, so centre it.
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

// hasReliableWidth reports whether a character exists in every monospace font with the
// common width and is written from left to right: Latin, Greek and Cyrillic.
func hasReliableWidth(text string) bool {
	r, n := utf8.DecodeRuneInString(text)
	const softHyphen = 0xad
	return n == len(text) && (' ' <= r && r <= '~' || 0xa1 <= r && r <= 0x24f && r != softHyphen || 0x370 <= r && r <= 0x52f)
}

// decorate draws the lines under, through and over a run.
func (p *svgWriter) decorate(style *api.ScreenStyle, look colors, left, top, width int) {
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
