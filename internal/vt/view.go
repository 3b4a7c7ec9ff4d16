package vt

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// View shows a Screen on a real terminal of any size: it produces only the bytes
// that change what the terminal shows into what it should show. A smaller
// terminal shows the part with the cursor. Queries and anything else that is not
// in the cells are never forwarded, so the real terminal answers nothing, and a
// program's text can only be displayed.
//
// It is not safe for concurrent use.
type View struct {
	rows, cols int
	top, left  int // top left corner of the part of the screen that is shown

	fresh       bool       // the terminal may not show what shown says
	shown, want []viewCell // row by row
	style       cellStyle  // the terminal's current style
	x, y        int        // the terminal's cursor; x < 0 means unknown

	set    terminalModes
	title  string
	bells  int
	cursor Cursor
	out    []byte
}

// viewCell is a self-contained cell: references into the intern tables of a
// screen, which may renumber them or be replaced, are resolved.
type viewCell struct {
	ch      uint32 // like that of a cell; a cluster has no number
	cluster string
	style   cellStyle
}

// cellStyle is a self-contained pen.
type cellStyle struct {
	pen   pen // without its extra and without protected
	extra extra
}

// terminalModes are the modes that are set on the real terminal.
type terminalModes struct {
	appCursor, appKeypad, bracketedPaste, focus, altScroll, reverse bool
	mouse, encoding                                                 int
}

// Painting is what a View shows in addition to the screen.
type Painting struct {
	// Typing means that input on the real terminal goes to the program: then the
	// terminal gets the modes that decide what keys and the mouse send.
	Typing bool
	// Status is shown in the last row if the screen leaves it free.
	Status string
	// Notice is shown in place of the status, or else over the screen.
	Notice string
}

// NewView returns a view for a terminal of that size with unknown content.
func NewView(rows, cols int) *View {
	v := &View{}
	v.Resize(rows, cols)
	return v
}

// Begin takes over the real terminal: it selects its alternate screen, without
// wrapping, and saves its title.
func (v *View) Begin() []byte {
	return []byte("\x1b[?1049h\x1b[22;2t\x1b[?7l\x1b[?1l\x1b>")
}

// End restores the terminal to its state before Begin.
func (v *View) End() []byte {
	v.out = v.out[:0]
	v.modes(terminalModes{})
	if v.cursor.Style != (CursorStyle{}) {
		v.print("\x1b[0 q")
	}
	v.print("\x1b]8;;\x1b\\\x1b[0m\x1b[?25h\x1b[?7h\x1b[23;2t\x1b[?1049l")
	return v.out
}

// Resize tells the view that the real terminal has another size.
func (v *View) Resize(rows, cols int) {
	v.rows, v.cols = max(rows, 1), max(cols, 1)
	v.shown, v.want = make([]viewCell, v.rows*v.cols), make([]viewCell, v.rows*v.cols)
	v.Forget()
}

// Forget tells the view that the content of the real terminal is unknown.
func (v *View) Forget() { v.fresh = true }

// Shows returns the part of the screen that was painted last.
func (v *View) Shows() (top, left, rows, cols int) { return v.top, v.left, v.rows, v.cols }

// Paint returns what to write to the real terminal; nil means nothing. It is
// valid until the next call.
func (v *View) Paint(s *Screen, p Painting) []byte {
	v.out = v.out[:0]
	// The terminal may delay showing it until the end.
	v.print("\x1b[?2026h\x1b[?25l")
	start := len(v.out)
	v.follow(s)
	v.compose(s, p)
	v.difference()
	v.use(cellStyle{})
	var modes terminalModes
	if p.Typing {
		modes = terminalModes{
			appCursor: s.modes.on(appCursor), appKeypad: s.modes.on(appKeypad), bracketedPaste: s.modes.on(bracketedPaste),
			focus: s.modes.on(focusEvents), altScroll: s.modes.on(altScroll), mouse: s.modes.tracking, encoding: s.modes.encoding,
		}
	}
	modes.reverse = s.modes.on(reverseVideo)
	v.modes(modes)
	if title := printable(s.title); title != v.title {
		v.title = title
		v.print("\x1b]2;%s\x1b\\", title)
	}
	if s.bells > v.bells {
		v.print("\a")
	}
	v.bells = s.bells
	cursor := s.Cursor()
	cursor.Row, cursor.Column, cursor.PendingWrap = cursor.Row-v.top, cursor.Column-v.left, false
	cursor.Hidden = cursor.Hidden || cursor.Row >= v.rows || cursor.Column >= v.cols
	if len(v.out) == start && cursor == v.cursor {
		return nil
	}
	if cursor.Style != v.cursor.Style {
		n := 0 // the terminal's own style
		if cursor.Style != (CursorStyle{}) {
			n = cursor.Style.number()
		}
		v.print("\x1b[%d q", n)
	}
	v.cursor = cursor
	if !cursor.Hidden {
		v.goTo(cursor.Row, cursor.Column)
		v.print("\x1b[?25h")
	}
	v.print("\x1b[?2026l")
	return v.out
}

