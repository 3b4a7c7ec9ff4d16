package transport

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/service/rawjson"
)

// readBufferBytes is the read buffer of an idle connection: requests are rarely
// longer, so most are read in one system call.
const readBufferBytes = 16 << 10

// lineReader splits a byte stream into lines. It never holds more than max
// bytes of one.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, readBufferBytes), max: limit}
}

// errTooLong reports a line over the limit. The line has been read to its end.
var errTooLong = errors.New("line too long")

// next appends the next line, without its newline, to buf. It skips a line over
// the limit while reading it: with errTooLong it returns only the beginning,
// enough to look for an id. A last line without a newline is dropped: its
// writer was cut off, perhaps in the middle of a command.
func (l *lineReader) next(buf []byte) ([]byte, error) {
	tooLong := false
	for {
		piece, err := l.r.ReadSlice('\n')
		if !tooLong {
			buf = append(buf, piece...)
			if tooLong = len(bytes.TrimRight(buf, "\r\n")) > l.max; tooLong {
				buf = bytes.Clone(buf[:min(len(buf), idPrefixBytes)]) // frees the rest
			}
		}
		switch {
		case err == nil && tooLong:
			return buf, errTooLong
		case err == nil:
			buf = buf[:len(buf)-1]
			return bytes.TrimSuffix(buf, []byte("\r")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return buf, err
		}
	}
}

// request is one parsed line. Its slices point into the line.
type request struct {
	id     json.RawMessage // as sent; nil: none, so no answer is expected
	method string
	params json.RawMessage
	actor  json.RawMessage // nil: none
}

var null = json.RawMessage("null")

// parse splits a line into its members. With an error, the request's id is the
// one to answer with.
func parse(line []byte) (request, *api.Error) {
	s := rawjson.Scan(line)
	if kind := s.Kind(); kind != rawjson.Object {
		if _, err := s.Value(); err != nil {
			return request{id: null}, parseError(err)
		}
		if err := s.End(); err != nil {
			return request{id: null}, parseError(err)
		}
		if kind == rawjson.Array {
			return request{id: null}, api.Errorf(api.CodeInvalidRequest, "batch requests are not supported").
				WithHint("send each request on its own line; requests are served concurrently")
		}
		return request{id: null}, invalidRequest("a request must be a JSON object")
	}
	q, members, err := envelope(&s)
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return request{id: null}, parseError(err)
	}
	problem := members.problem()
	if problem == nil {
		q.method, err = rawjson.Unquote(members.method)
		if err != nil {
			problem = invalidRequest("method must be a string")
		}
	}
	if problem != nil && q.id == nil {
		q.id = null
	}
	return q, problem
}

// members are the parts of a request that parse checks once it has seen all of
// them.
type members struct {
	jsonrpc, method json.RawMessage
	badID           bool
	twoActors       bool
}

// envelope reads the members of a request object and ignores unknown ones. On
// an error it returns what it has read.
func envelope(s *rawjson.Scanner) (q request, m members, err error) {
	if err := s.Enter(); err != nil {
		return q, m, err
	}
	for first := true; ; first = false {
		key, ok, err := s.Key(first)
		if !ok || err != nil {
			return q, m, err
		}
		kind := s.Kind()
		raw, err := s.Value()
		if err != nil {
			return q, m, err
		}
		switch string(key) {
		case "jsonrpc":
			m.jsonrpc = raw
		case "id":
			q.id, m.badID = raw, kind != rawjson.String && kind != rawjson.Number && kind != rawjson.Null
			if m.badID {
				q.id = nil
			}
		case "method":
			m.method = nil
			if kind == rawjson.String {
				m.method = raw
			}
		case "params":
			q.params = raw
		case "actor":
			m.twoActors = m.twoActors || q.actor != nil
			q.actor = raw
		}
	}
}

func (m *members) problem() *api.Error {
	switch {
	case m.badID:
		return invalidRequest("id must be a string, a number or null")
	case string(m.jsonrpc) != `"2.0"`:
		return invalidRequest(`jsonrpc must be "2.0"`)
	case m.method == nil:
		return invalidRequest("method must be a string")
	case m.twoActors:
		return invalidRequest("a request has at most one actor") // another reader could pick the other one
	default:
		return nil
	}
}

