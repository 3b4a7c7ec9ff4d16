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

// readBufferBytes is what an idle connection holds for reading: a request is
// rarely longer, and then it is read in one system call.
const readBufferBytes = 16 << 10

// lineReader cuts a byte stream into lines, and never holds more than max
// bytes of one.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, readBufferBytes), max: limit}
}

// errTooLong is a line over the limit. It has been read to its end.
var errTooLong = errors.New("line too long")

// next appends the next line, without its newline, to buf. A line over the
// limit is skipped as it comes in: what is returned with errTooLong is only
// its beginning, enough to look for an id. A last line without a newline is not a line: whoever wrote it
// was cut off, perhaps in the middle of a command.
func (l *lineReader) next(buf []byte) ([]byte, error) {
	tooLong := false
	for {
		piece, err := l.r.ReadSlice('\n')
		if !tooLong {
			buf = append(buf, piece...)
			if tooLong = len(bytes.TrimRight(buf, "\r\n")) > l.max; tooLong {
				buf = bytes.Clone(buf[:min(len(buf), idPrefixBytes)]) // lets go of the rest
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

// request is one line taken apart. Its slices point into the line.
type request struct {
	id     json.RawMessage // as it was sent; nil: none, so no answer is wanted
	method string
	params json.RawMessage
}

var null = json.RawMessage("null")

// parse takes a line apart. With an error, the request's id is the one to
// answer under.
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
			return request{id: null}, api.Errorf(api.CodeInvalidRequest, "batches are not served").
				WithHint("send each request on a line of its own: they are served concurrently all the same")
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

// members are the parts of a request that parse judges once it has seen all.
type members struct {
	jsonrpc, method json.RawMessage
	badID           bool
}

// envelope reads the members of a request object. Those it does not know are
// left to whoever put them there. On an error it returns what it has read.
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
	default:
		return nil
	}
}

const exampleHint = `one request a line, such as {"jsonrpc":"2.0","id":1,"method":"system.ping","params":{}}`

func invalidRequest(what string) *api.Error {
	return api.Errorf(api.CodeInvalidRequest, "%s", what).WithHint(exampleHint)
}

func parseError(err error) *api.Error {
	return api.Errorf(api.CodeParseError, "the line is not JSON: %w", err).WithHint(exampleHint)
}

// idPrefixBytes is how far into a line that is too long its id is looked for:
// clients put it first, and a line over the limit is nobody's fast path.
const idPrefixBytes = 4 << 10

// tooLong is the answer to a line over the limit, of which the beginning is
// known.
func tooLong(start []byte, limit int) (request, *api.Error) {
	s := rawjson.Scan(start)
	q := request{}
	if s.Kind() == rawjson.Object {
		q, _, _ = envelope(&s) // it fails where the text is cut: what came before counts
	}
	if q.id == nil {
		q.id = null
	}
	return q, api.Errorf(api.CodeInvalidRequest, "the request is longer than %d bytes", limit).
		With("max_request_bytes", limit).
		WithHint("put large data in a file, or send it in pieces with exec.input")
}

// answer is a buffer in which one answer is encoded.
type answer struct {
	buf bytes.Buffer
	enc *json.Encoder
}

// answers keeps the buffers of answers for reuse, by all connections.
type answers struct{ pool sync.Pool }

func (p *answers) get() *answer {
	if a, ok := p.pool.Get().(*answer); ok {
		return a
	}
	a := &answer{}
	a.enc = json.NewEncoder(&a.buf)
	a.enc.SetEscapeHTML(false) // output is full of < > &, and this is not a web page
	return a
}

// maxPooledBytes keeps the buffer of one large result from being held for
// good; most answers are far smaller.
const maxPooledBytes = 64 << 10

func (p *answers) put(a *answer) {
	if a.buf.Cap() <= maxPooledBytes {
		p.pool.Put(a)
	}
}

// notes keeps the buffers of notifications for reuse. A busy stream makes large
// ones, one after the other.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// maxNoteBytes is more than a chunk of text or of base64 takes. Only one that
// is all control characters is longer.
const maxPooledNotification = 512 << 10

func (p *bufferPool) put(b *[]byte) {
	if cap(*b) <= maxPooledNotification {
		p.pool.Put(b)
	}
}

// encode makes the line that answers id, with the result or with the error.
// A result that cannot be encoded is an error of ours.
func (a *answer) encode(id json.RawMessage, result any, failure *api.Error) []byte {
	if failure == nil {
		if err := a.try(id, `,"result":`, result); err == nil {
			return a.buf.Bytes()
		}
		failure = api.Errorf(api.CodeInternal, "the result could not be encoded").
			WithHint("the call has had its effects: look with session.info or exec.info before you repeat it")
	}
	if err := a.try(id, `,"error":`, failure); err != nil {
		// Only a detail can be beyond JSON.
		plain := &api.Error{Code: failure.Code, Message: failure.Message, Hint: failure.Hint}
		_ = a.try(id, `,"error":`, plain) // strings alone always encode
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
	if err := a.enc.Encode(value); err != nil {
		return err
	}
	a.buf.Truncate(a.buf.Len() - 1) // Encode ends with a newline of its own
	a.buf.WriteString("}\n")
	return nil
}