// follow moves the shown part no further than the cursor requires. Rows are read
// from their left end, so that end is shown whenever the cursor allows it. A
// hidden cursor requires nothing, nor does one that jumps to the last column,
// where a program leaves it that has filled a row.
func (v *View) follow(s *Screen) {
	v.top = min(max(v.top, s.y-v.rows+1), s.y, max(0, s.rows-v.rows))
	cursor := s.Cursor()
	switch {
	case cursor.Hidden:
		v.left = 0
	case cursor.Column < s.cols-1 || v.left > 0: // it came there by typing
		v.left = max(0, cursor.Column-v.cols+1)
	}
	v.left = min(v.left, max(0, s.cols-v.cols))
}

// compose fills want with what the terminal should show.
func (v *View) compose(s *Screen, p Painting) {
	for y := range v.rows {
		row := v.row(v.want, y)
		n := 0
		if v.top+y < s.rows {
			cells := s.on.lines[v.top+y].cells[v.left:]
			n = min(len(cells), len(row))
			for x, c := range cells[:n] {
				row[x] = s.viewCell(c)
			}
			blankHalves(row[:n])
		}
		for x := n; x < len(row); x++ {
			row[x] = blankViewCell
		}
	}
	spare := v.rows > s.rows
	if spare && p.Notice == "" && p.Status != "" {
		v.caption(v.rows-1, p.Status, cellStyle{pen: pen{attrs: dim}})
	}
	if p.Notice == "" {
		return
	}
	y := v.rows - 1
	if !spare && s.y-v.top == y && v.rows > 1 {
		y = 0 // not over what is being typed
	}
	v.caption(y, " "+p.Notice+" ", cellStyle{pen: pen{attrs: inverse}})
}

func (v *View) row(of []viewCell, y int) []viewCell { return of[y*v.cols : (y+1)*v.cols] }

var blankViewCell = viewCell{ch: ' '}

// blankHalves blanks the halves of wide characters whose other half is not in the
// row.
func blankHalves(row []viewCell) {
	if len(row) == 0 {
		return
	}
	if first := &row[0]; first.ch&chTail != 0 {
		*first = viewCell{ch: ' ', style: first.style}
	}
	if last := &row[len(row)-1]; last.ch&chWide != 0 {
		*last = viewCell{ch: ' ', style: last.style}
	}
}

// caption writes a line of text over a row.
func (v *View) caption(y int, text string, as cellStyle) {
	row := v.row(v.want, y)
	x := 0
	for _, r := range printable(text) {
		w := runeWidth(r)
		if w == 0 {
			continue
		}
		if x+w > len(row) {
			row[len(row)-1] = viewCell{ch: '…', style: as}
			if len(row) > 1 {
				blankHalves(row[:len(row)-1])
			}
			return
		}
		row[x] = viewCell{ch: uint32(r), style: as}
		if w == 2 {
			row[x].ch |= chWide
			row[x+1] = viewCell{ch: chTail, style: as}
		}
		x += w
	}
	if x < len(row) && row[x].ch&chTail != 0 {
		row[x] = blankViewCell
	}
}

// printable removes what would act on a terminal from text.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
}

