package drawing

import (
	"fmt"
	"strconv"

	"github.com/terminal-runtime/trl/api"
)

// The terminal's default colors.
const (
	defaultForeground = "#d7dae0"
	defaultBackground = "#16181d"
)

// palette has the sixteen named ANSI colors.
var palette = [16]string{
	"#2c313c", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4",
	"#6b7280", "#ff7b86", "#b5e890", "#ffd68a", "#82c4ff", "#e39bf7", "#7fdbe6", "#ffffff",
}

// colorOf returns a color of a style as #rrggbb. ok is false for the default color and
// for invalid names.
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

// dim returns a color dimmed to three fifths on its background.
func dim(color, background string) string { return blend(color, background, 3, 5) }

// blend mixes parts/of of a color with its background, which makes up the rest.
func blend(color, background string, parts, of uint64) string {
	a, _ := strconv.ParseUint(color[1:], 16, 24)
	b, _ := strconv.ParseUint(background[1:], 16, 24)
	mixed := uint64(0)
	for shift := 0; shift < 24; shift += 8 {
		mixed |= (parts*(a>>shift&0xff) + (of-parts)*(b>>shift&0xff)) / of << shift
	}
	return fmt.Sprintf("#%06x", mixed)
}

// colors are the effective colors of a style.
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
