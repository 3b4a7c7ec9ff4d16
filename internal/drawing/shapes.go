package drawing

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// arms lists for each of the box drawing characters U+2500 to U+257F the lines from
// its middle up, right, down and left: 0 none, 1 light, 2 heavy, 3 double. The font
// draws the diagonals.
const arms = "" +
	"0101 0202 1010 2020 0101 0202 1010 2020 0101 0202 1010 2020 0110 0210 0120 0220 " + // ─━│┃┄┅┆┇┈┉┊┋┌┍┎┏
	"0011 0012 0021 0022 1100 1200 2100 2200 1001 1002 2001 2002 1110 1210 2110 1120 " + // ┐┑┒┓└┕┖┗┘┙┚┛├┝┞┟
	"2120 2210 1220 2220 1011 1012 2011 1021 2021 2012 1022 2022 0111 0112 0211 0212 " + // ┠┡┢┣┤┥┦┧┨┩┪┫┬┭┮┯
	"0121 0122 0221 0222 1101 1102 1201 1202 2101 2102 2201 2202 1111 1112 1211 1212 " + // ┰┱┲┳┴┵┶┷┸┹┺┻┼┽┾┿
	"2111 1121 2121 2112 2211 1122 1221 2212 1222 2122 2221 2222 0101 0202 1010 2020 " + // ╀╁╂╃╄╅╆╇╈╉╊╋╌╍╎╏
	"0303 3030 0310 0130 0330 0013 0031 0033 1300 3100 3300 1003 3001 3003 1310 3130 " + // ═║╒╓╔╕╖╗╘╙╚╛╜╝╞╟
	"3330 1013 3031 3033 0313 0131 0333 1303 3101 3303 1313 3131 3333 0110 0011 1001 " + // ╠╡╢╣╤╥╦╧╨╩╪╫╬╭╮╯
	"1100 0000 0000 0000 0001 1000 0100 0010 0002 2000 0200 0020 0201 1020 0102 2010 " // ╰╱╲╳╴╵╶╷╸╹╺╻╼╽╾╿

// The weights of an arm.
const (
	none = iota
	light
	heavy
	double
)

// The positions of the arms in the table.
const (
	up = iota
	right
	down
	left
)

// isShape reports whether a character is drawn as a shape.
func isShape(text string) bool {
	r, n := utf8.DecodeRuneInString(text)
	return n == len(text) && (0x2500 <= r && r <= 0x259f) && (r < 0x2571 || r > 0x2573)
}

// shapes draws the leading cells that are shapes as one path, and returns their
// number.
func (p *svgWriter) shapes(y int, cells []cell, look colors) int {
	s := &shape{}
	n := 0
	for n < len(cells) && isShape(cells[n].text) {
		s.left, s.top = p.cellOrigin(cells[n].x, y)
		r, _ := utf8.DecodeRuneInString(cells[n].text)
		switch {
		case 0x2591 <= r && r <= 0x2593: // ░▒▓
			p.print(`<rect x="%d" y="%d" width="%d" height="%d" fill="%s" fill-opacity="%s"/>`+"\n",
				s.left, s.top, cellWidth, cellHeight, look.foreground, [...]string{".25", ".5", ".75"}[r-0x2591])
		case r >= 0x2580:
			s.block(r)
		case 0x256d <= r && r <= 0x2570:
			p.print(`<path d="%s" fill="none" stroke="%s"/>`+"\n", s.arc(r), look.foreground)
		default:
			s.box(r)
		}
		n++
	}
	if len(s.rects) > 0 {
		p.print(`<path d="%s" fill="%s" shape-rendering="crispEdges"/>`+"\n", s.path(), look.foreground)
	}
	return n
}

// shape is a set of rectangles. left and top are the corner of the current cell.
type shape struct {
	left, top int
	rects     []rect
}

// rect is in eighths of a unit, because blocks are divided into eighths.
type rect struct{ x0, y0, x1, y1 int }

// add adds a rectangle, relative to the current cell and in eighths of a unit.
func (s *shape) add(x0, y0, x1, y1 int) {
	x, y := 8*s.left, 8*s.top
	r := rect{x + x0, y + y0, x + x1, y + y1}
	if n := len(s.rects); n > 0 {
		if last := &s.rects[n-1]; last.y0 == r.y0 && last.y1 == r.y1 && last.x0 <= r.x0 && r.x0 <= last.x1 {
			last.x1 = max(last.x1, r.x1) // join lines that span several cells
			return
		}
	}
	s.rects = append(s.rects, r)
}

func (s *shape) path() string {
	var b strings.Builder
	for _, r := range s.rects {
		fmt.Fprintf(&b, "M%s %sH%sV%sH%sz", eighths(r.x0), eighths(r.y0), eighths(r.x1), eighths(r.y1), eighths(r.x0))
	}
	return b.String()
}

func eighths(n int) string {
	if n%8 == 0 {
		return fmt.Sprint(n / 8)
	}
	return strings.TrimRight(fmt.Sprintf("%d.%03d", n/8, n%8*125), "0")
}

