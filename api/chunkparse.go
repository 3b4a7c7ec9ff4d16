package api

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// ParseJSON decodes a chunk. It parses the output of AppendJSON, without a
// result, an error and times, in one pass, and leaves any other form of JSON to
// encoding/json.
func (c *Chunk) ParseJSON(b []byte) error {
	if parsed, ok := quickChunk(b); ok {
		*c = parsed
		return nil
	}
	*c = Chunk{}
	return json.Unmarshal(b, c)
}

// quickChunk reads the members one after the other. ok is false if anything is
// not in the form that AppendJSON writes.
func quickChunk(b []byte) (c Chunk, ok bool) {
	b, ok = bytes.CutPrefix(b, []byte("{"))
	for ok {
		var name, value []byte
		if name, b, ok = quickName(b); !ok {
			return c, false
		}
		switch string(name) {
		case "offset", "bytes", "next":
			var n int64
			if n, b, ok = quickNumber(b); !ok {
				return c, false
			}
			switch string(name) {
			case "offset":
				c.Offset = n
			case "bytes":
				c.Bytes = n
			default:
				c.Next = n
			}
		case "data":
			if c.Data, b, ok = quickText(b); !ok {
				return c, false
			}
		default:
			if value, b, ok = quickWord(b); !ok {
				return c, false
			}
			switch string(name) {
			case "stream_id":
				c.StreamID = string(value)
			case "exec_id":
				c.ExecID = string(value)
			case "type":
				c.Type = ChunkType(value)
			case "encoding":
				c.Encoding = string(value)
			default:
				return c, false
			}
		}
		if string(b) == "}" {
			return c, true
		}
		b, ok = bytes.CutPrefix(b, []byte(","))
	}
	return c, false
}

func quickName(b []byte) (name, rest []byte, ok bool) {
	name, rest, ok = quickWord(b)
	if !ok {
		return nil, nil, false
	}
	rest, ok = bytes.CutPrefix(rest, []byte(":"))
	return name, rest, ok
}

// quickWord reads a string of printable ASCII without escapes.
func quickWord(b []byte) (word, rest []byte, ok bool) {
	b, ok = bytes.CutPrefix(b, []byte(`"`))
	if !ok {
		return nil, nil, false
	}
	for i, c := range b {
		switch {
		case c == '"':
			return b[:i], b[i+1:], true
		case c == '\\' || c < ' ' || c >= utf8.RuneSelf:
			return nil, nil, false
		}
	}
	return nil, nil, false
}

func quickNumber(b []byte) (n int64, rest []byte, ok bool) {
	end := 0
	for end < len(b) && b[end] >= '0' && b[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(b[:end]), 10, 64)
	return n, b[end:], err == nil
}

// quickText reads a string in which every escape is one that AppendJSON writes.
func quickText(b []byte) (text string, rest []byte, ok bool) {
	b, ok = bytes.CutPrefix(b, []byte(`"`))
	if !ok {
		return "", nil, false
	}
	n := plain(b)
	if n < len(b) && b[n] == '"' {
		return string(b[:n]), b[n+1:], utf8.Valid(b[:n])
	}
	out := make([]byte, len(b)) // escapes only become shorter
	at := 0
	for n < len(b) {
		at += copy(out[at:], b[:n])
		if b[n] == '"' {
			out = out[:at:at]
			return unsafe.String(unsafe.SliceData(out), at), b[n+1:], utf8.Valid(out) // out is not shared
		}
		size := 2
		if n+1 < len(b) {
			out[at] = unescapes[b[n+1]]
		}
		if out[at] == 0 {
			if out[at], size = escapedCode(b[n:]); size == 0 {
				return "", nil, false
			}
		}
		at++
		b = b[n+size:]
		n = plain(b)
	}
	return "", nil, false // unterminated
}

// plain returns the number of bytes of b before the first quote or backslash.
func plain(b []byte) int {
	rest := b
	for len(rest) >= 16 { // two words per iteration: the loop overhead costs as much as the test
		x, y := binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
		if quoting(x)|quoting(y) != 0 {
			break
		}
		rest = rest[16:]
	}
	for len(rest) >= 8 {
		if m := quoting(binary.LittleEndian.Uint64(rest)); m != 0 {
			return len(b) - len(rest) + bits.TrailingZeros64(m)/8
		}
		rest = rest[8:]
	}
	for i, c := range rest {
		if c == '"' || c == '\\' {
			return len(b) - len(rest) + i
		}
	}
	return len(b)
}

// quoting sets the high bit of each byte of x that is a quote or a backslash.
// Only the lowest set bit is reliable; bits above it may be set wrongly.
func quoting(x uint64) uint64 {
	quote, slash := x^(ones*'"'), x^(ones*'\\')
	return ((quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// escapedCode reads \u00XX at the start of b. size is 0 for anything else.
func escapedCode(b []byte) (c byte, size int) {
	if len(b) < 6 || b[1] != 'u' || b[2] != '0' || b[3] != '0' {
		return 0, 0
	}
	v, err := strconv.ParseUint(string(b[4:6]), 16, 8)
	if err != nil || v >= utf8.RuneSelf {
		return 0, 0
	}
	return byte(v), 6
}

// unescapes maps the letter after a backslash to the byte it stands for; 0
// means none.
var unescapes = [256]byte{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'f': '\f', '"': '"', '\\': '\\', '/': '/'}
