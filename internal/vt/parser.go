package vt

import (
	"math"
	"unicode/utf8"
)

const (
	// maxParams is how many parameters and sub-parameters of one sequence are
	// kept; further ones are dropped. Real programs send at most about twenty, in
	// SGR.
	maxParams = 32
	// maxString bounds an OSC or DCS string. A longer one is dropped as a whole:
	// half a link or half a title would be wrong. Links in browsers end near
	// 2,000 bytes; images are not supported anyway.
	maxString = 4096
)

// sink receives what the parser recognizes, in stream order. Slices are only
// valid during the call.
type sink interface {
	text(ascii []byte)               // one or more bytes of 0x20…0x7e
	char(r rune)                     // any other character
	control(c byte)                  // C0, or C1 in its 8-bit form
	escape(intermediate, final byte) // ESC …
	csi(seq *sequence)
	osc(data []byte)
	dcs(seq *sequence, data []byte)
}

// sequence is a control sequence, or the head of a device control string.
type sequence struct {
	prefix       byte // one of <=>?, or 0
	intermediate byte // 0 means none; 0xff several, which no known sequence has
	final        byte
	n            int
	params       [maxParams]int32 // -1 means an empty sub-parameter; an empty parameter is 0
	sub          uint32           // bit i: params[i] is a sub-parameter, after a colon
	full         bool             // more parameters arrived than are kept
}

func (q *sequence) reset() {
	// Later parameters are set when they are added.
	q.prefix, q.intermediate, q.final, q.sub, q.full = 0, 0, 0, 0, false
	q.n, q.params[0] = 1, 0
}

// at returns the i-th parameter, not counting sub-parameters; 0 if it is missing.
func (q *sequence) at(i int) int {
	if q.sub == 0 {
		if i < q.n {
			return int(q.params[i])
		}
		return 0
	}
	for k := range q.n {
		if q.sub>>k&1 == 0 {
			if i == 0 {
				return int(q.params[k])
			}
			i--
		}
	}
	return 0
}

// count returns at(i), with 1 for a missing or zero parameter.
func (q *sequence) count(i int) int { return max(1, q.at(i)) }

func (q *sequence) add(value int32, sub bool) {
	if q.n == maxParams {
		q.full = true
		return
	}
	if sub {
		q.sub |= 1 << q.n
	}
	q.params[q.n] = value
	q.n++
}

func (q *sequence) digit(d int32) {
	if q.full {
		return
	}
	p := &q.params[q.n-1]
	switch {
	case *p < 0:
		*p = d
	case *p > (math.MaxInt32-d)/10:
		*p = math.MaxInt32
	default:
		*p = *p*10 + d
	}
}

type state uint8

const (
	ground state = iota
	escape
	escapeIntermediate
	csiEntry
	csiParam
	csiIntermediate
	csiIgnore
	oscString
	dcsEntry
	dcsParam
	dcsIntermediate
	dcsIgnore
	dcsString
	otherString // SOS, PM, APC
)

// parser is the state machine of DEC's terminals (vt100.net/emu/dec_ansi_parser)
// over the code points of a UTF-8 stream. It holds all state, so a stream may be
// split anywhere.
type parser struct {
	state state
	seq   sequence
	str   []byte
	over  bool // str would have grown beyond maxString

	// The character being decoded: missing bytes, bits so far, and the bounds of
	// the next byte, which exclude overlong forms and surrogates.
	missing uint8
	low     uint8
	high    uint8
	partial rune
}

func (p *parser) write(to sink, b []byte) {
	for i := 0; i < len(b); {
		c := b[i]
		if p.missing == 0 && c < utf8.RuneSelf {
			if p.state == ground && c >= 0x20 && c != 0x7f {
				end := i + 1
				for end < len(b) && b[end]-0x20 < 0x5f {
					end++
				}
				to.text(b[i:end])
				i = end
				continue
			}
			p.step(to, rune(c))
			i++
			continue
		}
		if p.missing == 0 && p.state == ground {
			// The common case: a whole character at once.
			if r, n := utf8.DecodeRune(b[i:]); r != utf8.RuneError && r >= 0xa0 {
				to.char(r)
				i += n
				continue
			}
		}
		if p.decode(to, c) {
			i++
		}
	}
}

// decode consumes one byte of a character like the Encoding Standard's UTF-8
// decoder: each maximal invalid prefix becomes one U+FFFD, and the byte that made
// it invalid is processed again. It reports whether c was consumed.
func (p *parser) decode(to sink, c byte) bool {
	if p.missing == 0 {
		p.low, p.high = 0x80, 0xbf
		switch {
		case c >= 0xc2 && c <= 0xdf:
			p.missing, p.partial = 1, rune(c&0x1f)
		case c >= 0xe0 && c <= 0xef:
			p.missing, p.partial = 2, rune(c&0x0f)
			switch c {
			case 0xe0:
				p.low = 0xa0
			case 0xed:
				p.high = 0x9f
			}
		case c >= 0xf0 && c <= 0xf4:
			p.missing, p.partial = 3, rune(c&0x07)
			switch c {
			case 0xf0:
				p.low = 0x90
			case 0xf4:
				p.high = 0x8f
			}
		default:
			p.step(to, utf8.RuneError)
		}
		return true
	}
	if c < p.low || c > p.high {
		p.missing = 0
		p.step(to, utf8.RuneError)
		return false
	}
	p.low, p.high = 0x80, 0xbf
	p.partial = p.partial<<6 | rune(c&0x3f)
	p.missing--
	if p.missing == 0 {
		p.step(to, p.partial)
	}
	return true
}

