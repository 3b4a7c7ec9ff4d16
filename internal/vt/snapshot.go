package vt

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// Cursor is the position of the next character, counted from 0. If PendingWrap is
// set, the column is the last one, which is full: the next character goes to the
// line below.
type Cursor struct {
	Row         int         `json:"row"`
	Column      int         `json:"column"`
	PendingWrap bool        `json:"pending_wrap,omitempty"`
	Hidden      bool        `json:"hidden,omitempty"`
	Style       CursorStyle `json:"style,omitzero"`
}

// Cursor returns the cursor.
func (s *Screen) Cursor() Cursor {
	return Cursor{Row: s.y, Column: s.x, PendingWrap: s.pending, Hidden: s.modes.on(hiddenCursor), Style: s.style}
}

// Modes are the modes that matter for sending input or showing the screen.
type Modes struct {
	Alternate      bool `json:"alternate,omitempty"` // the alternate screen is shown
	AppCursor      bool `json:"application_cursor,omitempty"`
	AppKeypad      bool `json:"application_keypad,omitempty"`
	BracketedPaste bool `json:"bracketed_paste,omitempty"`
	FocusEvents    bool `json:"focus_events,omitempty"`
	ReverseVideo   bool `json:"reverse_video,omitempty"`
	Mouse          int  `json:"mouse,omitempty"`          // 9, 1000, 1002 or 1003; 0 means none
	MouseEncoding  int  `json:"mouse_encoding,omitempty"` // 1005, 1006, 1015 or 1016; 0 means X10
	// Synchronized means that the program is in the middle of a redraw (2026). A
	// reader should wait for its end, with a time limit.
	Synchronized bool `json:"synchronized,omitempty"`
}

// Modes returns the modes.
func (s *Screen) Modes() Modes {
	return Modes{
		Alternate: s.modes.on(altScreen), AppCursor: s.modes.on(appCursor), AppKeypad: s.modes.on(appKeypad),
		BracketedPaste: s.modes.on(bracketedPaste), FocusEvents: s.modes.on(focusEvents),
		ReverseVideo: s.modes.on(reverseVideo), Mouse: s.modes.tracking, MouseEncoding: s.modes.encoding,
		Synchronized: s.modes.on(synchronized),
	}
}

// Title returns the window's title, IconName its short form, and Directory the
// URL of the working directory, as the program has set them (OSC 0, 1, 2 and 7):
// untrusted text without control characters.
func (s *Screen) Title() string { return s.title }

// IconName returns the short form of the title; see Title.
func (s *Screen) IconName() string { return s.icon }

// Directory returns the URL of the working directory; see Title.
func (s *Screen) Directory() string { return s.dir }

// Bells returns how often the bell has rung.
func (s *Screen) Bells() int { return s.bells }

// Scrollback returns the number of lines that Text and ANSI can return in
// addition to those on the screen.
func (s *Screen) Scrollback() int { return len(s.history.lines) }

// ---------------------------------------------------------------- text

// Text returns what a person sees: one line per row, without trailing blanks and
// without trailing blank lines. It is preceded by up to scrollback lines that
// have scrolled off the screen.
func (s *Screen) Text(scrollback int) string {
	var b []byte
	s.lines(scrollback, func(l *line) {
		start := len(b)
		for i := range l.cells {
			b = s.appendChar(b, l.cells[i].ch)
		}
		b = append(b[:start], bytes.TrimRight(b[start:], " ")...)
		b = append(b, '\n')
	})
	return strings.TrimRight(string(b), "\n")
}

// lines visits the newest lines of the scrollback and then those of the screen.
func (s *Screen) lines(scrollback int, visit func(*line)) {
	n := len(s.history.lines)
	for i := n - min(max(scrollback, 0), n); i < n; i++ {
		visit(s.history.at(i))
	}
	for _, l := range s.on.lines {
		visit(l)
	}
}

// ---------------------------------------------------------------- cells

// Snapshot is a screen as data.
type Snapshot struct {
	Rows   int    `json:"rows"`
	Cols   int    `json:"cols"`
	Cursor Cursor `json:"cursor"`
	Modes  Modes  `json:"modes,omitzero"`
	Title  string `json:"title,omitempty"`
	// Lines has one entry per row. Everything after the last run of a line is
	// blank.
	Lines []api.ScreenLine `json:"lines"`
}

