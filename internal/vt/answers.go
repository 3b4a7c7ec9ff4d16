package vt

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxAnswers bounds the answers waiting to be sent. A program that asks for
	// more without reading gets no more.
	maxAnswers = 16 << 10
	maxTitle   = 1024 // bytes kept of a title, an icon name or a directory
	maxTitles  = 10   // maximum number of pushed titles
	// The size of a cell in pixels, for programs that ask. There are no real
	// pixels.
	cellHeight, cellWidth = 16, 8
)

const (
	primaryAttributes   = "\x1b[?62;6;22c" // a VT220 with selective erase and color
	secondaryAttributes = "\x1b[>1;10;0c"
	tertiaryAttributes  = "\x1bP!|54524C00\x1b\\"
	versionAnswer       = "\x1bP>|TRL\x1b\\"
)

// Answers returns what a terminal would have sent to the program in reply to its
// queries since the last call; nil means nothing. The caller must write it to the
// program's input, or the program may wait for it forever. Answers consist of
// numbers and fixed words: nothing that a program has written comes back as
// input.
func (s *Screen) Answers() []byte {
	a := s.answers
	s.answers = nil
	return a
}

func (s *Screen) answer(format string, args ...any) {
	if len(s.answers) < maxAnswers {
		s.answers = fmt.Appendf(s.answers, format, args...)
	}
}

// query handles control sequences with a prefix other than '?'.
func (s *Screen) query(q *sequence) {
	if q.intermediate != 0 {
		return
	}
	switch {
	case q.prefix == '>' && q.final == 'c' && q.at(0) == 0:
		s.answer(secondaryAttributes)
	case q.prefix == '=' && q.final == 'c' && q.at(0) == 0:
		s.answer(tertiaryAttributes)
	case q.prefix == '>' && q.final == 'q' && q.at(0) == 0:
		s.answer(versionAnswer)
	}
}

// position returns the cursor position as programs count it.
func (s *Screen) position() (row, column int) {
	row, column = s.y+1, s.x+1
	if s.modes.on(origin) {
		row, column = row-s.on.top, column-s.on.left
	}
	return row, column
}

func (s *Screen) reportStatus(n int) {
	switch n {
	case 5:
		s.answer("\x1b[0n")
	case 6:
		row, column := s.position()
		s.answer("\x1b[%d;%dR", row, column)
	}
}

func (s *Screen) reportPrivateStatus(n int) {
	switch n {
	case 6:
		row, column := s.position()
		s.answer("\x1b[?%d;%dR", row, column)
	case 15:
		s.answer("\x1b[?13n") // no printer
	case 25:
		s.answer("\x1b[?21n") // user-defined keys are locked
	case 26:
		s.answer("\x1b[?27;1;0;0n") // an American keyboard
	case 53, 55:
		s.answer("\x1b[?50n") // no locator
	case 996:
		s.answer("\x1b[?997;1n") // dark
	}
}

// reportMode is DECRQM: 0 is unknown, 1 set, 2 reset, 3 permanently set, 4
// permanently reset.
func (s *Screen) reportMode(n int, private bool) {
	state := func(on bool) int {
		if on {
			return 1
		}
		return 2
	}
	if !private {
		v := 0
		switch n {
		case 2:
			v = 3
		case 4:
			v = state(s.modes.on(insertMode))
		case 12:
			v = 4
		case 20:
			v = state(s.modes.on(newLine))
		}
		s.answer("\x1b[%d;%d$y", n, v)
		return
	}
	v := 0
	switch n {
	case 6:
		v = state(s.modes.on(origin))
	case 8:
		v = 3
	case 12:
		v = state(s.style.Blink)
	case 25:
		v = state(!s.modes.on(hiddenCursor))
	case 47, 1047, 1049:
		v = state(s.modes.on(altScreen))
	case 69:
		v = state(s.modes.on(leftRightMargins))
	case 9, 1000, 1002, 1003:
		v = state(s.modes.tracking == n)
	case 1005, 1006, 1015, 1016:
		v = state(s.modes.encoding == n)
	case 1048:
		v = 1
	default:
		if f, ok := privateFlags[n]; ok {
			v = state(s.modes.on(f))
		}
	}
	s.answer("\x1b[?%d;%d$y", n, v)
}

