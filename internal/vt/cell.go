package vt

import "unicode/utf8"

// cell is one position of the screen: 16 bytes without pointers, so that a
// scrollback of many cells costs the garbage collector nothing.
type cell struct {
	ch uint32 // a character or a cluster, with flags; 0 means blank
	pen
}

const (
	chValue   = 1<<21 - 1 // the code point, or the index of a cluster
	chCluster = 1 << 21   // several code points in one cell
	chWide    = 1 << 22   // the left half of a wide character
	chTail    = 1 << 23   // its right half
)

// pen is the appearance of a character.
type pen struct {
	fg, bg uint32 // a color
	attrs  uint32 // attributes, underline style, and the index of an extra
}

// Colors are a kind in the upper byte and a value in the lower three.
const (
	colorDefault = 0
	colorIndexed = 1 << 24
	colorRGB     = 2 << 24
	colorKind    = 3 << 24
	colorValue   = 1<<24 - 1
)

// The lower bits of pen.attrs.
const (
	bold = 1 << iota
	dim
	italic
	blink
	inverse
	invisible
	strike
	overline
	protected // from selective erase (DECSCA); not visible

	underlineShift = iota
	underlineMask  = 7 << underlineShift
	extraShift     = underlineShift + 3
	maxExtra       = 1<<(32-extraShift) - 1
)

func (p *pen) underline() uint32         { return p.attrs & underlineMask >> underlineShift }
func (p *pen) setUnderline(style uint32) { p.attrs = p.attrs&^underlineMask | style<<underlineShift }
func (p *pen) extra() uint32             { return p.attrs >> extraShift }
func (p *pen) setExtra(i uint32)         { p.attrs = p.attrs&(1<<extraShift-1) | i<<extraShift }

// extra holds what few characters have; it is stored outside of the cells.
type extra struct {
	underline uint32 // color
	link, id  string // OSC 8
}

// line is one row of a screen or of its scrollback.
type line struct {
	cells   []cell
	wrapped bool // it continues the line above, which was full
}

func newLines(rows, cols int) []*line {
	slab := make([]line, rows)
	cells := make([]cell, rows*cols)
	lines := make([]*line, rows)
	for i := range lines {
		slab[i].cells = cells[i*cols : (i+1)*cols : (i+1)*cols]
		lines[i] = &slab[i]
	}
	return lines
}

// fit makes the line cols wide: it cuts longer lines and fills shorter ones.
func (l *line) fit(cols int) {
	switch n := len(l.cells); {
	case n > cols:
		l.cells = l.cells[:cols]
		if last := &l.cells[cols-1]; last.ch&chWide != 0 {
			last.ch = ' '
		}
	case cap(l.cells) >= cols:
		l.cells = l.cells[:cols]
		clear(l.cells[n:])
	default:
		l.cells = append(make([]cell, 0, cols), l.cells...)[:cols]
	}
}

// fill sets every cell and clears the wrapped flag.
func (l *line) fill(c cell) {
	l.wrapped = false
	if c == (cell{}) {
		clear(l.cells)
		return
	}
	for i := range l.cells {
		l.cells[i] = c
	}
}

// split blanks the other halves of wide characters that are cut when the cells
// from a up to b are overwritten.
func (l *line) split(a, b int, with cell) {
	if a > 0 && a < len(l.cells) && l.cells[a].ch&chTail != 0 {
		l.cells[a-1] = with
	}
	if b > 0 && b < len(l.cells) && l.cells[b].ch&chTail != 0 {
		l.cells[b] = with
	}
}

// erase blanks the cells from a up to b; if selective, protected cells stay.
func (l *line) erase(a, b int, with cell, selective bool) {
	b = min(b, len(l.cells))
	if a >= b {
		return
	}
	if !selective {
		l.split(a, b, with)
		for i := a; i < b; i++ {
			l.cells[i] = with
		}
		return
	}
	for i := a; i < b; i++ {
		if l.cells[i].attrs&protected == 0 {
			l.split(i, i+1, with)
			l.cells[i] = with
		}
	}
}

