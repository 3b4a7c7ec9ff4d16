// Package rawjson walks JSON text in place, without building values.
//
// It exists for two readers that encoding/json cannot serve: the transport,
// which splits a request line into subslices, and the strict parameter decoder,
// which must see member names exactly as they were sent (encoding/json ignores
// case) and name the one that is wrong.
//
// It accepts what encoding/json accepts, with two exceptions, both where
// encoding/json would silently change the text: it rejects text that is not
// UTF-8, and Unquote rejects half a surrogate pair. Errors never include any of
// the text, which may be secret, only the position.
package rawjson

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth limits nesting, and so the stack that a hostile text can use. The
// contract nests four levels deep; the rest is room for free-form members.
const MaxDepth = 512

// Kind is the kind of a value, determined by its first byte.
type Kind uint8

// The kinds of values. Invalid stands for anything else and for the end of the text.
const (
	Invalid Kind = iota
	Object
	Array
	String
	Number
	Bool
	Null
)

// SyntaxError says where a text stops being valid JSON.
type SyntaxError struct {
	Offset int
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset)
}

// Scanner is a position in a JSON text. It never reads past a syntax error:
// after one, every call fails.
type Scanner struct {
	data []byte
	pos  int
}

// Scan returns a scanner for data. Its results are subslices of data.
func Scan(data []byte) Scanner { return Scanner{data: data} }

// Offset returns how many bytes of the text have been read.
func (s *Scanner) Offset() int { return s.pos }

func (s *Scanner) fail(reason string) error {
	return &SyntaxError{Offset: s.pos, Reason: reason}
}

func (s *Scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte that is not white space, or 0 at the end of the
// text. (A 0 byte in the text is not the start of a value either.)
func (s *Scanner) peek() byte {
	s.space()
	if s.pos == len(s.data) {
		return 0
	}
	return s.data[s.pos]
}

// Kind returns the kind of the next value.
func (s *Scanner) Kind() Kind {
	switch c := s.peek(); c {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	default:
		if c == '-' || isDigit(c) {
			return Number
		}
		return Invalid
	}
}

// Enter steps into the next object or array.
func (s *Scanner) Enter() error {
	if c := s.peek(); c != '{' && c != '[' {
		return s.fail("expected an object or an array")
	}
	s.pos++
	return nil
}

// Key returns the next member name of the entered object, unquoted, and stops
// before its value, which the caller must read. ok is false after the last
// member; the object has then been left. first must be true on the first call
// for an object.
func (s *Scanner) Key(first bool) (key []byte, ok bool, err error) {
	if ok, err := s.next('}', first); !ok || err != nil {
		return nil, false, err
	}
	if s.peek() != '"' {
		return nil, false, s.fail("expected a member name")
	}
	start := s.pos
	if err := s.string(); err != nil {
		return nil, false, err
	}
	raw := s.data[start:s.pos]
	if s.peek() != ':' {
		return nil, false, s.fail("expected a colon")
	}
	s.pos++
	if plain(raw) {
		return raw[1 : len(raw)-1], true, nil
	}
	name, err := Unquote(raw)
	if err != nil {
		return nil, false, s.fail("bad member name")
	}
	return []byte(name), true, nil
}

// Element reports whether the entered array has another element, which the
// caller must then read; if not, the array has been left.
func (s *Scanner) Element(first bool) (ok bool, err error) { return s.next(']', first) }

func (s *Scanner) next(closer byte, first bool) (bool, error) {
	c := s.peek()
	if c == closer {
		s.pos++
		return false, nil
	}
	if first {
		return true, nil
	}
	if c != ',' {
		return false, s.fail("expected a comma or the end of the object or array")
	}
	s.pos++
	if s.peek() == closer {
		return false, s.fail("trailing comma")
	}
	return true, nil
}

// Value skips the next value, whatever its kind, and returns its text.
func (s *Scanner) Value() ([]byte, error) {
	s.space()
	start := s.pos
	if err := s.skip(0); err != nil {
		return nil, err
	}
	return s.data[start:s.pos], nil
}

// End returns an error unless only white space is left.
func (s *Scanner) End() error {
	if s.space(); s.pos < len(s.data) {
		return s.fail("unexpected text after the value")
	}
	return nil
}

func (s *Scanner) skip(depth int) error {
	switch c := s.peek(); {
	case c == '{' || c == '[':
		if depth == MaxDepth {
			return s.fail(fmt.Sprintf("nested deeper than %d", MaxDepth))
		}
		s.pos++
		for first := true; ; first = false {
			var ok bool
			var err error
			if c == '{' {
				_, ok, err = s.Key(first)
			} else {
				ok, err = s.Element(first)
			}
			if !ok || err != nil {
				return err
			}
			if err := s.skip(depth + 1); err != nil {
				return err
			}
		}
	case c == '"':
		return s.string()
	case c == '-' || isDigit(c):
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	default:
		return s.fail("expected a value")
	}
}

func (s *Scanner) literal(w string) error {
	if len(s.data)-s.pos < len(w) || string(s.data[s.pos:s.pos+len(w)]) != w {
		return s.fail("expected a value")
	}
	s.pos += len(w)
	return nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func (s *Scanner) digits() error {
	start := s.pos
	for s.pos < len(s.data) && isDigit(s.data[s.pos]) {
		s.pos++
	}
	if s.pos == start {
		return s.fail("expected a digit")
	}
	return nil
}

// at reports whether the next byte is in set.
func (s *Scanner) at(set string) bool {
	if s.pos == len(s.data) {
		return false
	}
	for i := range len(set) {
		if s.data[s.pos] == set[i] {
			return true
		}
	}
	return false
}

func (s *Scanner) number() error {
	if s.at("-") {
		s.pos++
	}
	if s.at("0") { // a leading zero stands alone
		s.pos++
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.at(".") {
		s.pos++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.at("eE") {
		s.pos++
		if s.at("+-") {
			s.pos++
		}
		return s.digits()
	}
	return nil
}

func (s *Scanner) string() error {
	s.pos++
	for {
		s.pos += plainText(s.data[s.pos:])
		if s.pos == len(s.data) {
			break
		}
		c := s.data[s.pos]
		switch {
		case c == '"':
			s.pos++
			return nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		case c < ' ':
			return s.fail("control character in a string")
		case c < utf8.RuneSelf:
			s.pos++
		default:
			r, size := utf8.DecodeRune(s.data[s.pos:])
			if r == utf8.RuneError && size == 1 {
				return s.fail("not UTF-8")
			}
			s.pos += size
		}
	}
	return s.fail("unterminated string")
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plainText returns how many bytes at the start of b are for certain ASCII
// characters that stand for themselves in a string. It tests eight at a time:
// nearly all bytes of a long string are.
func plainText(b []byte) int {
	n := 0
	for len(b)-n >= 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		// The lowest bit that is set is that of the first byte that is not plain.
		if m := (x | (x - ones*' ') | (quote - ones) | (slash - ones)) & highs; m != 0 {
			return n + bits.TrailingZeros64(m)/8
		}
		n += 8
	}
	return n
}

// shortEscapes has the bytes that may follow a backslash by themselves.
var shortEscapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

func (s *Scanner) escape() error {
	s.pos++
	switch {
	case s.pos < len(s.data) && shortEscapes[s.data[s.pos]]:
		s.pos++
		return nil
	case s.at("u"):
		if _, ok := hex4(s.data[s.pos+1:]); !ok {
			return s.fail("invalid escape in a string")
		}
		s.pos += 5
		return nil
	default:
		return s.fail("invalid escape in a string")
	}
}
