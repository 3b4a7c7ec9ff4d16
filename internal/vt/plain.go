package vt

import (
	"slices"
	"unicode/utf8"
)

const (
	// sheetHeight is how far up a program can move to redraw. It exceeds the rows
	// of any terminal, and bounds the memory.
	sheetHeight = 500
	// sheetWidth is how far to the right a program can move without writing
	// there.
	sheetWidth = 1000
	// spareBlanks is how many blanks moving and repeating may create in addition
	// to one per byte of input.
	spareBlanks = 64 << 10
	// effortPerByte is how many cells may be moved or erased for each byte of
	// input, in addition to spareEffort: a program that edits a line of a
	// megabyte over and over is not followed to the end.
	effortPerByte, spareEffort = 100, 10 << 20
)

// PlainText returns the output of a program without a terminal as a person would
// read it on one: without control sequences, and with rewritten lines in their
// last form, whether they were rewritten by carriage returns, backspaces, or by
// moving up and erasing. Lines are not wrapped; a line feed begins a new one.
// Tabs stay tabs, blanks at the end of a line stay if they were written, and
// invalid UTF-8 becomes U+FFFD.
//
// The screen has unlimited width and 500 rows; rows that have scrolled off the
// top are final, even if the program clears everything. If output ends on the
// alternate screen, that follows below the main one. Memory use is a small
// multiple of the input's size.
func PlainText(b []byte) []byte {
	s := &sheet{out: make([]byte, 0, len(b)), spare: len(b) + spareBlanks, effort: effortPerByte*len(b) + spareEffort}
	var p parser
	p.write(s, b)
	if p.missing > 0 {
		s.char(utf8.RuneError)
	}
	rows := s.rows
	if s.alternate {
		rows = append(s.under, rows...)
	}
	for i, row := range rows {
		if i > 0 {
			s.out = append(s.out, '\n')
		}
		s.emit(row)
	}
	return s.out
}

// sheet is the screen of PlainText: rows of characters in the form of cell.ch,
// which grow as they are written.
type sheet struct {
	out       []byte // rows that are final
	rows      [][]uint32
	x, y      int // y may be below the last row, and x right of the row's end
	saved     struct{ x, y int }
	sets      charsets
	alternate bool
	under     [][]uint32 // the main rows while the alternate screen is shown

	clusters  []string
	preceding int      // as in Screen
	spare     int      // blanks that may still be created
	effort    int      // cells that may still be moved or erased
	free      []uint32 // a row to reuse
}

const (
	chTab     = 1 << 24 // where a tab begins
	chTabRest = 1 << 25 // the other columns of the tab
)

// row returns the row of the cursor.
func (s *sheet) row() *[]uint32 {
	for len(s.rows) <= s.y {
		s.rows = append(s.rows, s.free[:0])
		s.free = nil
	}
	return &s.rows[s.y]
}

// emit writes a row as text, without cells at its end that were never written.
func (s *sheet) emit(row []uint32) {
	for len(row) > 0 && row[len(row)-1] == 0 {
		row = row[:len(row)-1]
	}
	for x := 0; x < len(row); x++ {
		switch ch := row[x]; {
		case ch < utf8.RuneSelf && ch != 0:
			s.out = append(s.out, byte(ch))
		case ch == chTab:
			end := x + 1
			for end < len(row) && row[end] == chTabRest {
				end++
			}
			if end%8 == 0 { // nothing was written into it
				s.out = append(s.out, '\t')
				x = end - 1
			} else {
				s.out = append(s.out, ' ')
			}
		case ch&chTail != 0:
		case ch&chCluster != 0:
			s.out = append(s.out, s.clusters[ch&chValue]...)
		case ch&chValue == 0:
			s.out = append(s.out, ' ')
		default:
			s.out = utf8.AppendRune(s.out, rune(ch&chValue))
		}
	}
}

// spend spends effort for n cells, and reports whether there was enough left.
func (s *sheet) spend(n int) bool {
	s.effort -= max(n, 0)
	return s.effort >= 0
}

// reach extends the row of the cursor up to the cursor.
func (s *sheet) reach() *[]uint32 {
	row := s.row()
	if missing := s.x - len(*row); missing > 0 {
		missing = min(missing, max(s.spare, 0))
		s.spare -= missing
		*row = append(*row, make([]uint32, missing)...)
		s.x = len(*row)
	}
	return row
}