// Cells returns the screen as runs of styled text. It omits blanks of the default
// style at the end of a row.
func (s *Screen) Cells() Snapshot {
	snapshot := Snapshot{
		Rows: s.rows, Cols: s.cols, Cursor: s.Cursor(), Modes: s.Modes(), Title: s.title,
		Lines: make([]api.ScreenLine, 0, s.rows),
	}
	for _, l := range s.on.lines {
		line := api.ScreenLine{Wrapped: l.wrapped}
		var text []byte
		end := l.used()
		for x := 0; x < end; {
			from, p := x, l.cells[x].pen
			p.attrs &^= protected
			text = text[:0]
			for ; x < end; x++ {
				q := l.cells[x].pen
				q.attrs &^= protected
				if q != p {
					break
				}
				text = s.appendChar(text, l.cells[x].ch)
			}
			line.Runs = append(line.Runs, api.ScreenRun{Text: string(text), Width: x - from, Style: s.styleOf(p)})
		}
		snapshot.Lines = append(snapshot.Lines, line)
	}
	return snapshot
}

// used returns the length of a line without trailing blanks.
func (l *line) used() int {
	n := len(l.cells)
	for n > 0 && (l.cells[n-1].ch == 0 || l.cells[n-1].ch == ' ') && l.cells[n-1].pen == (pen{}) {
		n--
	}
	return n
}

var underlineNames = [...]string{"", "single", "double", "curly", "dotted", "dashed", "", ""}

// styleOf returns the style of a pen, nil for the default.
func (s *Screen) styleOf(p pen) *api.ScreenStyle {
	e := s.extras.get(p.extra())
	style := api.ScreenStyle{
		Foreground: colorName(p.fg), Background: colorName(p.bg),
		Bold: p.attrs&bold != 0, Dim: p.attrs&dim != 0, Italic: p.attrs&italic != 0,
		Underline: underlineNames[p.underline()], UnderlineColor: colorName(e.underline),
		Blink: p.attrs&blink != 0, Inverse: p.attrs&inverse != 0, Invisible: p.attrs&invisible != 0,
		Strike: p.attrs&strike != 0, Overline: p.attrs&overline != 0, Link: e.link,
	}
	if style == (api.ScreenStyle{}) {
		return nil
	}
	return &style
}

func colorName(c uint32) string {
	switch c & colorKind {
	case colorIndexed:
		return strconv.Itoa(int(c & colorValue))
	case colorRGB:
		return fmt.Sprintf("#%06x", c&colorValue)
	}
	return ""
}

// ---------------------------------------------------------------- ANSI

// ANSI returns bytes that make a fresh terminal of the same size show this screen
// and behave like it: contents and attributes, both screens if the alternate one
// is shown, cursor with its style and pending wrap, saved cursors, margins, tabs,
// character sets, modes, colors, titles. The screen is preceded by up to
// scrollback lines that have scrolled off it.
//
// It does not include a sequence or character of which only a part has arrived,
// bells, and titles that programs have pushed.
func (s *Screen) ANSI(scrollback int) []byte {
	w := &painter{s: s}
	w.history(scrollback)
	w.grid(&s.main)
	if s.on == &s.alt {
		w.saved(&s.main)
		w.margins(&s.main)
		w.print("\x1b[?1047h")
		w.grid(&s.alt)
	}
	w.settings()
	w.saved(s.on)
	w.cursor()
	return w.out
}

// Whole reports whether ANSI includes everything that has arrived: no sequence or
// character is incomplete.
func (s *Screen) Whole() bool { return s.parser.state == ground && s.parser.missing == 0 }

// painter writes what makes a fresh terminal look like s.
type painter struct {
	s   *Screen
	out []byte
	// State of that terminal:
	pen     pen
	columns bool // left and right margins are on
}

func (w *painter) print(format string, args ...any) {
	w.out = fmt.Appendf(w.out, format, args...)
}

// use selects p as the pen.
func (w *painter) use(p pen) {
	if p == w.pen {
		return
	}
	s := w.s
	old, e := s.extras.get(w.pen.extra()), s.extras.get(p.extra())
	shown, was := p, w.pen
	shown.attrs &^= protected
	was.attrs &^= protected
	if shown != was {
		w.out = s.appendSGR(w.out, p)
	}
	// Some terminals treat protection as an attribute that SGR 0 ends.
	if protect := p.attrs & protected; protect != w.pen.attrs&protected || protect != 0 && shown != was {
		w.print("\x1b[%d\"q", protect/protected)
	}
	if old.link != e.link || old.id != e.id {
		w.out = appendLink(w.out, e.id, e.link)
	}
	w.pen = p
}

