package transport

import "bytes"

// framing follows the requests that a client sends over one connection, to
// refuse those whose end is in doubt: with both Content-Length and
// Transfer-Encoding, or with a header that goes on in the next line. net/http
// accepts them and drops the length; a proxy before it may go by the length
// instead, and then what one takes for a body the other takes for a request.
//
// It sees the bytes before net/http does and spoils the line that is wrong, so
// that net/http answers with 400 and closes the connection. It must agree with
// net/http on where a request begins. Content-Length is followed; a request with
// Transfer-Encoding must be the last of its connection, which HTTPServer sees to.
//
// The zero value is at the beginning of a connection.
type framing struct {
	state framingState
	name  [len("transfer-encoding")]byte // the name of the header, in lower case, as far as it fits
	size  int                            // of the name; longer than name for others

	hasLength, hasEncoding bool
	length                 int64 // of the body
}

type framingState int

const (
	beforeRequest framingState = iota
	inRequestLine
	inName
	inValue
	inLength // the value of Content-Length
	inBody
	afterFraming // the rest of the connection is not looked at
)

// maxBodyLength is above what net/http takes, and far from an overflow.
const maxBodyLength = 1 << 62

// spoiled is no part of any name or value.
const invalidByte = 0

// filter looks at the next bytes of a connection.
func (f *framing) filter(b []byte) {
	for i := 0; i < len(b); {
		switch f.state {
		case beforeRequest: // net/http skips some of these
			if b[i] != '\r' && b[i] != '\n' {
				f.state = inRequestLine
				continue
			}
			i++
		case inRequestLine, inValue:
			end := bytes.IndexByte(b[i:], '\n')
			if end < 0 {
				return
			}
			f.state, f.size = inName, 0
			i += end + 1
		case inName:
			f.inName(&b[i])
			i++
		case inLength:
			f.inLength(b[i])
			i++
		case inBody:
			n := min(f.length, int64(len(b)-i))
			f.length -= n
			i += int(n)
			if f.length == 0 {
				*f = framing{}
			}
		case afterFraming:
			return
		}
	}
}

// inName takes a byte of a line up to its colon.
func (f *framing) inName(c *byte) {
	switch {
	case *c == '\n' && f.size == 0:
		f.endHeader()
	case *c == '\n': // a line without a colon: net/http refuses it
		f.size = 0
	case *c == '\r':
	case f.size == 0 && (*c == ' ' || *c == '\t'):
		*c = invalidByte
		f.state = afterFraming
	case *c == ':':
		f.endName(c)
	default:
		if f.size < len(f.name) {
			f.name[f.size] = lower(*c)
		}
		f.size++
	}
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// endName takes the colon after a name.
func (f *framing) endName(colon *byte) {
	f.state = inValue
	switch string(f.name[:min(f.size, len(f.name))]) {
	case "content-length":
		f.hasLength, f.length = true, 0
		f.state = inLength
	case "transfer-encoding":
		f.hasEncoding = f.hasEncoding || f.size == len(f.name)
	}
	if f.hasLength && f.hasEncoding {
		*colon = invalidByte
		f.state = afterFraming
	}
}

// inLength takes a byte of a Content-Length. What is no number net/http refuses.
func (f *framing) inLength(c byte) {
	switch {
	case c == '\n':
		f.state, f.size = inName, 0
	case '0' <= c && c <= '9':
		f.length = min(f.length, maxBodyLength/10-1)*10 + int64(c-'0')
	}
}

func (f *framing) endHeader() {
	switch {
	case f.hasEncoding:
		f.state = afterFraming
	case f.length > 0:
		*f = framing{state: inBody, length: f.length}
	default:
		*f = framing{}
	}
}