// viewCell resolves a cell. Colors that the program has changed are resolved to
// their values: the real terminal keeps its own palette.
func (s *Screen) viewCell(c cell) viewCell {
	f := viewCell{ch: c.ch, style: cellStyle{pen: c.pen}}
	if extra := c.extra(); extra != 0 {
		f.style.extra = s.extras.get(extra)
		f.style.extra.underline = s.palette.resolve(f.style.extra.underline, -1)
	}
	f.style.pen.setExtra(0)
	f.style.pen.attrs &^= protected
	f.style.pen.fg = s.palette.resolve(c.fg, 0)
	f.style.pen.bg = s.palette.resolve(c.bg, 1)
	switch {
	case c.ch&chCluster != 0:
		f.cluster, f.ch = s.clusters.get(c.ch&chValue), c.ch&^chValue
	case c.ch == 0:
		f.ch = ' '
	}
	return f
}

// resolve returns a color, or the value to which the program has changed it.
// special is which of the special colors is its default; none if negative.
func (p *palette) resolve(color uint32, special int) uint32 {
	switch {
	case color&colorKind == colorIndexed:
		if set, ok := p.indexed[uint8(color&colorValue)]; ok {
			return set
		}
	case color == colorDefault && special >= 0 && p.special[special] != 0:
		return p.special[special]
	}
	return color
}

// ---------------------------------------------------------------- painting

func (v *View) print(format string, args ...any) { v.out = fmt.Appendf(v.out, format, args...) }

// difference paints what is in want and not yet shown.
func (v *View) difference() {
	if v.fresh {
		v.print("\x1b]8;;\x1b\\\x1b[0m\x1b[2J")
		v.style = cellStyle{}
		for i := range v.shown {
			v.shown[i] = blankViewCell
		}
		v.fresh = false
	}
	v.x = -1
	for y := range v.rows {
		v.paintRow(y, v.row(v.shown, y), v.row(v.want, y))
	}
}

// shortGap is how many unchanged cells are rewritten rather than skipped: moving
// the cursor costs about as many bytes.
const shortGap = 4

func (v *View) paintRow(y int, shown, want []viewCell) {
	blank := len(want) // from here on the row is blank
	for blank > 0 && want[blank-1] == blankViewCell {
		blank--
	}
	for x := 0; x < len(want); x++ {
		if shown[x] == want[x] {
			continue
		}
		if x >= blank {
			v.goTo(y, x)
			v.use(cellStyle{})
			v.print("\x1b[K")
			copy(shown[x:], want[x:])
			return
		}
		from := x
		if want[from].ch&chTail != 0 {
			from--
		}
		if v.y == y && v.x >= 0 && v.x < from && from-v.x <= shortGap && plain(want[v.x:from]) {
			from = v.x
		}
		v.goTo(y, from)
		for from <= x {
			from += v.put(want, from)
		}
		copy(shown[:from], want[:from])
		x = from - 1
		if from < len(want) && ambiguousWidth(want[x]) {
			// The terminal may have overwritten the next cell too.
			shown[from] = viewCell{}
		}
	}
}

// plain reports whether cells are cheap to rewrite: ASCII of one style.
func plain(cells []viewCell) bool {
	for _, c := range cells {
		if c.ch >= utf8.RuneSelf || c.style != cells[0].style {
			return false
		}
	}
	return true
}

// ambiguousWidth reports whether terminals differ about the width of a character,
// as they do for emoji.
func ambiguousWidth(f viewCell) bool {
	return f.ch&chCluster != 0 || f.ch&(chWide|chTail) == 0 && f.ch&chValue >= 0x2000
}

// put writes the character at x and returns its width.
func (v *View) put(row []viewCell, x int) int {
	f := row[x]
	v.use(f.style)
	width := 1
	if f.ch&chWide != 0 {
		width = 2
	}
	switch {
	case f.ch&chTail != 0: // without its other half, which no screen has
		v.out = append(v.out, ' ')
	case f.ch&chCluster != 0:
		v.out = append(v.out, printable(f.cluster)...)
	default:
		if alone(f.ch) {
			v.print("\x1b[%dG", x+1)
		}
		v.out = utf8.AppendRune(v.out, rune(f.ch&chValue))
	}
	v.x += width
	if f.ch >= utf8.RuneSelf || v.x >= v.cols {
		v.x = -1 // the position on other terminals is uncertain
	}
	if v.x < 0 && x+width < len(row) {
		v.print("\x1b[%dG", x+width+1)
		v.x = x + width
	}
	return width
}

