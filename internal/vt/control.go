package vt

// control executes a C0 or C1 control.
func (s *Screen) control(c byte) {
	s.preceding = 0
	switch c {
	case 0x07:
		s.bells++
	case '\b':
		s.backspace()
	case '\t':
		s.tab(1)
	case '\n', '\v', '\f':
		s.pending = false
		if s.modes.on(newLine) {
			s.x = s.leftEdge()
		}
		y := s.y
		s.down()
		if s.y != y {
			s.line().wrapped = false // a line feed has ended the line above
		}
	case '\r':
		s.x, s.pending = s.leftEdge(), false
	case 0x0e:
		s.sets.gl = 1
	case 0x0f:
		s.sets.gl = 0
	case 0x84:
		s.index()
	case 0x85:
		s.nextLine()
	case 0x88:
		s.on.tabs[s.x] = true
	case 0x8d:
		s.reverseIndex()
	}
}

func (s *Screen) index() {
	s.pending = false
	s.down()
}

func (s *Screen) reverseIndex() {
	s.pending = false
	s.up()
}

func (s *Screen) nextLine() {
	s.pending = false
	s.x = s.leftEdge()
	s.down()
}

// backspace moves one column back. With reverse wraparound it undoes a wrap, but
// no more: it does not leave a line that is not a continuation.
func (s *Screen) backspace() {
	back := s.modes.on(reverseWrap)
	if s.pending && back {
		s.pending = false // leaves the column after the last one
		return
	}
	s.pending = false
	edge := s.leftEdge()
	if s.x > edge {
		s.x--
		return
	}
	if !back || s.y <= s.on.top || s.y > s.on.bottom || !s.line().wrapped {
		return
	}
	s.line().wrapped = false
	s.y--
	s.x = s.on.right
	if s.x > 0 && s.line().cells[s.x].ch == 0 {
		s.x-- // a wide character did not fit there
	}
}

// tab moves to the n-th next stop, or to the last column.
func (s *Screen) tab(n int) {
	if s.pending {
		return
	}
	last := s.rightEdge()
	for ; n > 0 && s.x < last; n-- {
		s.x++
		for s.x < last && !s.on.tabs[s.x] {
			s.x++
		}
	}
}

func (s *Screen) backTab(n int) {
	if s.pending {
		return
	}
	for ; n > 0 && s.x > 0; n-- {
		s.x--
		for s.x > 0 && !s.on.tabs[s.x] {
			s.x--
		}
	}
	s.confine()
}

// escape executes an escape sequence (ESC without CSI, OSC or DCS).
func (s *Screen) escape(intermediate, final byte) {
	s.preceding = 0
	switch intermediate {
	case 0:
		s.plainEscape(final)
	case '(':
		s.designate(0, final)
	case ')', '-':
		s.designate(1, final)
	case '*', '.':
		s.designate(2, final)
	case '+':
		s.designate(3, final)
	case '%':
		if final == '@' || final == 'G' {
			s.sets.g[0], s.sets.gl = 0, 0
		}
	case '#':
		if final == '8' {
			s.align()
		}
	}
}

func (s *Screen) plainEscape(final byte) {
	switch final {
	case '7':
		s.saveCursor()
	case '8':
		s.restoreCursor()
	case '=':
		s.modes.set(appKeypad, true)
	case '>':
		s.modes.set(appKeypad, false)
	case 'D':
		s.index()
	case 'E':
		s.nextLine()
	case 'H':
		s.on.tabs[s.x] = true
	case 'M':
		s.reverseIndex()
	case 'Z': // DECID
		s.answer(primaryAttributes)
	case 'c':
		s.reset()
	case 'n', '}':
		s.sets.gl = 2
	case 'o', '|':
		s.sets.gl = 3
	case '~':
		s.sets.gl = 1
	}
}

// designate assigns a character set to one of G0 to G3. Unknown sets are treated
// as ASCII, which they equal but for a few letters.
func (s *Screen) designate(g int, final byte) {
	switch final {
	case '0', 'A':
		s.sets.g[g] = final
	default:
		s.sets.g[g] = 0
	}
}