const exampleHint = `send one request per line, such as {"jsonrpc":"2.0","id":1,"method":"system.ping","params":{}}`

func invalidRequest(what string) *api.Error {
	return api.Errorf(api.CodeInvalidRequest, "%s", what).WithHint(exampleHint)
}

func parseError(err error) *api.Error {
	return api.Errorf(api.CodeParseError, "the line is not JSON: %w", err).WithHint(exampleHint)
}

// idPrefixBytes is how far into an overlong line to look for its id. Clients
// put the id first.
const idPrefixBytes = 4 << 10

// tooLong returns the answer to a line over the limit, given its beginning.
func tooLong(start []byte, limit int) (request, *api.Error) {
	s := rawjson.Scan(start)
	q := request{}
	if s.Kind() == rawjson.Object {
		q, _, _ = envelope(&s) // fails where the text is cut; the members before that are used
	}
	if q.id == nil {
		q.id = null
	}
	return q, api.Errorf(api.CodeInvalidRequest, "the request is longer than %d bytes", limit).
		With("max_request_bytes", limit).
		WithHint("put large data in a file, or send it in pieces with exec.input")
}

// answer is a buffer for encoding one answer.
type answer struct {
	buf bytes.Buffer
	enc *json.Encoder
}

// answers pools the buffers of answers for all connections.
type answers struct{ pool sync.Pool }

func (p *answers) get() *answer {
	if a, ok := p.pool.Get().(*answer); ok {
		return a
	}
	a := &answer{}
	a.enc = json.NewEncoder(&a.buf)
	a.enc.SetEscapeHTML(false) // output often contains < > &, and this is not HTML
	return a
}

// maxPooledBytes keeps the buffer of a large result out of the pool; most
// answers are far smaller.
const maxPooledBytes = 64 << 10

func (p *answers) put(a *answer) {
	if a.buf.Cap() <= maxPooledBytes {
		p.pool.Put(a)
	}
}

// bufferPool pools the buffers of notifications. A busy stream sends large ones
// in quick succession.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// maxPooledNotification is larger than a chunk of text or base64. Only a chunk
// that consists of control characters is longer.
const maxPooledNotification = 512 << 10

func (p *bufferPool) put(b *[]byte) {
	if cap(*b) <= maxPooledNotification {
		p.pool.Put(b)
	}
}

// encode returns the line that answers id, with the result or with the error. A
// result that cannot be encoded becomes an INTERNAL error.
func (a *answer) encode(id json.RawMessage, result any, failure *api.Error) []byte {
	if failure == nil {
		if err := a.try(id, `,"result":`, result); err == nil {
			return a.buf.Bytes()
		}
		failure = api.Errorf(api.CodeInternal, "the result could not be encoded").
			WithHint("the call was executed: check session.info or exec.info before you repeat it")
	}
	if err := a.try(id, `,"error":`, failure); err != nil {
		// Only a detail can be impossible to encode.
		plain := &api.Error{Code: failure.Code, Message: failure.Message, Hint: failure.Hint}
		_ = a.try(id, `,"error":`, plain) // strings always encode
	}
	return a.buf.Bytes()
}

// appender is a result that encodes itself, faster than encoding/json does.
type appender interface {
	AppendJSON(b []byte) ([]byte, error)
}

func (a *answer) try(id json.RawMessage, member string, value any) error {
	a.buf.Reset()
	a.buf.WriteString(`{"jsonrpc":"2.0","id":`)
	a.buf.Write(id)
	a.buf.WriteString(member)
	if quick, ok := value.(appender); ok {
		text, err := quick.AppendJSON(a.buf.AvailableBuffer())
		a.buf.Write(text)
		a.buf.WriteString("}\n")
		return err
	}
	if raw, ok := value.(json.RawMessage); ok && len(raw) > 0 {
		// Of another place: the router has checked that it is JSON in one line.
		a.buf.Write(raw)
		a.buf.WriteString("}\n")
		return nil
	}
	if err := a.enc.Encode(value); err != nil {
		return err
	}
	a.buf.Truncate(a.buf.Len() - 1) // Encode appends a newline
	a.buf.WriteString("}\n")
	return nil
}