// window is XTWINOPS: it reports sizes, never titles, and moves nothing.
func (s *Screen) window(q *sequence) {
	switch q.at(0) {
	case 11:
		s.answer("\x1b[1t")
	case 13:
		s.answer("\x1b[3;0;0t")
	case 14:
		s.answer("\x1b[4;%d;%dt", s.rows*cellHeight, s.cols*cellWidth)
	case 15:
		s.answer("\x1b[5;%d;%dt", s.rows*cellHeight, s.cols*cellWidth)
	case 16:
		s.answer("\x1b[6;%d;%dt", cellHeight, cellWidth)
	case 18:
		s.answer("\x1b[8;%d;%dt", s.rows, s.cols)
	case 19:
		s.answer("\x1b[9;%d;%dt", s.rows, s.cols)
	case 20:
		s.answer("\x1b]L\x1b\\")
	case 21:
		s.answer("\x1b]l\x1b\\")
	case 22:
		if q.at(1) != 1 {
			s.titles = push(s.titles, s.title)
		}
		if q.at(1) != 2 {
			s.icons = push(s.icons, s.icon)
		}
	case 23:
		if n := len(s.titles); n > 0 && q.at(1) != 1 {
			s.title, s.titles = s.titles[n-1], s.titles[:n-1]
		}
		if n := len(s.icons); n > 0 && q.at(1) != 2 {
			s.icon, s.icons = s.icons[n-1], s.icons[:n-1]
		}
	}
}

func push(stack []string, v string) []string {
	if len(stack) == maxTitles {
		stack = append(stack[:0], stack[1:]...)
	}
	return append(stack, v)
}

// dcs handles a device control string: only requests, which are all answered.
func (s *Screen) dcs(q *sequence, data []byte) {
	s.preceding = 0
	switch {
	case q.intermediate == '$' && q.final == 'q': // DECRQSS
		if setting, ok := s.setting(string(data)); ok {
			s.answer("\x1bP1$r%s\x1b\\", setting)
		} else {
			s.answer("\x1bP0$r\x1b\\")
		}
	case q.intermediate == '+' && q.final == 'q': // XTGETTCAP
		s.answer("\x1bP0+r\x1b\\")
	}
}

func (s *Screen) setting(name string) (string, bool) {
	switch name {
	case "m":
		return string(s.appendSGR(nil, s.pen)[2:]), true
	case "r":
		return fmt.Sprintf("%d;%dr", s.on.top+1, s.on.bottom+1), true
	case "s":
		return fmt.Sprintf("%d;%ds", s.on.left+1, s.on.right+1), true
	case " q":
		return fmt.Sprintf("%d q", s.style.number()), true
	case `"q`:
		if s.pen.attrs&protected != 0 {
			return `1"q`, true
		}
		return `0"q`, true
	case `"p`:
		return `62;1"p`, true
	}
	return "", false
}

// osc handles an operating system command. The clipboard (52) is not supported,
// and unlisted commands are ignored.
func (s *Screen) osc(data []byte) {
	s.preceding = 0
	head, rest, _ := bytes.Cut(data, []byte(";"))
	number, err := strconv.Atoi(string(head))
	if err != nil || len(head) > 3 {
		return
	}
	switch number {
	case 0:
		s.title, s.icon = short(rest), short(rest)
	case 1:
		s.icon = short(rest)
	case 2:
		s.title = short(rest)
	case 4:
		s.palette.setIndexed(s, string(rest))
	case 7:
		s.dir = short(rest)
	case 8:
		s.hyperlink(string(rest))
	case 10, 11, 12:
		for i, spec := range strings.Split(string(rest), ";") {
			s.palette.setSpecial(s, number-10+i, spec)
		}
	case 104:
		s.palette.resetIndexed(string(rest))
	case 110, 111, 112:
		s.palette.special[number-110] = 0
	}
}

// short returns a title in the form in which it is kept.
func short(b []byte) string {
	return string(bytes.ToValidUTF8(b[:min(len(b), maxTitle)], nil))
}

// linkSchemes are the supported link schemes. A person who clicks on a link may
// not know that a command wrote it, and other schemes may make the terminal or
// the browser run something.
var linkSchemes = []string{"http", "https", "file", "mailto"}

// allowedLink reports whether a link is supported: it has a known scheme and
// consists of printable ASCII.
func allowedLink(uri string) bool {
	scheme, _, ok := strings.Cut(uri, ":")
	return ok && slices.Contains(linkSchemes, strings.ToLower(scheme)) && isASCII(uri)
}

func isASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// hyperlink begins a link. An unsupported link ends the one before it.
func (s *Screen) hyperlink(v string) {
	params, uri, ok := strings.Cut(v, ";")
	if !ok {
		return
	}
	if !allowedLink(uri) {
		uri = ""
	}
	s.extra.link, s.extra.id = uri, ""
	if uri != "" {
		for _, p := range strings.Split(params, ":") {
			if id, ok := strings.CutPrefix(p, "id="); ok && isASCII(id) {
				s.extra.id = id
			}
		}
	}
	s.setExtra()
}

// palette holds the colors that programs have changed. A color is 0 until it is
// changed, and then colorRGB with its value.
type palette struct {
	indexed map[uint8]uint32
	special [3]uint32 // foreground, background, cursor
}

// specialDefaults are white on black.
var specialDefaults = [3]uint32{0xffffff, 0x000000, 0xffffff}

// basicColors are the first sixteen colors, as in xterm.
var basicColors = [16]uint32{
	0x000000, 0xcd0000, 0x00cd00, 0xcdcd00, 0x0000ee, 0xcd00cd, 0x00cdcd, 0xe5e5e5,
	0x7f7f7f, 0xff0000, 0x00ff00, 0xffff00, 0x5c5cff, 0xff00ff, 0x00ffff, 0xffffff,
}

// indexedColor returns the default of a palette entry: sixteen colors, a cube of
// six steps a side, and 24 grays.
func indexedColor(i uint8) uint32 {
	step := func(v uint8) uint32 {
		if v == 0 {
			return 0
		}
		return uint32(v)*40 + 55
	}
	switch {
	case i < 16:
		return basicColors[i]
	case i < 232:
		i -= 16
		return step(i/36)<<16 | step(i/6%6)<<8 | step(i%6)
	}
	gray := uint32(i-232)*10 + 8
	return gray<<16 | gray<<8 | gray
}

func (p *palette) setIndexed(s *Screen, list string) {
	parts := strings.Split(list, ";")
	for i := 0; i+1 < len(parts); i += 2 {
		n, err := strconv.ParseUint(parts[i], 10, 8)
		if err != nil {
			continue
		}
		if parts[i+1] == "?" {
			color := indexedColor(uint8(n))
			if set, ok := p.indexed[uint8(n)]; ok {
				color = set & colorValue
			}
			s.answer("\x1b]4;%d;%s\x1b\\", n, formatColor(color))
		} else if color, ok := parseColor(parts[i+1]); ok {
			if p.indexed == nil {
				p.indexed = map[uint8]uint32{}
			}
			p.indexed[uint8(n)] = colorRGB | color
		}
	}
}

func (p *palette) resetIndexed(list string) {
	if list == "" {
		p.indexed = nil
		return
	}
	for _, part := range strings.Split(list, ";") {
		if n, err := strconv.ParseUint(part, 10, 8); err == nil {
			delete(p.indexed, uint8(n))
		}
	}
}

func (p *palette) setSpecial(s *Screen, i int, spec string) {
	if i >= len(p.special) {
		return
	}
	if spec == "?" {
		color := specialDefaults[i]
		if p.special[i] != 0 {
			color = p.special[i] & colorValue
		}
		s.answer("\x1b]%d;%s\x1b\\", 10+i, formatColor(color))
	} else if color, ok := parseColor(spec); ok {
		p.special[i] = colorRGB | color
	}
}

func formatColor(rgb uint32) string {
	r, g, b := rgb>>16&0xff, rgb>>8&0xff, rgb&0xff
	return fmt.Sprintf("rgb:%02x%02x/%02x%02x/%02x%02x", r, r, g, g, b, b)
}

// parseColor parses rgb:R/G/B and #RGB with one to four digits each, like
// XParseColor. It knows no color names.
func parseColor(spec string) (uint32, bool) {
	var parts []string
	scaled := false
	if rest, ok := strings.CutPrefix(strings.ToLower(spec), "rgb:"); ok {
		parts, scaled = strings.Split(rest, "/"), true
	} else if rest, ok := strings.CutPrefix(spec, "#"); ok && len(rest)%3 == 0 {
		n := len(rest) / 3
		parts = []string{rest[:n], rest[n : 2*n], rest[2*n:]}
	}
	if len(parts) != 3 {
		return 0, false
	}
	var rgb uint32
	for _, part := range parts {
		v, err := strconv.ParseUint(part, 16, 16)
		if err != nil || len(part) > 4 {
			return 0, false
		}
		bits := 4 * len(part)
		if scaled {
			v = v * 255 / (1<<bits - 1)
		} else {
			v = v << 16 >> bits >> 8 // the upper digits
		}
		rgb = rgb<<8 | uint32(v)&0xff
	}
	return rgb, true
}