// set writes a character at x, over what was there.
func set(row *[]uint32, x int, ch uint32) {
	if x == len(*row) {
		*row = append(*row, ch)
		return
	}
	r := *row
	if r[x]&chTail != 0 && x > 0 {
		r[x-1] = ' '
	}
	if r[x]&chWide != 0 && x+1 < len(r) {
		r[x+1] = ' '
	}
	r[x] = ch
}

func (s *sheet) text(b []byte) {
	if s.sets.g[s.sets.gl] != 0 {
		for _, c := range b {
			s.char(rune(c))
		}
		return
	}
	row := s.reach()
	for _, c := range b {
		set(row, s.x, uint32(c))
		s.x++
	}
	s.preceding = 1
}

func (s *sheet) char(r rune) {
	if r == '\ufeff' {
		return
	}
	if set := s.sets.g[s.sets.gl]; r < 0x7f && set != 0 {
		r = translate(set, r)
	}
	w := runeWidth(r)
	if w == 0 && s.preceding > 0 {
		s.combine(r)
		return
	}
	row := s.reach()
	if w == 2 {
		set(row, s.x, uint32(r)|chWide)
		set(row, s.x+1, chTail)
	} else {
		set(row, s.x, uint32(r))
	}
	s.x += max(w, 1)
	s.preceding = w
}

func (s *sheet) combine(r rune) {
	row := *s.row()
	x := s.x - s.preceding
	if x < 0 || x >= len(row) {
		return
	}
	if row[x]&chCluster != 0 {
		// It is not shared: a cluster that REP has copied is no longer the last one.
		if text := &s.clusters[row[x]&chValue]; len(*text)+utf8.RuneLen(r) <= maxCluster {
			*text += string(r)
		}
		return
	}
	if len(s.clusters) <= chValue {
		text := string(rune(row[x]&chValue)) + string(r)
		row[x] = row[x]&chWide | chCluster | uint32(len(s.clusters))
		s.clusters = append(s.clusters, text)
	}
}

func (s *sheet) control(c byte) {
	s.preceding = 0
	switch c {
	case '\b':
		s.x = max(s.x-1, 0)
	case '\t':
		s.tab()
	case '\n', 0x85:
		s.x = 0
		s.down()
	case '\v', '\f', 0x84:
		s.down()
	case '\r':
		s.x = 0
	case 0x0e:
		s.sets.gl = 1
	case 0x0f:
		s.sets.gl = 0
	}
}

// tab is kept as a tab if nothing has been written there yet.
func (s *sheet) tab() {
	stop := s.x&^7 + 8
	row := s.reach()
	for i := s.x; len(*row) < stop; i++ {
		ch := uint32(chTabRest)
		if i == s.x && len(*row) == s.x {
			ch = chTab
		}
		*row = append(*row, ch)
	}
	s.x = stop
}

// down makes room for one more row, and emits the first one if there are too
// many.
func (s *sheet) down() {
	s.row()
	if s.y == sheetHeight-1 {
		if !s.alternate {
			s.emit(s.rows[0])
			s.out = append(s.out, '\n')
		}
		s.free, s.rows[0] = s.rows[0], nil
		s.rows = s.rows[1:]
	} else {
		s.y++
	}
	s.row()
}

func (s *sheet) escape(intermediate, final byte) {
	s.preceding = 0
	switch {
	case intermediate == '(' || intermediate == ')':
		set := byte(0)
		if final == '0' || final == 'A' {
			set = final
		}
		s.sets.g[intermediate-'('] = set
	case intermediate != 0:
	case final == '7':
		s.saved.x, s.saved.y = s.x, s.y
	case final == '8':
		s.x, s.y = s.saved.x, s.saved.y
	case final == 'D':
		s.down()
	case final == 'E':
		s.x = 0
		s.down()
	case final == 'M':
		s.y = max(s.y-1, 0)
	case final == 'c':
		s.leave()
		s.rows, s.x, s.y, s.sets = nil, 0, 0, charsets{}
	}
}

// goTo places the cursor. In an existing row it may go as far as the row's end.
func (s *sheet) goTo(x, y int) {
	s.y = min(max(y, 0), sheetHeight-1)
	limit := sheetWidth
	if s.y < len(s.rows) {
		limit = max(limit, len(s.rows[s.y]))
	}
	s.x = min(max(x, 0), limit)
}

