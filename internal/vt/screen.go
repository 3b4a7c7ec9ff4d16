package vt

// MaxTTYSide limits the rows and columns that a client may ask for: larger ones are
// a mistake, and a screen costs memory.
const MaxTTYSide = 1000

// Limits of a screen. They keep a wrong number from costing a gigabyte.
const (
	minRows, minCols = 1, 2 // a wide character needs two columns
	maxSide          = 2000 // larger than any window; 64 MB when both are
	maxScrollback    = 100_000
	// maxCluster bounds the bytes of one cell: a letter and more marks than any
	// script needs.
	maxCluster = 128
)

// Config configures a Screen. Zero values mean 24 rows, 80 columns, and no
// scrollback.
type Config struct {
	Rows, Cols int
	Scrollback int // lines kept after they leave the top of the main screen
}

// Screen is a terminal emulator without a window: bytes go in, and what a person
// would see can be read at any time. It is not safe for concurrent use.
type Screen struct {
	rows, cols int
	parser     parser

	main, alt grid  // alt has no lines before it is first used
	on        *grid // main or alt

	// The cursor. x is always a column of the screen; pending means that the last
	// column (or the right margin) has been written, and the next character goes
	// to the next line.
	x, y    int
	pending bool
	pen     pen
	extra   extra // content of pen's extra
	sets    charsets

	// preceding is the width of the last printed character, for marks that join
	// it and for REP; 0 after anything else.
	preceding int

	modes   modes
	style   CursorStyle
	title   string
	icon    string
	titles  []string // XTWINOPS 22 and 23
	icons   []string
	dir     string
	palette palette
	bells   int

	history  history
	extras   internTable[extra]
	clusters internTable[string]

	answers []byte
}

// grid is one of the two screens, with its own state.
type grid struct {
	lines                    []*line
	top, bottom, left, right int // margins, inclusive
	tabs                     []bool
	saved                    savedCursor
	row                      int // of the cursor, when the other screen was entered
}

// savedCursor is the state that DECSC saves.
type savedCursor struct {
	x, y   int
	pen    pen // without its extra, which is in extra
	extra  extra
	sets   charsets
	origin bool
}

// charsets are the four character sets, each by its final byte (0 is ASCII), and
// which of them is in use.
type charsets struct {
	g  [4]byte
	gl uint8
}

// New returns a blank screen.
func New(c Config) *Screen {
	s := &Screen{rows: 24, cols: 80}
	if c.Rows > 0 {
		s.rows = min(max(c.Rows, minRows), maxSide)
	}
	if c.Cols > 0 {
		s.cols = min(max(c.Cols, minCols), maxSide)
	}
	s.history.limit = min(max(c.Scrollback, 0), maxScrollback)
	s.extras.cost = func(e extra) int { return 64 + len(e.link) + len(e.id) }
	s.clusters.cost = func(c string) int { return 48 + len(c) }
	s.reset()
	return s
}

// Write processes output of a program. It always consumes all of it and never
// fails, and how output is split into writes makes no difference.
func (s *Screen) Write(b []byte) (int, error) {
	s.parser.write(s, b)
	return len(b), nil
}

// reset is RIS: everything but the size returns to its initial state.
func (s *Screen) reset() {
	if s.main.lines == nil {
		s.main.lines = newLines(s.rows, s.cols)
	}
	s.main.reset(s.rows, s.cols, cell{})
	s.alt.resetMargins(s.rows, s.cols)
	s.main.saved, s.alt.saved = savedCursor{}, savedCursor{}
	s.on = &s.main
	s.x, s.y, s.pending = 0, 0, false
	s.pen, s.extra, s.sets = pen{}, extra{}, charsets{}
	s.modes, s.style = newModes(), CursorStyle{}
	s.title, s.icon, s.titles, s.icons, s.dir = "", "", nil, nil, ""
	s.palette = palette{}
	s.history.clear()
}

// reset blanks a screen and resets its margins and tabs. The saved cursor stays.
func (g *grid) reset(rows, cols int, with cell) {
	for _, l := range g.lines {
		l.fill(with)
	}
	g.resetMargins(rows, cols)
	g.tabs = defaultTabs(g.tabs[:0], cols)
}

func (g *grid) resetMargins(rows, cols int) {
	g.top, g.bottom, g.left, g.right = 0, rows-1, 0, cols-1
}

