package drawing

import (
	"fmt"
	"strconv"

	"github.com/terminal-runtime/trl/api"
)

// The colors that a program leaves to the terminal.
const (
	defaultForeground = "#d7dae0"
	defaultBackground = "#16181d"
)

// named are the sixteen that have names in programs, and look like them here.
var palette = [16]string{
	"#2c313c", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4",
	"#6b7280", "#ff7b86", "#b5e890", "#ffd68a", "#82c4ff", "#e39bf7", "#7fdbe6", "#ffffff",
}

// colorOf is a color of a style as #rrggbb. ok is false for the default, and for
// what is no color.
func colorOf(name string) (color string, ok bool) {
	if len(name) == 7 && name[0] == '#' {
		n, err := strconv.ParseUint(name[1:], 16, 24)
		return fmt.Sprintf("#%06x", n), err == nil
	}
	n, err := strconv.ParseUint(name, 10, 8)
	if err != nil {
		return "", false
	}
	switch {
	case n < 16:
		return palette[n], true
	case n < 232: // a cube of six steps in each of red, green and blue
		step := func(n uint64) uint64 {
			if n == 0 {
				return 0
			}
			return 55 + 40*n
		}
		n -= 16
		return fmt.Sprintf("#%02x%02x%02x", step(n/36), step(n/6%6), step(n%6)), true
	default:
		gray := 8 + 10*(n-232)
		return fmt.Sprintf("#%02x%02x%02x", gray, gray, gray), true
	}
}

// mix is a color that is dimmed on its background: three fifths of it are left.
func dim(color, background string) string { return blend(color, background, 3, 5) }

// blend is so many parts of a color on its background, which has the others.
func blend(color, background string, parts, of uint64) string {
	a, _ := strconv.ParseUint(color[1:], 16, 24)
	b, _ := strconv.ParseUint(background[1:], 16, 24)
	mixed := uint64(0)
	for shift := 0; shift < 24; shift += 8 {
		mixed |= (parts*(a>>shift&0xff) + (of-parts)*(b>>shift&0xff)) / of << shift
	}
	return fmt.Sprintf("#%06x", mixed)
}

// look is the colors that a style comes to.
type colors struct{ foreground, background string }

func colorsOf(style *api.ScreenStyle) colors {
	l := colors{defaultForeground, defaultBackground}
	if color, ok := colorOf(style.Foreground); ok {
		l.foreground = color
	}
	if color, ok := colorOf(style.Background); ok {
		l.background = color
	}
	if style.Inverse {
		l.foreground, l.background = l.background, l.foreground
	}
	if style.Dim {
		l.foreground = dim(l.foreground, l.background)
	}
	return l
}