// insert moves the cells from a on to the right by n; cells that pass b are lost.
func (l *line) insert(a, b, n int, with cell) {
	n = min(n, b-a)
	l.split(a, a, with)
	l.split(b, b, with)
	if a < len(l.cells) && l.cells[a].ch&chTail != 0 {
		l.cells[a] = with
	}
	copy(l.cells[a+n:b], l.cells[a:b-n])
	for i := a; i < a+n; i++ {
		l.cells[i] = with
	}
	if l.cells[b-1].ch&chWide != 0 {
		l.cells[b-1] = with
	}
}

// remove moves the cells from a+n on to the left by n, and adds blanks before b.
func (l *line) remove(a, b, n int, with cell) {
	n = min(n, b-a)
	l.split(a, a+n, with)
	l.split(b, b, with)
	if b < len(l.cells) && l.cells[b-1].ch&chWide != 0 {
		l.cells[b-1] = with
	}
	copy(l.cells[a:b-n], l.cells[a+n:b])
	for i := b - n; i < b; i++ {
		l.cells[i] = with
	}
}

// internTable stores values that do not fit into a cell, under a number. It is
// bounded: when it is full, values that no cell refers to are removed, and if
// that frees no room, nothing is added.
type internTable[T comparable] struct {
	items []T // items[0] is the zero value
	index map[T]uint32
	cost  func(T) int
	used  int // sum of the costs
	limit int // value of used at which the table is swept
	rest  int // how many additions are refused before the next sweep
}

const (
	// internBudget bounds one table. It holds some thousand links or clusters,
	// which is more than fits on a readable screen.
	internBudget = 256 << 10
	// firstSweep is the size at which a table is first swept.
	firstSweep = 32 << 10
	// sweepRest keeps the cost of sweeping a full table small compared to that of
	// the output that fills it.
	sweepRest = 4096
)

// put returns the number of an item, 0 if there is no room. sweep calls keep for
// every number in use and then replaces them all by renumber.
func (h *internTable[T]) put(item T, sweep func(keep func(uint32), renumber func(uint32) uint32)) uint32 {
	var zero T
	if item == zero {
		return 0
	}
	if i, ok := h.index[item]; ok {
		return i
	}
	if h.index == nil {
		h.items, h.index, h.limit = make([]T, 1), map[T]uint32{}, firstSweep
	}
	cost := h.cost(item)
	if h.used+cost > h.limit || len(h.items) > maxExtra {
		if h.rest > 0 {
			h.rest--
			return 0
		}
		h.sweep(sweep)
		h.limit = min(internBudget, max(firstSweep, 2*h.used))
		if h.used+cost > h.limit || h.used > h.limit*3/4 {
			h.rest = sweepRest
		}
		if h.used+cost > h.limit || len(h.items) > maxExtra {
			return 0
		}
	}
	i := uint32(len(h.items))
	h.items = append(h.items, item)
	h.index[item] = i
	h.used += cost
	return i
}

func (h *internTable[T]) sweep(visit func(keep func(uint32), renumber func(uint32) uint32)) {
	numbers := make([]uint32, len(h.items))
	kept := h.items[:1:1]
	clear(h.index)
	h.used = 0
	visit(func(i uint32) {
		if i != 0 && numbers[i] == 0 {
			numbers[i] = uint32(len(kept))
			h.index[h.items[i]] = numbers[i]
			kept = append(kept, h.items[i])
			h.used += h.cost(h.items[i])
		}
	}, func(i uint32) uint32 { return numbers[i] })
	h.items = kept
}

func (h *internTable[T]) get(i uint32) T {
	if int(i) < len(h.items) {
		return h.items[i]
	}
	var zero T
	return zero
}

// appendChar appends the text of a cell to b: a space for a blank, nothing for
// the right half of a wide character.
func (s *Screen) appendChar(b []byte, ch uint32) []byte {
	switch {
	case ch&chTail != 0:
		return b
	case ch&chCluster != 0:
		return append(b, s.clusters.get(ch&chValue)...)
	case ch&chValue == 0:
		return append(b, ' ')
	}
	return utf8.AppendRune(b, rune(ch&chValue))
}
