package transport

import "bytes"

// framing follows the requests that a client sends over one connection, and
// rejects those whose end is ambiguous: requests with both Content-Length and
// Transfer-Encoding, or with a header that continues on the next line. net/http
// accepts these and ignores the length; a proxy in front of it may use the
// length, and then one takes for a body what the other takes for a request.
//
// It sees the bytes before net/http does and corrupts the offending line, so
// that net/http answers with 400 and closes the connection. It must agree with
// net/http on where a request begins. It follows Content-Length; a request with
// Transfer-Encoding must be the last of its connection, which HTTPServer
// ensures.
//
// The zero value is at the beginning of a connection.
type framing struct {
	state framingState
	name  [len("transfer-encoding")]byte // the header's name in lower case, as far as it fits
	size  int                            // of the name; larger than len(name) for longer ones

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
	afterFraming // the rest of the connection is not inspected
)

// maxBodyLength is above the maximum of net/http, and far from an overflow.
const maxBodyLength = 1 << 62

// invalidByte is not allowed in any header name or value.
const invalidByte = 0

// filter inspects the next bytes of a connection, and may change them.
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

// inName handles a byte of a line up to its colon.
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

// endName handles the colon after a name.
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

// inLength handles a byte of a Content-Length. net/http rejects what is not a
// number.
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
