package api

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"slices"
	"strconv"
)

// Method returns exec.chunk.
func (*Chunk) Method() string { return NotifyExecChunk }

// Method returns session.event.
func (*SessionEvent) Method() string { return NotifySessionEvent }

// AppendJSON appends the event as JSON.
func (e *SessionEvent) AppendJSON(b []byte) ([]byte, error) { return appendValue(b, e) }

func appendValue(b []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(b, text...), err
}

// Content returns the decoded bytes of the chunk.
func (c *Chunk) Content() ([]byte, error) { return DecodeBytes(c.Data, c.Encoding) }

// Err returns the error of an error chunk, and nil for any other.
func (c *Chunk) Err() error {
	switch {
	case c.Type != ChunkError:
		return nil
	case c.Error == nil:
		return Errorf(CodeExecNotFound, "the stream ended with an error chunk that names no error")
	}
	return c.Error
}

// AppendJSON appends the same JSON as json.Marshal, many times faster: it
// decides how fast a stream is. Data must be valid UTF-8, as EncodeBytes
// returns it.
func (c *Chunk) AppendJSON(b []byte) ([]byte, error) { return c.AppendJSONWith(b, nil) }

// AppendJSONWith is AppendJSON with raw, if it is not empty, as the content in
// place of Data and Encoding.
func (c *Chunk) AppendJSONWith(b, raw []byte) ([]byte, error) {
	b = append(b, '{')
	text := func(name, value string) {
		if value != "" {
			b = append(appendName(b, name), '"')
			b = append(appendEscaped(b, value), '"')
		}
	}
	number := func(name string, value int64) {
		b = strconv.AppendInt(appendName(b, name), value, 10)
	}
	text("stream_id", c.StreamID)
	text("exec_id", c.ExecID)
	b = append(appendName(b, "type"), '"')
	b = append(appendEscaped(b, string(c.Type)), '"')
	number("offset", c.Offset)
	switch {
	case len(raw) == 0:
		text("data", c.Data)
		text("encoding", c.Encoding)
	case isText(raw):
		b = append(appendName(b, "data"), '"')
		b = append(appendEscaped(b, raw), '"')
	default:
		b = append(appendName(b, "data"), '"')
		b = append(base64.StdEncoding.AppendEncode(b, raw), '"')
		text("encoding", Base64)
	}
	if c.Bytes != 0 {
		number("bytes", c.Bytes)
	}
	number("next", c.Next)
	if c.AtMS != nil {
		number("at_ms", *c.AtMS)
	}
	var err error
	value := func(name string, v any) {
		if err == nil {
			b, err = appendValue(appendName(b, name), v)
		}
	}
	if c.TTY != nil {
		value("tty", c.TTY)
	}
	if c.Result != nil {
		value("result", c.Result)
	}
	if c.Error != nil {
		value("error", c.Error)
	}
	return append(b, '}'), err
}

// appendName appends the name of the next member of an object.
func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

// escapes says how to write a byte in a JSON string: 0 means as it is, 'u' as
// \u00XX, anything else as a backslash and that letter.
var escapes = func() (t [256]byte) {
	for c := range 0x20 {
		t[c] = 'u'
	}
	for c, letter := range map[byte]byte{'"': '"', '\\': '\\', '\n': 'n', '\r': 'r', '\t': 't', '\b': 'b', '\f': 'f'} {
		t[c] = letter
	}
	return t
}()

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special sets the high bit of each byte of x that needs escaping. Only the
// lowest set bit is reliable; bits above it may be set wrongly.
func special(x uint64) uint64 {
	quote, slash := x^(ones*'"'), x^(ones*'\\')
	return ((x-ones*0x20)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// appendEscaped appends s as the inside of a JSON string. It tests eight bytes
// at a time, since most need no escaping.
func appendEscaped[T string | []byte](b []byte, s T) []byte {
	const (
		block = 4 << 10
		most  = len(`\u0000`) // the longest escape of one byte
	)
	for len(s) > 0 {
		part := s[:min(len(s), block)]
		s = s[len(part):]
		b = slices.Grow(b, most*len(part))
		at := len(b)
		b = b[:at+most*len(part)]
		for len(part) >= 8 {
			x := uint64(part[0]) | uint64(part[1])<<8 | uint64(part[2])<<16 | uint64(part[3])<<24 |
				uint64(part[4])<<32 | uint64(part[5])<<40 | uint64(part[6])<<48 | uint64(part[7])<<56
			binary.LittleEndian.PutUint64(b[at:], x) // bytes after a special byte are overwritten below
			m := special(x)
			if m == 0 {
				at += 8
				part = part[8:]
				continue
			}
			// Bytes that need escaping often come together, so the rest of the
			// eight is handled byte by byte.
			n := bits.TrailingZeros64(m) / 8
			at += n
			for i := n; i < 8; i++ {
				at = putByte(b, at, part[i])
			}
			part = part[8:]
		}
		for i := range len(part) {
			at = putByte(b, at, part[i])
		}
		b = b[:at]
	}
	return b
}

// putByte writes c, escaped if necessary, and returns the next write position.
func putByte(b []byte, at int, c byte) int {
	letter := escapes[c]
	if letter == 0 {
		b[at] = c
		return at + 1
	}
	if letter != 'u' {
		b[at], b[at+1] = '\\', letter
		return at + 2
	}
	return putCode(b, at, c)
}

// putCode writes c as \u00XX.
func putCode(b []byte, at int, c byte) int {
	const hex = "0123456789abcdef"
	copy(b[at:], `\u00`)
	b[at+4], b[at+5] = hex[c>>4], hex[c&15]
	return at + 6
}