// appendLink appends the sequence that begins a link, or ends it if link is
// empty.
func appendLink(b []byte, id, link string) []byte {
	if id != "" {
		id = "id=" + id
	}
	return fmt.Appendf(b, "\x1b]8;%s;%s\x1b\\", id, link)
}

// appendSGR appends the sequence that selects p from any state.
func (s *Screen) appendSGR(b []byte, p pen) []byte {
	return appendSGR(b, p, s.extras.get(p.extra()).underline)
}

// appendSGR is the same for a pen whose underline color is known.
func appendSGR(b []byte, p pen, underline uint32) []byte {
	b = append(b, "\x1b[0"...)
	for i, code := range [...]int{1, 2, 3, 5, 7, 8, 9, 53} { // in the order of the bits
		if p.attrs>>i&1 != 0 {
			b = append(b, ';')
			b = strconv.AppendInt(b, int64(code), 10)
		}
	}
	switch u := p.underline(); u {
	case 0:
	case 1:
		b = append(b, ";4"...)
	default:
		b = append(b, ";4:"...)
		b = strconv.AppendUint(b, uint64(u), 10)
	}
	b = appendColor(b, p.fg, 30)
	b = appendColor(b, p.bg, 40)
	b = appendColor(b, underline, 50)
	return append(b, 'm')
}

// appendColor appends a color; base is 30, 40, or 50 for the underline.
func appendColor(b []byte, c uint32, base int) []byte {
	v := int(c & colorValue)
	switch c & colorKind {
	case colorIndexed:
		switch {
		case v < 8 && base < 50:
			return fmt.Appendf(b, ";%d", base+v)
		case v < 16 && base < 50:
			return fmt.Appendf(b, ";%d", base+60+v-8)
		case base < 50:
			return fmt.Appendf(b, ";%d;5;%d", base+8, v)
		}
		return fmt.Appendf(b, ";58:5:%d", v)
	case colorRGB:
		if base < 50 {
			return fmt.Appendf(b, ";%d;2;%d;%d;%d", base+8, v>>16, v>>8&0xff, v&0xff)
		}
		return fmt.Appendf(b, ";58:2::%d:%d:%d", v>>16, v>>8&0xff, v&0xff)
	}
	return b
}

// history writes lines of the scrollback and scrolls them off the screen.
func (w *painter) history(n int) {
	s := w.s
	n = min(max(n, 0), len(s.history.lines))
	if n == 0 {
		return
	}
	for i := len(s.history.lines) - n; i < len(s.history.lines); i++ {
		l := s.history.at(i)
		w.cells(l, 0, min(l.used(), s.cols))
		w.use(pen{})
		w.print("\r\n")
	}
	for range s.rows - 1 {
		w.print("\n")
	}
}

// grid writes the contents of a screen, and its tabs.
func (w *painter) grid(g *grid) {
	wraps := false // the cursor is after the last column: printing more wraps
	for y, l := range g.lines {
		end := l.used()
		goesOn := y+1 < len(g.lines) && continued(l, g.lines[y+1])
		if goesOn {
			end = len(l.cells)
		}
		if !wraps && end > 0 {
			w.print("\x1b[%dH", y+1)
		}
		w.cells(l, 0, end)
		wraps = goesOn
	}
	w.use(pen{})
	w.tabs(g)
}

// continued reports whether the line below can be written right after l.
func continued(l, below *line) bool {
	last, first := l.cells[len(l.cells)-1], below.cells[0]
	return below.wrapped && last.ch != 0 && first.ch != 0 && !alone(first.ch)
}

// cells writes the cells of a line from a up to b, with the cursor at a.
func (w *painter) cells(l *line, a, b int) {
	for x := a; x < b; {
		c := l.cells[x]
		if c.ch == 0 {
			n := 1
			for x+n < b && l.cells[x+n] == c {
				n++
			}
			if c.pen != (pen{}) {
				w.use(c.pen)
				w.print("\x1b[%dX", n)
			}
			if x+n < len(l.cells) {
				w.print("\x1b[%dC", n)
			}
			x += n
			continue
		}
		w.use(c.pen)
		if alone(c.ch) {
			w.print("\x1b[%dG", x+1)
		}
		w.out = w.s.appendChar(w.out, c.ch)
		x++
	}
}

func (w *painter) tabs(g *grid) {
	plain := defaultTabs(nil, len(g.tabs))
	same := true
	for x := range plain {
		same = same && plain[x] == g.tabs[x]
	}
	if same {
		return
	}
	w.print("\x1b[3g")
	for x, set := range g.tabs {
		if set {
			w.print("\x1b[%dG\x1bH", x+1)
		}
	}
}