// defaultTabs extends tabs to cols with a stop at every eighth column.
func defaultTabs(tabs []bool, cols int) []bool {
	for x := len(tabs); x < cols; x++ {
		tabs = append(tabs, x > 0 && x%8 == 0)
	}
	return tabs[:cols]
}

// blank returns the cell that erasing leaves: the background color stays (BCE).
func (s *Screen) blank() cell { return cell{pen: pen{bg: s.pen.bg}} }

// space returns the cell that replaces a wide character that was cut.
func (s *Screen) space() cell { return cell{ch: ' ', pen: s.pen} }

func (s *Screen) line() *line { return s.on.lines[s.y] }

// ---------------------------------------------------------------- printing

// text prints a run of ASCII. Nearly all output goes through it.
func (s *Screen) text(b []byte) {
	if s.modes.on(insertMode|leftRightMargins) || s.sets.g[s.sets.gl] != 0 {
		for _, c := range b {
			s.char(rune(c))
		}
		return
	}
	p := s.pen
	for len(b) > 0 {
		if s.pending {
			s.pending = false
			if s.modes.on(autoWrap) {
				s.wrap()
			}
		}
		l := s.line()
		cells := l.cells[s.x:]
		n := min(len(b), len(cells))
		l.split(s.x, s.x+n, cell{ch: ' ', pen: p})
		to, from := cells[:n], b[:n]
		for i := range to {
			to[i] = cell{ch: uint32(from[i]), pen: p}
		}
		b = b[n:]
		if n < len(cells) {
			s.x += n
			break
		}
		s.x, s.pending = s.cols-1, true
		if len(b) > 0 && !s.modes.on(autoWrap) {
			// Text that does not fit overwrites the last column.
			b = b[len(b)-1:]
		}
	}
	s.preceding = 1
}

// char prints any character.
func (s *Screen) char(r rune) {
	if r == '\ufeff' { // a byte order mark is not a character
		return
	}
	if r < 0x7f {
		if set := s.sets.g[s.sets.gl]; set != 0 {
			r = translate(set, r)
		}
	}
	w := runeWidth(r)
	if w == 0 {
		if s.preceding != 0 || s.pending {
			s.combine(r)
			return
		}
		// A mark without a preceding character gets its own cell.
		s.put(uint32(r), 1)
		s.preceding = 0
		return
	}
	s.put(uint32(r), w)
	s.preceding = w
}

// combine adds a mark to the character before the cursor.
func (s *Screen) combine(r rune) {
	x := s.x
	if !s.pending {
		x--
	}
	cells := s.line().cells
	if x > 0 && cells[x].ch&chTail != 0 {
		x--
	}
	if x < 0 || alone(cells[x].ch) {
		return
	}
	c := &cells[x]
	var room [maxCluster]byte
	b := s.appendChar(room[:0], c.ch)
	if len(b)+4 > maxCluster {
		return
	}
	b = append(b, string(r)...)
	if i := s.clusters.put(string(b), s.visitClusters); i != 0 {
		c.ch = c.ch&chWide | chCluster | i
	}
}

// alone reports whether a cell is a mark without a base character.
func alone(ch uint32) bool {
	return ch&(chCluster|chTail) == 0 && ch&chValue != 0 && runeWidth(rune(ch&chValue)) == 0
}

// put writes a character of width w at the cursor.
func (s *Screen) put(ch uint32, w int) {
	right := s.rightEdge()
	wraps := s.modes.on(autoWrap)
	if s.pending {
		s.pending = false
		if wraps {
			s.wrap()
			right = s.rightEdge()
		}
	}
	if w == 2 && s.x >= right {
		if !wraps {
			return // it does not fit, and cannot wrap
		}
		s.line().erase(s.x, right+1, s.space(), false)
		s.wrap()
		right = s.rightEdge()
		if s.x >= right {
			return // margins of one column
		}
	}
	l := s.line()
	if s.modes.on(insertMode) && s.x <= right {
		l.insert(s.x, right+1, w, s.space())
	}
	l.split(s.x, s.x+w, s.space())
	if w == 2 {
		l.cells[s.x] = cell{ch: ch | chWide, pen: s.pen}
		l.cells[s.x+1] = cell{ch: chTail, pen: s.pen}
	} else {
		l.cells[s.x] = cell{ch: ch, pen: s.pen}
	}
	s.x += w
	if s.x > right {
		s.x, s.pending = right, true
	}
}