// lineDrawing is DEC Special Graphics, from '`' to '~'.
var lineDrawing = [...]rune{
	'◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺',
	'⎻', '─', '⎼', '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
}

func translate(set byte, r rune) rune {
	switch {
	case set == '0' && r >= '`' && r <= '~':
		return lineDrawing[r-'`']
	case set == 'A' && r == '#':
		return '£'
	}
	return r
}

// align is DECALN, the screen alignment pattern.
func (s *Screen) align() {
	s.on.resetMargins(s.rows, s.cols)
	s.modes.set(origin, false)
	s.goTo(0, 0)
	p := s.pen
	p.setExtra(0)
	p.setUnderline(0)
	for _, l := range s.on.lines {
		l.fill(cell{ch: 'E', pen: p})
	}
}

func (s *Screen) saveCursor() {
	p := s.pen
	p.setExtra(0)
	s.on.saved = savedCursor{x: s.x, y: s.y, pen: p, extra: s.extra, sets: s.sets, origin: s.modes.on(origin)}
}

// restoreCursor does not restore a pending wrap: the cursor is then on the last
// column.
func (s *Screen) restoreCursor() {
	c := s.on.saved
	s.modes.set(origin, c.origin)
	s.x, s.y, s.pending = min(c.x, s.cols-1), min(c.y, s.rows-1), false
	s.confine()
	s.pen, s.extra, s.sets = c.pen, c.extra, c.sets
	s.setExtra()
}

// confine moves the cursor between the margins in origin mode, which it can't
// leave.
func (s *Screen) confine() {
	if !s.modes.on(origin) {
		return
	}
	x, y := min(max(s.x, s.on.left), s.on.right), min(max(s.y, s.on.top), s.on.bottom)
	s.pending = s.pending && x == s.x
	s.x, s.y = x, y
}

// goTo places the cursor, relative to the margins in origin mode.
func (s *Screen) goTo(x, y int) {
	s.pending = false
	left, right, top, bottom := 0, s.cols-1, 0, s.rows-1
	if s.modes.on(origin) {
		left, right, top, bottom = s.on.left, s.on.right, s.on.top, s.on.bottom
	}
	s.x = min(max(left, left+min(x, right-left)), right)
	s.y = min(max(top, top+min(y, bottom-top)), bottom)
}

// toRow and toColumn set one coordinate and keep the other.
func (s *Screen) toRow(y int) {
	x := s.x
	s.goTo(0, y)
	s.x = x
}

func (s *Screen) toColumn(x int) {
	y := s.y
	s.goTo(x, 0)
	s.y = y
}

// move moves the cursor relatively. It stops at the margins, unless it began
// outside of them.
func (s *Screen) move(dx, dy int) {
	s.pending = false
	g := s.on
	left, right, top, bottom := 0, s.cols-1, 0, s.rows-1
	if s.x >= g.left {
		left = g.left
	}
	if s.x <= g.right {
		right = g.right
	}
	if s.y >= g.top {
		top = g.top
	}
	if s.y <= g.bottom {
		bottom = g.bottom
	}
	s.x = min(max(s.x+dx, left), right)
	s.y = min(max(s.y+dy, top), bottom)
}

// csi executes a control sequence.
func (s *Screen) csi(q *sequence) {
	width := s.preceding
	s.preceding = 0
	switch {
	case q.final == 'p' && q.intermediate == '$' && (q.prefix == 0 || q.prefix == '?'):
		s.reportMode(q.at(0), q.prefix == '?')
	case q.prefix == 0 && q.intermediate == 0:
		if q.final == 'b' {
			s.repeat(q.count(0), width)
			return
		}
		s.plainCSI(q)
	case q.prefix == '?' && q.intermediate == 0:
		switch q.final {
		case 'J':
			s.eraseDisplay(q.at(0), true)
		case 'K':
			s.eraseLine(q.at(0), true)
		case 'h', 'l':
			for i := range q.n {
				s.setPrivateMode(q.at(i), q.final == 'h')
			}
		case 'n':
			s.reportPrivateStatus(q.at(0))
		}
	case q.prefix == 0:
		s.intermediateCSI(q)
	default:
		s.query(q)
	}
}