func (s *sheet) csi(q *sequence) {
	width := s.preceding
	s.preceding = 0
	if q.intermediate != 0 {
		return
	}
	if q.prefix == '?' && (q.final == 'h' || q.final == 'l') {
		for i := range q.n {
			switch q.at(i) {
			case 47, 1047, 1049:
				if q.final == 'h' {
					s.enter()
				} else {
					s.leave()
				}
			}
		}
		return
	}
	if q.prefix != 0 {
		return
	}
	n := min(q.count(0), 1<<16)
	switch q.final {
	case 'A':
		s.goTo(s.x, s.y-n)
	case 'B', 'e':
		s.goTo(s.x, s.y+n)
	case 'C', 'a':
		s.goTo(s.x+n, s.y)
	case 'D':
		s.goTo(s.x-n, s.y)
	case 'E':
		s.goTo(0, s.y+n)
	case 'F':
		s.goTo(0, s.y-n)
	case 'G', '`':
		s.goTo(n-1, s.y)
	case 'H', 'f':
		s.goTo(min(q.count(1), 1<<16)-1, n-1)
	case 'd':
		s.goTo(s.x, n-1)
	case 'J':
		s.eraseDisplay(q.at(0))
	case 'K':
		s.eraseLine(q.at(0))
	case 'X':
		s.erase(s.x, s.x+n)
	case '@':
		if row := s.reach(); s.x < len(*row) && s.spend(len(*row)-s.x) {
			n = min(n, max(s.spare, 0))
			s.spare -= n
			s.erase(s.x, s.x) // do not cut a wide character
			*row = slices.Insert(*row, s.x, make([]uint32, n)...)
		}
	case 'P':
		s.erase(s.x, s.x+n)
		if row := s.row(); s.x < len(*row) && s.spend(len(*row)-s.x) {
			*row = slices.Delete(*row, s.x, min(s.x+n, len(*row)))
		}
	case 'L', 'M':
		s.shiftRows(n, q.final == 'L')
	case 'b':
		s.repeat(n, width)
	case 's':
		s.saved.x, s.saved.y = s.x, s.y
	case 'u':
		s.x, s.y = s.saved.x, s.saved.y
	}
}

// erase blanks the cells from a up to b, and shortens a row that then ends there.
func (s *sheet) erase(a, b int) {
	row := s.row()
	r := *row
	b = min(b, len(r))
	if a < len(r) && r[a]&chTail != 0 && a > 0 {
		r[a-1] = ' '
		r[a] = ' '
	}
	if b < len(r) && b > 0 && r[b]&chTail != 0 {
		r[b] = ' '
	}
	switch {
	case a >= b:
	case b == len(r):
		*row = r[:a]
	case s.spend(b - a):
		clear(r[a:b])
	}
}

func (s *sheet) eraseLine(how int) {
	end := len(*s.row())
	switch how {
	case 0:
		s.erase(s.x, end)
	case 1:
		s.erase(0, s.x+1)
	case 2:
		s.erase(0, end)
	}
}

func (s *sheet) eraseDisplay(how int) {
	switch how {
	case 0:
		s.eraseLine(0)
		s.rows = s.rows[:s.y+1]
	case 1:
		s.eraseLine(1)
		for y := range s.y {
			s.rows[y] = s.rows[y][:0]
		}
	case 2:
		s.rows = s.rows[:0]
	}
}

// shiftRows inserts or deletes rows at the cursor.
func (s *sheet) shiftRows(n int, insert bool) {
	if s.y >= len(s.rows) {
		return
	}
	n = min(n, sheetHeight-s.y)
	if insert {
		s.rows = slices.Insert(s.rows, s.y, make([][]uint32, n)...)
		s.rows = s.rows[:min(len(s.rows), sheetHeight)]
	} else {
		s.rows = slices.Delete(s.rows, s.y, min(s.y+n, len(s.rows)))
	}
	s.x = 0
}

func (s *sheet) repeat(n, width int) {
	row := *s.row()
	x := s.x - width
	if width == 0 || x < 0 || x >= len(row) {
		return
	}
	ch := row[x]
	for ; n > 0 && s.spare > 0; n-- {
		s.spare -= width
		row := s.reach()
		set(row, s.x, ch)
		if width == 2 {
			set(row, s.x+1, chTail)
		}
		s.x += width
	}
}

// enter and leave switch to the alternate screen and back; its content is
// dropped.
func (s *sheet) enter() {
	if !s.alternate {
		s.alternate = true
		s.saved.x, s.saved.y = s.x, s.y
		s.under, s.rows, s.x, s.y = s.rows, nil, 0, 0
	}
}

func (s *sheet) leave() {
	if s.alternate {
		s.alternate = false
		s.rows, s.under = s.under, nil
		s.x, s.y = s.saved.x, s.saved.y
	}
}

func (s *sheet) osc([]byte)            { s.preceding = 0 }
func (s *sheet) dcs(*sequence, []byte) { s.preceding = 0 }