// rightEdge returns the last column that text fills before it wraps.
func (s *Screen) rightEdge() int {
	if s.x <= s.on.right {
		return s.on.right
	}
	return s.cols - 1
}

// leftEdge returns the column that a carriage return moves to.
func (s *Screen) leftEdge() int {
	if s.x >= s.on.left || s.modes.on(origin) {
		return s.on.left
	}
	return 0
}

// wrap moves to the beginning of the next line and marks it as a continuation.
func (s *Screen) wrap() {
	s.x = s.leftEdge()
	s.down()
	s.line().wrapped = true
}

// down moves one line down, scrolling at the bottom margin.
func (s *Screen) down() {
	switch {
	case s.y == s.on.bottom:
		s.scrollUp(s.on.top, s.on.bottom, 1, s.blank())
	case s.y < s.rows-1:
		s.y++
	}
}

// up moves one line up, scrolling at the top margin.
func (s *Screen) up() {
	switch {
	case s.y == s.on.top:
		s.scrollDown(s.on.top, s.on.bottom, 1, s.blank())
	case s.y > 0:
		s.y--
	}
}

// ---------------------------------------------------------------- scrolling

// narrow reports whether the margins exclude columns.
func (g *grid) narrow(cols int) bool { return g.left > 0 || g.right < cols-1 }

// scrollUp moves the lines from top to bottom up by n. Lines that leave the top
// of the whole main screen go to the scrollback.
func (s *Screen) scrollUp(top, bottom, n int, with cell) {
	n = min(n, bottom-top+1)
	g := s.on
	if g.narrow(s.cols) {
		for y := top; y <= bottom; y++ {
			if y+n <= bottom {
				s.copyColumns(y, y+n, with)
			} else {
				g.lines[y].erase(g.left, g.right+1, with, false)
			}
		}
		return
	}
	keep := top == 0 && g == &s.main
	for range n {
		l := g.lines[top]
		copy(g.lines[top:bottom], g.lines[top+1:bottom+1])
		if keep {
			l = s.history.push(l, s.cols)
		}
		l.fill(with)
		g.lines[bottom] = l
	}
}

// scrollDown moves the lines from top to bottom down by n.
func (s *Screen) scrollDown(top, bottom, n int, with cell) {
	n = min(n, bottom-top+1)
	g := s.on
	if g.narrow(s.cols) {
		for y := bottom; y >= top; y-- {
			if y-n >= top {
				s.copyColumns(y, y-n, with)
			} else {
				g.lines[y].erase(g.left, g.right+1, with, false)
			}
		}
		return
	}
	for range n {
		l := g.lines[bottom]
		copy(g.lines[top+1:bottom+1], g.lines[top:bottom])
		l.fill(with)
		g.lines[top] = l
	}
}

// copyColumns copies the cells between the left and the right margin.
func (s *Screen) copyColumns(to, from int, with cell) {
	left, right := s.on.left, s.on.right
	src, dst := s.on.lines[from], s.on.lines[to]
	dst.split(left, right+1, with)
	copy(dst.cells[left:right+1], src.cells[left:right+1])
	if dst.cells[left].ch&chTail != 0 {
		dst.cells[left] = with
	}
	if dst.cells[right].ch&chWide != 0 {
		dst.cells[right] = with
	}
}

// history is the scrollback: a ring of the newest lines.
type history struct {
	lines []*line
	first int // the oldest
	limit int
}

// push adds a line and returns one to use in its place.
func (h *history) push(l *line, cols int) *line {
	if h.limit == 0 {
		return l
	}
	if len(h.lines) < h.limit {
		h.lines = append(h.lines, l)
		return &line{cells: make([]cell, cols)}
	}
	old := h.lines[h.first]
	h.lines[h.first] = l
	h.first++
	if h.first == h.limit {
		h.first = 0
	}
	if len(old.cells) != cols {
		return &line{cells: make([]cell, cols)}
	}
	return old
}

// pop removes and returns the newest line; nil if there is none.
func (h *history) pop() *line {
	n := len(h.lines)
	if n == 0 {
		return nil
	}
	if h.first > 0 {
		h.lines = append(append(make([]*line, 0, n), h.lines[h.first:]...), h.lines[:h.first]...)
		h.first = 0
	}
	l := h.lines[n-1]
	h.lines[n-1] = nil
	h.lines = h.lines[:n-1]
	return l
}