// block adds one of ▀ to ▟, except the shades.
func (s *shape) block(r rune) {
	const w, h = cellWidth, cellHeight // in eighths of the cell
	switch {
	case r == 0x2580:
		s.add(0, 0, 8*w, 4*h)
	case r <= 0x2588: // from below
		s.add(0, (0x2588-int(r))*h, 8*w, 8*h)
	case r <= 0x258f: // from the left
		s.add(0, 0, (0x2590-int(r))*w, 8*h)
	case r == 0x2590:
		s.add(4*w, 0, 8*w, 8*h)
	case r == 0x2594:
		s.add(0, 0, 8*w, h)
	case r == 0x2595:
		s.add(7*w, 0, 8*w, 8*h)
	default:
		// Quadrants: upper left, upper right, lower left, lower right.
		quadrants := [...]string{"0010", "0001", "1000", "1011", "1001", "1110", "1101", "0100", "0110", "0111"}[r-0x2596]
		for i, q := range quadrants {
			if q == '1' {
				x, y := i%2*4*w, i/2*4*h
				s.add(x, y, x+4*w, y+4*h)
			}
		}
	}
}

// The position of a cell's light lines, which are one unit thick.
const (
	middleX = cellWidth / 2
	middleY = cellHeight / 2
)

// box adds one of the box drawing characters.
func (s *shape) box(r rune) {
	const each = len("0000 ")
	var weights [4]int
	for i := range weights {
		weights[i] = int(arms[(int(r)-0x2500)*each+i] - '0')
	}
	if n := dashes(r); n > 0 {
		s.dashed(n, weights)
		return
	}
	for arm := range weights {
		switch weights[arm] {
		case light:
			s.arm(arm, 0, 1, reach(weights, arm))
		case heavy:
			s.arm(arm, -1, 3, reach(weights, arm))
		case double:
			s.arm(arm, -1, 1, reachOfDouble(weights, arm, -1))
			s.arm(arm, 1, 1, reachOfDouble(weights, arm, 1))
		}
	}
}

// arm adds a line from the edge of the cell to reach units beyond its middle. It is
// thick units wide, and aside units away from the middle.
func (s *shape) arm(arm, aside, thick, reach int) {
	x, y := middleX+aside, middleY+aside
	switch arm {
	case up:
		s.add(8*x, 0, 8*(x+thick), 8*(middleY+1+reach))
	case right:
		s.add(8*(middleX-reach), 8*y, 8*cellWidth, 8*(y+thick))
	case down:
		s.add(8*x, 8*(middleY-reach), 8*(x+thick), 8*cellHeight)
	case left:
		s.add(0, 8*y, 8*(middleX+1+reach), 8*(y+thick))
	}
}

// reach returns how far beyond the middle a single line extends to meet the lines that
// cross it.
func reach(weights [4]int, arm int) int {
	one, other := weights[(arm+1)%4], weights[(arm+3)%4]
	switch {
	case weights[(arm+2)%4] != none:
		return 0
	case one == double && other == double:
		return -1
	case max(one, other) > light:
		return 1
	}
	return 0
}

// reachOfDouble is reach for one of the two lines of a double arm: the one on the
// given side of the middle.
func reachOfDouble(weights [4]int, arm, side int) int {
	// The positive side is below a horizontal arm, and to the right of a vertical one.
	near, far := weights[down], weights[up]
	if arm == up || arm == down {
		near, far = weights[right], weights[left]
	}
	if side < 0 {
		near, far = far, near
	}
	switch {
	case near == double:
		return -1
	case weights[(arm+2)%4] == none && far == double:
		return 1
	}
	return 0
}

// dashes returns the number of dashes in the line of a character; 0 if it is solid.
func dashes(r rune) int {
	switch {
	case 0x2504 <= r && r <= 0x2507:
		return 3
	case 0x2508 <= r && r <= 0x250b:
		return 4
	case 0x254c <= r && r <= 0x254f:
		return 2
	}
	return 0
}

// dashed adds a line of n dashes, each followed by a gap of half its length.
func (s *shape) dashed(n int, weights [4]int) {
	weight := max(weights[up], weights[right])
	aside, thick := 0, 1
	if weight == heavy {
		aside, thick = -1, 3
	}
	for i := range n {
		if weights[up] != none {
			step := 8 * cellHeight / n
			s.add(8*(middleX+aside), i*step, 8*(middleX+aside+thick), i*step+step*2/3)
		} else {
			step := 8 * cellWidth / n
			s.add(i*step, 8*(middleY+aside), i*step+step*2/3, 8*(middleY+aside+thick))
		}
	}
}

// arc returns the path of one of ╭╮╯╰.
func (s *shape) arc(r rune) string {
	x, y := float64(s.left)+middleX+.5, float64(s.top)+middleY+.5
	edgeX, edgeY := s.left, s.top
	if r == 0x256d || r == 0x2570 { // ╭╰
		edgeX += cellWidth
	}
	if r == 0x256d || r == 0x256e { // ╭╮
		edgeY += cellHeight
	}
	bend := y + 4.5 // where the curve begins, as far from the middle as its end
	if edgeY == s.top {
		bend = y - 4.5
	}
	return fmt.Sprintf("M%g %dV%gQ%g %g %d %g", x, edgeY, bend, x, y, edgeX, y)
}
