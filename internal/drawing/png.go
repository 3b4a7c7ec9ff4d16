package drawing

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"strconv"
	"sync"
	"unicode/utf8"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/gomonobold"
	"golang.org/x/image/font/gofont/gomonobolditalic"
	"golang.org/x/image/font/gofont/gomonoitalic"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"github.com/terminal-runtime/trl/api"
)

// maxPixels bounds a PNG, which is drawn in memory with 4 bytes per pixel. A terminal
// of 100 rows and 200 columns has 3.4 million.
const maxPixels = 8_000_000

// ErrTooLarge is returned for a screen whose PNG would have too many pixels.
var ErrTooLarge = errors.New("the screen is too large for a picture")

// typefaces returns the Go fonts, by style. They have Latin, Greek, Cyrillic and common
// symbols; other characters are drawn as an empty box.
var typefaces = sync.OnceValues(func() (faces [4]*opentype.Font, err error) {
	for i, text := range [...][]byte{gomono.TTF, gomonobold.TTF, gomonoitalic.TTF, gomonobolditalic.TTF} {
		parsed, wrong := opentype.Parse(text)
		faces[i], err = parsed, errors.Join(err, wrong)
	}
	return faces, err
})

// substitutes maps symbols that tools print and the fonts lack to similar ones that
// they have.
var substitutes = map[rune]rune{
	'✓': '√', '✔': '√', '✗': '×', '✘': '×', '✖': '×', '❯': '›', '❮': '‹', '⏺': '•', '◉': '●', '⚠': '▲', '➜': '→', '⎿': '└',
}

// PNG draws a screen that was requested as JSON, for clients that cannot show an SVG.
func PNG(screen *api.SessionScreenResult) ([]byte, error) {
	cols, rows := max(screen.Cols, 1), max(screen.Rows, 1)
	width, height := cols*cellWidth+2*padding, rows*cellHeight+2*padding
	if cols > maxPixels || rows > maxPixels || width*height > maxPixels {
		return nil, ErrTooLarge
	}
	c := &canvas{img: image.NewRGBA(image.Rect(0, 0, width, height))}
	c.fill(c.img.Bounds(), defaultBackground)
	for y, line := range screen.Lines[:min(len(screen.Lines), rows)] {
		for _, cell := range cellsOf(line, cols, cursorIn(screen, y)) {
			if err := c.cell(padding+cell.x*cellWidth, padding+y*cellHeight, cell); err != nil {
				return nil, err
			}
		}
	}
	var out bytes.Buffer
	err := png.Encode(&out, c.img)
	return out.Bytes(), err
}

// canvas is a PNG being drawn.
type canvas struct {
	img   *image.RGBA
	faces [4]font.Face // made when needed; a face is not safe for concurrent use
}

// rgba converts a color, which must be #rrggbb.
func rgba(name string) color.RGBA {
	n, _ := strconv.ParseUint(name[1:], 16, 24)
	return color.RGBA{R: uint8(n >> 16), G: uint8(n >> 8), B: uint8(n), A: 0xff}
}

func (c *canvas) fill(where image.Rectangle, color string) {
	draw.Draw(c.img, where, image.NewUniform(rgba(color)), image.Point{}, draw.Src)
}

// cell draws one cell with the given upper left corner.
func (c *canvas) cell(left, top int, cell cell) error {
	look := colorsOf(&cell.style)
	whole := image.Rect(left, top, left+cell.width*cellWidth, top+cellHeight)
	if look.background != defaultBackground {
		c.fill(whole, look.background)
	}
	c.decorate(&cell.style, look, whole)
	if cell.style.Invisible || cell.text == " " {
		return nil
	}
	if isShape(cell.text) {
		c.shape(whole, cell.text, look)
		return nil
	}
	return c.glyphs(whole, cell, look)
}

// shape draws a line or a block. Round corners are drawn square.
func (c *canvas) shape(whole image.Rectangle, text string, look colors) {
	r, _ := utf8.DecodeRuneInString(text)
	s := &shape{left: whole.Min.X, top: whole.Min.Y}
	switch {
	case 0x2591 <= r && r <= 0x2593: // ░▒▓
		quarters := uint64(r-0x2591) + 1
		c.fill(whole, blend(look.foreground, look.background, quarters, 4))
	case r >= 0x2580:
		s.block(r)
	default:
		s.box(r)
	}
	pixel := func(eighths int) int { return (eighths + 4) / 8 }
	for _, r := range s.rects {
		c.fill(image.Rect(pixel(r.x0), pixel(r.y0), pixel(r.x1), pixel(r.y1)), look.foreground)
	}
}

// glyphs draws the characters of a cell on top of each other, centred.
func (c *canvas) glyphs(whole image.Rectangle, cell cell, look colors) error {
	face, err := c.face(&cell.style)
	if err != nil {
		return err
	}
	d := font.Drawer{Dst: c.img, Src: image.NewUniform(rgba(look.foreground)), Face: face}
	for _, r := range cell.text {
		if other, ok := substitutes[r]; ok {
			r = other
		}
		advance, _ := face.GlyphAdvance(r)
		left := fixed.I(whole.Min.X) + max(fixed.I(whole.Dx())-advance, 0)/2
		d.Dot = fixed.Point26_6{X: left, Y: fixed.I(whole.Min.Y + baseline)}
		d.DrawString(string(r))
	}
	return nil
}

func (c *canvas) face(style *api.ScreenStyle) (font.Face, error) {
	i := 0
	if style.Bold {
		i++
	}
	if style.Italic {
		i += 2
	}
	if c.faces[i] == nil {
		fonts, err := typefaces()
		if err != nil {
			return nil, err
		}
		c.faces[i], err = opentype.NewFace(fonts[i], &opentype.FaceOptions{Size: fontSize, DPI: 72, Hinting: font.HintingFull})
		if err != nil {
			return nil, err
		}
	}
	return c.faces[i], nil
}

// decorate draws the lines under, through and over a cell.
func (c *canvas) decorate(style *api.ScreenStyle, look colors, whole image.Rectangle) {
	line := func(y int, color string, on, of int) {
		for x := whole.Min.X; x < whole.Max.X; x++ {
			if x%of < on {
				c.img.SetRGBA(x, whole.Min.Y+y, rgba(color))
			}
		}
	}
	under := look.foreground
	if color, ok := colorOf(style.UnderlineColor); ok {
		under = color
	}
	switch style.Underline {
	case "single":
		line(16, under, 1, 1)
	case "double":
		line(15, under, 1, 1)
		line(17, under, 1, 1)
	case "curly":
		line(16, under, 2, 4)
		line(17, under, 1, 2)
	case "dotted":
		line(16, under, 1, 3)
	case "dashed":
		line(16, under, 5, 9)
	}
	if style.Strike {
		line(10, look.foreground, 1, 1)
	}
	if style.Overline {
		line(0, look.foreground, 1, 1)
	}
}