func (h *history) clear() { h.lines, h.first = nil, 0 }

// at returns the i-th line, the oldest first.
func (h *history) at(i int) *line {
	i += h.first
	if i >= len(h.lines) {
		i -= len(h.lines)
	}
	return h.lines[i]
}

// ---------------------------------------------------------------- size

// Size returns the number of rows and columns.
func (s *Screen) Size() (rows, cols int) { return s.rows, s.cols }

// Resize changes the size, within the limits of New. Lines are not rewrapped:
// cells right of a narrower screen are cut off. A lower screen loses lines below
// the cursor first; then lines at the top go to the scrollback, and come back
// from there when the screen grows. The line of the cursor always stays. Margins
// are reset, as terminals do.
func (s *Screen) Resize(rows, cols int) {
	rows, cols = min(max(rows, minRows), maxSide), min(max(cols, minCols), maxSide)
	if rows == s.rows && cols == s.cols {
		return
	}
	s.resizeGrid(&s.main, rows, cols)
	if s.on == &s.alt {
		s.resizeGrid(&s.alt, rows, cols)
	} else {
		s.alt.lines = nil // it is blank when it is entered again
		s.alt.saved.x, s.alt.saved.y = min(s.alt.saved.x, cols-1), min(s.alt.saved.y, rows-1)
	}
	if s.pending && cols != s.cols {
		s.pending = false
	}
	s.rows, s.cols = rows, cols
	s.x, s.y = min(s.x, cols-1), min(s.y, rows-1)
	s.preceding = 0
}

func (s *Screen) resizeGrid(g *grid, rows, cols int) {
	y := s.y
	if g != s.on {
		y = g.row
	}
	moved := 0
	for len(g.lines) > rows {
		if len(g.lines)-1 > y {
			g.lines = g.lines[:len(g.lines)-1]
			continue
		}
		if g == &s.main {
			s.history.push(g.lines[0], 0)
		}
		g.lines = append(g.lines[:0], g.lines[1:]...)
		y--
		moved--
	}
	for len(g.lines) < rows {
		if g == &s.main && y == len(g.lines)-1 {
			if l := s.history.pop(); l != nil {
				g.lines = append([]*line{l}, g.lines...)
				y++
				moved++
				continue
			}
		}
		g.lines = append(g.lines, &line{cells: make([]cell, cols)})
	}
	for _, l := range g.lines {
		l.fit(cols)
	}
	if g == s.on {
		s.y = y
	}
	g.row = y
	g.saved.x = min(g.saved.x, cols-1)
	g.saved.y = min(max(g.saved.y+moved, 0), rows-1)
	g.tabs = defaultTabs(g.tabs[:min(len(g.tabs), cols)], cols)
	g.resetMargins(rows, cols)
}

// ---------------------------------------------------------------- intern tables

// setExtra sets the pen's extra to s.extra.
func (s *Screen) setExtra() { s.pen.setExtra(s.extras.put(s.extra, s.visitExtras)) }

func (s *Screen) visitExtras(keep func(uint32), renumber func(uint32) uint32) {
	s.eachLine(func(l *line) {
		for i := range l.cells {
			keep(l.cells[i].extra())
		}
	})
	keep(s.pen.extra())
	s.eachLine(func(l *line) {
		for i := range l.cells {
			if c := &l.cells[i]; c.extra() != 0 {
				c.setExtra(renumber(c.extra()))
			}
		}
	})
	s.pen.setExtra(renumber(s.pen.extra()))
}

func (s *Screen) visitClusters(keep func(uint32), renumber func(uint32) uint32) {
	s.eachLine(func(l *line) {
		for i := range l.cells {
			if ch := l.cells[i].ch; ch&chCluster != 0 {
				keep(ch & chValue)
			}
		}
	})
	s.eachLine(func(l *line) {
		for i := range l.cells {
			if c := &l.cells[i]; c.ch&chCluster != 0 {
				c.ch = c.ch&^chValue | renumber(c.ch&chValue)
			}
		}
	})
}

func (s *Screen) eachLine(visit func(*line)) {
	for _, lines := range [][]*line{s.history.lines, s.main.lines, s.alt.lines} {
		for _, l := range lines {
			visit(l)
		}
	}
}