func (v *View) goTo(y, x int) {
	switch {
	case v.x == x && v.y == y:
		return
	case v.x >= 0 && v.y == y:
		v.print("\x1b[%dG", x+1)
	default:
		v.print("\x1b[%d;%dH", y+1, x+1)
	}
	v.y, v.x = y, x
}

// use makes the terminal write with a style.
func (v *View) use(l cellStyle) {
	if l == v.style {
		return
	}
	old := v.style
	v.style = l
	if l.pen != old.pen || l.extra.underline != old.extra.underline {
		v.out = appendSGR(v.out, l.pen, l.extra.underline)
	}
	if l.extra.link != old.extra.link || l.extra.id != old.extra.id {
		v.out = appendLink(v.out, l.extra.id, l.extra.link)
	}
}

// modes sets the terminal's modes where they differ.
func (v *View) modes(m terminalModes) {
	old := v.set
	v.set = m
	for _, flag := range [...]struct {
		number  int
		was, is bool
	}{
		{1, old.appCursor, m.appCursor},
		{5, old.reverse, m.reverse},
		{1004, old.focus, m.focus},
		{1007, old.altScroll, m.altScroll},
		{2004, old.bracketedPaste, m.bracketedPaste},
	} {
		if flag.was != flag.is {
			v.print("\x1b[?%d%c", flag.number, "lh"[bit(flag.is)])
		}
	}
	if old.appKeypad != m.appKeypad {
		v.print("\x1b%c", ">="[bit(m.appKeypad)]) // more terminals support it than ?66
	}
	v.switchMode(old.mouse, m.mouse)
	v.switchMode(old.encoding, m.encoding)
}

// switchMode replaces one of several exclusive modes by another; 0 means none.
func (v *View) switchMode(old, now int) {
	if old == now {
		return
	}
	if old != 0 {
		v.print("\x1b[?%dl", old)
	}
	if now != 0 {
		v.print("\x1b[?%dh", now)
	}
}

func bit(on bool) int {
	if on {
		return 1
	}
	return 0
}

// ResetSequence returns the bytes that restore a real terminal, which got the
// same output, to the state that a command expects: the main screen, default
// modes, no color. Use it after a program that did not clean up. Nil means that
// there is nothing to do.
func (s *Screen) ResetSequence() []byte {
	v := View{set: terminalModes{
		appCursor: s.modes.on(appCursor), appKeypad: s.modes.on(appKeypad), bracketedPaste: s.modes.on(bracketedPaste),
		focus: s.modes.on(focusEvents), altScroll: s.modes.on(altScroll), reverse: s.modes.on(reverseVideo),
		mouse: s.modes.tracking, encoding: s.modes.encoding,
	}}
	v.modes(terminalModes{})
	back := s.modes.on(altScreen) // with whatever was saved when it was entered
	if back {
		v.print("\x1b[?1049l")
	}
	if s.main.top > 0 || s.main.bottom < s.rows-1 || s.modes.on(leftRightMargins) {
		v.print("\x1b7\x1b[r\x1b[?69l\x1b8")
	}
	if back && s.main.saved.origin || !back && s.modes.on(origin) {
		v.print("\x1b[?6l")
	}
	if s.modes.on(hiddenCursor) {
		v.print("\x1b[?25h")
	}
	if s.style != (CursorStyle{}) {
		v.print("\x1b[0 q")
	}
	if s.modes.on(insertMode) {
		v.print("\x1b[4l")
	}
	if !s.modes.on(autoWrap) {
		v.print("\x1b[?7h")
	}
	if back || s.sets != (charsets{}) {
		v.print("\x1b(B\x0f")
	}
	if back || s.extra.link != "" {
		v.out = appendLink(v.out, "", "")
	}
	if back || s.pen != (pen{}) {
		v.print("\x1b[0m\x1b[0\"q")
	}
	return v.out
}