// settings writes what both screens share.
func (w *painter) settings() {
	s := w.s
	if s.title == s.icon && s.title != "" {
		w.print("\x1b]0;%s\x1b\\", s.title)
	} else {
		if s.title != "" {
			w.print("\x1b]2;%s\x1b\\", s.title)
		}
		if s.icon != "" {
			w.print("\x1b]1;%s\x1b\\", s.icon)
		}
	}
	if s.dir != "" {
		w.print("\x1b]7;%s\x1b\\", s.dir)
	}
	for i := range 256 {
		if c, ok := s.palette.indexed[uint8(i)]; ok {
			w.print("\x1b]4;%d;%s\x1b\\", i, formatColor(c&colorValue))
		}
	}
	for i, c := range s.palette.special {
		if c != 0 {
			w.print("\x1b]%d;%s\x1b\\", 10+i, formatColor(c&colorValue))
		}
	}
	for _, n := range []int{1, 5, 45, 66, 1004, 1007, 2004, 2026} {
		if s.modes.on(privateFlags[n]) {
			w.print("\x1b[?%dh", n)
		}
	}
	if s.modes.tracking != 0 {
		w.print("\x1b[?%dh", s.modes.tracking)
	}
	if s.modes.encoding != 0 {
		w.print("\x1b[?%dh", s.modes.encoding)
	}
	if s.modes.on(newLine) {
		w.print("\x1b[20h")
	}
	if s.modes.on(hiddenCursor) {
		w.print("\x1b[?25l")
	}
	if s.style != (CursorStyle{}) {
		w.print("\x1b[%d q", s.style.number())
	}
}

// saved writes the state that DECSC has saved, if it differs from that of a fresh
// screen.
func (w *painter) saved(g *grid) {
	c := g.saved
	if c == (savedCursor{}) {
		return
	}
	if c.origin {
		// Margins are full here, so positions count from the corner.
		w.print("\x1b[?6h")
	}
	w.print("\x1b[%d;%dH", c.y+1, c.x+1)
	if c.sets != (charsets{}) {
		w.charsets(c.sets)
	}
	w.use(pen{})
	p := c.pen
	p.setExtra(w.s.extras.put(c.extra, w.s.visitExtras))
	w.use(p)
	w.print("\x1b7")
	w.use(pen{})
	if c.sets != (charsets{}) {
		w.print("\x1b(B\x1b)B\x1b*B\x1b+B\x0f")
	}
	if c.origin {
		w.print("\x1b[?6l")
	}
}

// charsets designates sets other than those of a fresh terminal.
func (w *painter) charsets(c charsets) {
	for g, final := range c.g {
		if final != 0 {
			w.print("\x1b%c%c", "()*+"[g], final)
		}
	}
	w.out = append(w.out, []string{"\x0f", "\x0e", "\x1bn", "\x1bo"}[c.gl]...)
}

func (w *painter) margins(g *grid) {
	s := w.s
	if g.top > 0 || g.bottom < s.rows-1 {
		w.print("\x1b[%d;%dr", g.top+1, g.bottom+1)
	}
	if g.narrow(s.cols) {
		w.leftRight()
		w.print("\x1b[%d;%ds", g.left+1, g.right+1)
	}
}

// leftRight enables left and right margins, which resets them, once.
func (w *painter) leftRight() {
	if !w.columns {
		w.columns = true
		w.print("\x1b[?69h")
	}
}

// cursor writes margins, the cursor, and the modes that would have affected how
// the rest is written. It must come last.
func (w *painter) cursor() {
	s := w.s
	w.margins(s.on)
	if s.modes.on(leftRightMargins) {
		w.leftRight()
	}
	if s.modes.on(origin) {
		w.print("\x1b[?6h")
	}
	row, column := s.position()
	at := s.x
	if s.pending && s.x > 0 && s.line().cells[s.x].ch&chTail != 0 {
		at--
	}
	w.print("\x1b[%d;%dH", row, column-(s.x-at))
	if s.pending {
		// Writing the last column again leaves the cursor after it.
		w.use(s.line().cells[at].pen)
		w.out = s.appendChar(w.out, s.line().cells[at].ch)
	}
	w.use(s.pen)
	if s.sets != (charsets{}) {
		w.charsets(s.sets)
	}
	if s.modes.on(insertMode) {
		w.print("\x1b[4h")
	}
	if !s.modes.on(autoWrap) {
		w.print("\x1b[?7l")
	}
}