func (s *Screen) plainCSI(q *sequence) {
	// No count exceeds the size of a screen; this keeps sums from overflowing.
	n := min(q.count(0), 1<<16)
	switch q.final {
	case '@':
		s.pending = false
		if s.inside() {
			s.line().insert(s.x, s.on.right+1, n, s.blank())
		}
	case 'A':
		s.move(0, -n)
	case 'B':
		s.move(0, n)
	case 'C', 'a':
		s.move(n, 0)
	case 'D':
		s.move(-n, 0)
	case 'E':
		s.move(0, n)
		s.x = s.leftEdge()
	case 'F':
		s.move(0, -n)
		s.x = s.leftEdge()
	case 'G', '`':
		s.toColumn(n - 1)
	case 'H', 'f':
		s.goTo(min(q.count(1), 1<<16)-1, n-1)
	case 'I':
		s.tab(n)
	case 'J':
		s.eraseDisplay(q.at(0), false)
	case 'K':
		s.eraseLine(q.at(0), false)
	case 'L', 'M':
		s.pending = false
		if s.y < s.on.top || s.y > s.on.bottom || !s.inside() {
			return
		}
		if q.final == 'L' {
			s.scrollDown(s.y, s.on.bottom, n, s.blank())
		} else {
			s.deleteLines(n)
		}
		s.x = s.on.left
	case 'P':
		s.pending = false
		if s.inside() {
			s.line().remove(s.x, s.on.right+1, n, s.blank())
		}
	case 'S':
		s.scrollUp(s.on.top, s.on.bottom, n, s.blank())
	case 'T':
		if q.n == 1 { // with more it is mouse highlighting
			s.scrollDown(s.on.top, s.on.bottom, n, cell{})
		}
	case 'X':
		s.pending = false
		s.line().erase(s.x, s.x+n, s.blank(), false)
	case 'Z':
		s.backTab(n)
	case 'c':
		if q.at(0) == 0 {
			s.answer(primaryAttributes)
		}
	case 'd':
		s.toRow(n - 1)
	case 'e':
		s.pending = false
		s.y = min(s.y+n, s.rows-1)
		s.confine()
	case 'g':
		switch q.at(0) {
		case 0:
			s.on.tabs[s.x] = false
		case 3:
			clear(s.on.tabs)
		}
	case 'h', 'l':
		for i := range q.n {
			switch q.at(i) {
			case 4:
				s.modes.set(insertMode, q.final == 'h')
			case 20:
				s.modes.set(newLine, q.final == 'h')
			}
		}
	case 'm':
		s.sgr(q)
	case 'n':
		s.reportStatus(q.at(0))
	case 'r':
		top, bottom := n, q.at(1)
		if bottom == 0 || bottom > s.rows {
			bottom = s.rows
		}
		if top < bottom {
			s.on.top, s.on.bottom = top-1, bottom-1
			s.goTo(0, 0)
		}
	case 's':
		if s.modes.on(leftRightMargins) {
			s.setLeftRight(n, q.at(1))
		} else {
			s.saveCursor()
		}
	case 't':
		s.window(q)
	case 'u':
		s.restoreCursor()
	}
}

func (s *Screen) intermediateCSI(q *sequence) {
	n := min(q.count(0), 1<<16)
	switch string([]byte{q.intermediate, q.final}) {
	case "!p":
		s.softReset()
	case " q":
		s.setCursorStyle(q.at(0))
	case `"q`:
		switch q.at(0) {
		case 0, 2:
			s.pen.attrs &^= protected
		case 1:
			s.pen.attrs |= protected
		}
	case " @":
		s.shiftColumns(s.on.left, n, (*line).remove)
	case " A":
		s.shiftColumns(s.on.left, n, (*line).insert)
	case "'}":
		s.shiftColumns(s.x, n, (*line).insert)
	case "'~":
		s.shiftColumns(s.x, n, (*line).remove)
	}
}