// step processes one code point.
func (p *parser) step(to sink, r rune) {
	// Code points with the same meaning in every state.
	switch {
	case r == 0x1b:
		p.end(to, true)
		p.seq.reset()
		p.state = escape
		return
	case r == 0x18 || r == 0x1a:
		p.end(to, false)
		to.control(byte(r))
		return
	case r >= 0x80 && r < 0xa0:
		p.c1(to, byte(r))
		return
	}
	switch p.state {
	case ground:
		switch {
		case r < 0x20:
			to.control(byte(r))
		case r < 0x7f:
			b := [1]byte{byte(r)}
			to.text(b[:])
		case r > 0x7f:
			to.char(r)
		}
	case escape:
		p.escape(to, r)
	case escapeIntermediate:
		switch {
		case r < 0x20:
			to.control(byte(r))
		case r < 0x30:
			p.collect(byte(r))
		case r < 0x7f:
			p.state = ground
			to.escape(p.seq.intermediate, byte(r))
		case r > 0x7f:
			p.state = ground
		}
	case csiEntry, csiParam, csiIntermediate, csiIgnore:
		if r < 0x20 {
			to.control(byte(r))
			return
		}
		p.parameters(r, csiParam, csiIntermediate, csiIgnore)
		if r >= 0x40 && r < 0x7f {
			known := p.state != csiIgnore
			p.state = ground
			if known {
				p.seq.final = byte(r)
				to.csi(&p.seq)
			}
		}
	case dcsEntry, dcsParam, dcsIntermediate:
		if r < 0x20 {
			return
		}
		p.parameters(r, dcsParam, dcsIntermediate, dcsIgnore)
		if r >= 0x40 && r < 0x7f && p.state != dcsIgnore {
			p.seq.final = byte(r)
			p.begin(dcsString)
		}
	case oscString:
		switch {
		case r == 0x07:
			p.end(to, true)
		case r >= 0x20:
			p.put(r)
		}
	case dcsString:
		if r != 0x7f {
			p.put(r)
		}
	case dcsIgnore, otherString: // up to their terminator
	}
}

// escape processes the code point after ESC.
func (p *parser) escape(to sink, r rune) {
	switch {
	case r < 0x20:
		to.control(byte(r))
	case r < 0x30:
		p.collect(byte(r))
		p.state = escapeIntermediate
	case r == '[':
		p.state = csiEntry
	case r == ']':
		p.begin(oscString)
	case r == 'P':
		p.state = dcsEntry
	case r == 'X' || r == '^' || r == '_':
		p.state = otherString
	case r < 0x7f:
		p.state = ground
		to.escape(0, byte(r))
	case r > 0x7f:
		p.state = ground
	}
}

// c1 processes a C1 control, which ends any sequence in progress.
func (p *parser) c1(to sink, c byte) {
	p.end(to, c == 0x9c)
	switch c {
	case 0x90:
		p.seq.reset()
		p.state = dcsEntry
	case 0x98, 0x9e, 0x9f:
		p.state = otherString
	case 0x9b:
		p.seq.reset()
		p.state = csiEntry
	case 0x9d:
		p.begin(oscString)
	case 0x9c:
	default:
		to.control(c)
	}
}

// parameters processes the bytes before a final byte.
func (p *parser) parameters(r rune, param, intermediate, ignore state) {
	switch {
	case p.state == ignore || r == 0x7f:
	case r > 0x7f:
		p.state = ground
	case r < 0x30:
		p.collect(byte(r))
		p.state = intermediate
	case r >= 0x40:
	case p.state == intermediate:
		p.state = ignore
	case r <= '9':
		p.seq.digit(r - '0')
		p.state = param
	case r == ':':
		p.seq.add(-1, true)
		p.state = param
	case r == ';':
		p.seq.add(0, false)
		p.state = param
	case p.state == param: // a prefix must come first
		p.state = ignore
	default:
		p.seq.prefix = byte(r)
		p.state = param
	}
}

func (p *parser) collect(c byte) {
	if p.seq.intermediate != 0 {
		c = 0xff
	}
	p.seq.intermediate = c
}

func (p *parser) begin(s state) {
	p.state, p.str, p.over = s, p.str[:0], false
}

func (p *parser) put(r rune) {
	if p.over {
		return
	}
	if len(p.str)+utf8.RuneLen(r) > maxString {
		p.over = true
		return
	}
	p.str = utf8.AppendRune(p.str, r)
}

// end returns to the ground state; a properly terminated string is passed to the
// sink.
func (p *parser) end(to sink, well bool) {
	was := p.state
	p.state = ground
	if well && !p.over {
		switch was {
		case oscString:
			to.osc(p.str)
		case dcsString:
			to.dcs(&p.seq, p.str)
		}
	}
}