// shiftColumns inserts or removes columns in all lines between the margins.
func (s *Screen) shiftColumns(x, n int, shift func(l *line, a, b, n int, with cell)) {
	if s.y < s.on.top || s.y > s.on.bottom || !s.inside() {
		return
	}
	for y := s.on.top; y <= s.on.bottom; y++ {
		shift(s.on.lines[y], x, s.on.right+1, n, s.blank())
		s.on.lines[y].wrapped = false
	}
}

// inside reports whether the cursor is between the left and the right margin.
func (s *Screen) inside() bool { return s.x >= s.on.left && s.x <= s.on.right }

// deleteLines is DL: the lines it removes do not go to the scrollback.
func (s *Screen) deleteLines(n int) {
	g := s.on
	n = min(n, g.bottom-s.y+1)
	if g.narrow(s.cols) {
		s.scrollUp(s.y, g.bottom, n, s.blank())
		return
	}
	for range n {
		l := g.lines[s.y]
		copy(g.lines[s.y:g.bottom], g.lines[s.y+1:g.bottom+1])
		l.fill(s.blank())
		g.lines[g.bottom] = l
	}
}

// resetLeftRight resets the left and right margins of both screens: margins exist
// only while their mode is on.
func (s *Screen) resetLeftRight() {
	s.main.left, s.main.right = 0, s.cols-1
	s.alt.left, s.alt.right = 0, s.cols-1
}

func (s *Screen) setLeftRight(left, right int) {
	if right == 0 || right > s.cols {
		right = s.cols
	}
	if left < right {
		s.on.left, s.on.right = left-1, right-1
		s.goTo(0, 0)
	}
}

// column returns the cursor's column, one more if a wrap is pending: erasing to
// the right then leaves the character that was just written.
func (s *Screen) column() int {
	if s.pending {
		return s.x + 1
	}
	return s.x
}

func (s *Screen) eraseDisplay(how int, selective bool) {
	with := s.blank()
	erase := func(from, to int) {
		for _, l := range s.on.lines[from:to] {
			l.erase(0, s.cols, with, selective)
			l.wrapped = false
		}
	}
	switch how {
	case 0:
		s.eraseLine(0, selective)
		erase(s.y+1, s.rows)
	case 1:
		erase(0, s.y)
		s.eraseLine(1, selective)
		s.line().wrapped = false
		if s.column() >= s.cols-1 && s.y+1 < s.rows {
			s.on.lines[s.y+1].wrapped = false
		}
	case 2:
		erase(0, s.rows)
	case 3:
		s.history.clear()
	}
}

func (s *Screen) eraseLine(how int, selective bool) {
	l, with, x := s.line(), s.blank(), s.column()
	switch how {
	case 0:
		l.erase(x, s.cols, with, selective)
		if x == 0 {
			l.wrapped = false
		}
	case 1:
		l.erase(0, x+1, with, selective)
	case 2:
		l.erase(0, s.cols, with, selective)
		l.wrapped = false
	}
}

// repeat is REP: it repeats the last printed character n times.
func (s *Screen) repeat(n, width int) {
	x := s.column() - width
	if width == 0 || x < 0 {
		return
	}
	ch := s.line().cells[x].ch & (chValue | chCluster)
	if full := s.rows * s.cols; n > full {
		// More than a screen of them would only scroll by identical lines.
		perLine := max(1, (s.rightEdge()-s.leftEdge()+1)/width)
		n = full + (n-full)%perLine
	}
	for range n {
		s.put(ch, width)
	}
}

// softReset is DECSTR.
func (s *Screen) softReset() {
	s.on.resetMargins(s.rows, s.cols)
	s.resetLeftRight()
	s.pen, s.extra, s.sets = pen{}, extra{}, charsets{}
	s.on.saved = savedCursor{}
	m := newModes()
	m.flags |= s.modes.flags & (altScreen | bracketedPaste | focusEvents | synchronized | reverseVideo | newLine)
	m.tracking, m.encoding = s.modes.tracking, s.modes.encoding
	s.modes = m
}
