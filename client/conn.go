package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// wire sends and receives whole messages, each one JSON object. One goroutine
// sends, one receives; close ends both.
type wire interface {
	send(message []byte) error
	receive() ([]byte, error) // valid until the next call
	close() error
	// setReceiveTimeout limits how long receive waits from now on. It returns
	// false if that is not possible.
	setReceiveTimeout(d time.Duration) bool
}

// lineWire is a byte stream with one message per line.
type lineWire struct {
	conn io.ReadWriteCloser
	in   *bufio.Reader
	long []byte // a line longer than the buffer of in
}

// wireBuffer is large enough for most answers, and for most chunks of a busy
// stream.
const wireBuffer = 256 << 10

func newLineWire(conn io.ReadWriteCloser) *lineWire {
	return &lineWire{conn: conn, in: bufio.NewReaderSize(conn, wireBuffer)}
}

func (w *lineWire) send(message []byte) error {
	_, err := w.conn.Write(append(message, '\n'))
	return err
}

func (w *lineWire) receive() ([]byte, error) {
	line, err := w.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	w.long = w.long[:0]
	for errors.Is(err, bufio.ErrBufferFull) {
		w.long = append(w.long, line...)
		line, err = w.in.ReadSlice('\n')
	}
	w.long = append(w.long, line...)
	return w.long, err
}

func (w *lineWire) close() error { return w.conn.Close() }

func (w *lineWire) setReceiveTimeout(d time.Duration) bool {
	c, ok := w.conn.(interface{ SetReadDeadline(time.Time) error })
	return ok && c.SetReadDeadline(time.Now().Add(d)) == nil
}

// conn is one connection. Any number of goroutines may call over it
// concurrently.
type conn struct {
	wire  wire
	lines chan []byte   // to the write goroutine
	done  chan struct{} // closed when the connection has ended

	mu      sync.Mutex // guards the fields below; never held during I/O
	lastID  uint64
	waiting map[uint64]*pending
	subs    map[string]subscriber // by stream id
	notice  *api.Error            // the last error without a request id
	err     error                 // why the connection has ended; set before done is closed
}

// pending is a call that has not been answered yet.
type pending struct {
	answer chan []byte // buffered
	sub    subscriber  // set for a call that opens a stream
}

// subscriber receives the notifications of a stream. It is called by the read
// goroutine: until it returns, nothing else is read.
type subscriber func(params []byte)

func newConn(w wire) *conn {
	c := &conn{
		wire: w, lines: make(chan []byte), done: make(chan struct{}),
		waiting: map[uint64]*pending{}, subs: map[string]subscriber{},
	}
	go c.read()
	go c.write()
	return c
}

func (c *conn) close() { c.fail(ErrClosed) }

func (c *conn) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// call calls a method. If the method opens a stream, sub receives the
// notifications.
func (c *conn) call(ctx context.Context, method string, params, result any, sub subscriber) error {
	id, answer, err := c.register(sub)
	if err != nil {
		return err
	}
	defer c.forget(id)
	line, err := encode(id, method, params)
	if err != nil {
		return fmt.Errorf("%s: params: %w", method, err)
	}
	select {
	case c.lines <- line:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	case <-c.done:
		return c.err
	}
	select {
	case line = <-answer:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	case <-c.done:
		// The answer may have arrived just before the connection ended.
		select {
		case line = <-answer:
		default:
			return c.err
		}
	}
	return decode(method, line, result)
}

func (c *conn) register(sub subscriber) (uint64, chan []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	c.lastID++
	answer := make(chan []byte, 1)
	c.waiting[c.lastID] = &pending{answer: answer, sub: sub}
	return c.lastID, answer, nil
}

func (c *conn) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// unsubscribe drops further notifications of a stream.
func (c *conn) unsubscribe(stream string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subs, stream)
}

// fail ends the connection. Only the first reason is recorded.
func (c *conn) fail(reason error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = reason
	close(c.done)
	c.mu.Unlock()
	_ = c.wire.close() // nothing is lost: all pending calls have failed
}

// encode builds a request. The id goes first, where a daemon that refuses the
// request for its length still finds it.
func encode(id uint64, method string, params any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a command is full of < > &
	b.WriteString(`{"jsonrpc":"2.0","id":`)
	b.WriteString(strconv.FormatUint(id, 10))
	b.WriteString(`,"method":`)
	if err := enc.Encode(method); err != nil {
		return nil, err
	}
	b.Truncate(b.Len() - 1) // Encode appends a newline
	if params != nil {
		b.WriteString(`,"params":`)
		if err := enc.Encode(params); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - 1)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// decode reads the answer in one pass, straight into result.
func decode(method string, line []byte, result any) error {
	if result == nil {
		result = new(json.RawMessage)
	}
	answer := struct {
		Result any        `json:"result"`
		Error  *api.Error `json:"error"`
	}{Result: result}
	if err := json.Unmarshal(line, &answer); err != nil {
		return fmt.Errorf("%s: decode answer: %w", method, err)
	}
	if answer.Error != nil {
		return answer.Error
	}
	return nil
}

// closeTimeout is how long to wait for the daemon's final lines after a write
// has failed. They say why it closed the connection, and are already on their
// way.
const closeTimeout = time.Second

// write sends the queued requests. It runs in its own goroutine, so that a call
// can be abandoned while a busy daemon is not reading.
func (c *conn) write() {
	for {
		select {
		case line := <-c.lines:
			if err := c.wire.send(line); err != nil {
				if c.wire.setReceiveTimeout(closeTimeout) {
					return // read finds the end and its reason
				}
				c.fail(c.closeError(err))
				return
			}
		case <-c.done:
			return
		}
	}
}

// read receives messages in its own goroutine, and delivers each answer to its
// call and each notification to its stream.
func (c *conn) read() {
	for {
		line, err := c.wire.receive()
		if err == nil {
			err = c.deliver(line)
		}
		if err != nil {
			c.fail(c.closeError(err))
			return
		}
	}
}

// closeError returns the error for calls whose connection ended with err. It
// prefers the reason that the daemon gave.
func (c *conn) closeError(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.notice != nil {
		return fmt.Errorf("%w: %w", ErrClosed, c.notice)
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: closed by the daemon", ErrClosed)
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

func (c *conn) deliver(line []byte) error {
	if method, params, ok := quickNotification(line); ok {
		return c.notify(method, params)
	}
	id, ok := quickID(line)
	if !ok {
		var err error
		if id, err = c.slowID(line); err != nil || id == 0 {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.waiting[id]
	if p == nil {
		return nil
	}
	delete(c.waiting, id)
	line = bytes.Clone(line)
	if p.sub != nil {
		// Before the next line is read, since it may be the stream's first.
		var head struct {
			Result struct {
				StreamID string `json:"stream_id"`
			} `json:"result"`
		}
		if err := json.Unmarshal(line, &head); err == nil && head.Result.StreamID != "" {
			c.subs[head.Result.StreamID] = p.sub
		}
	}
	p.answer <- line // buffered, never blocks
	return nil
}

// notify passes a notification to the subscriber of its stream, if there is
// one.
func (c *conn) notify(method string, params []byte) error {
	if method != api.NotifyExecChunk && method != api.NotifySessionEvent {
		return nil
	}
	stream, ok := quickStream(params)
	if !ok {
		var head struct {
			StreamID string `json:"stream_id"`
		}
		if err := json.Unmarshal(params, &head); err != nil {
			return fmt.Errorf("notification: %w", err)
		}
		stream = head.StreamID
	}
	c.mu.Lock()
	sub := c.subs[stream]
	c.mu.Unlock()
	if sub != nil {
		sub(params)
	}
	return nil
}

// quickNotification splits a notification in the form that the daemon writes,
// so that a large one is parsed only once.
func quickNotification(line []byte) (method string, params []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"jsonrpc":"2.0","method":"`))
	if !ok {
		return "", nil, false
	}
	name, rest, ok := bytes.Cut(rest, []byte(`","params":`))
	if !ok {
		return "", nil, false
	}
	params, ok = bytes.CutSuffix(bytes.TrimRight(rest, "\r\n"), []byte(`}`))
	return string(name), params, ok
}

// quickStream returns the stream id from the place where the daemon writes it.
func quickStream(params []byte) (string, bool) {
	rest, ok := bytes.CutPrefix(params, []byte(`{"stream_id":"`))
	if !ok {
		return "", false
	}
	id, _, ok := bytes.Cut(rest[:min(len(rest), 64)], []byte(`"`))
	return string(id), ok && !bytes.Contains(id, []byte(`\`))
}

// quickID returns the id from the place where the daemon writes it, so that a
// large answer is not parsed twice.
func quickID(line []byte) (uint64, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"jsonrpc":"2.0","id":`))
	if !ok {
		return 0, false
	}
	digits, _, ok := bytes.Cut(rest[:min(len(rest), 24)], []byte(","))
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(string(digits), 10, 64)
	return id, err == nil
}

// slowID parses the id of a message in any form of JSON. It returns 0 for a
// message that answers no call: a notification, which it delivers, or an error
// without an id, which it keeps as the reason for a later close.
func (c *conn) slowID(line []byte) (uint64, error) {
	var head struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  json.RawMessage `json:"params"`
		Error   *api.Error      `json:"error"`
	}
	if err := json.Unmarshal(line, &head); err != nil || head.Version != "2.0" {
		return 0, errors.New("the peer does not speak JSON-RPC: is it a TRL daemon?")
	}
	if head.Method != "" {
		return 0, c.notify(head.Method, head.Params)
	}
	id, err := strconv.ParseUint(string(head.ID), 10, 64)
	if err == nil {
		return id, nil
	}
	if head.Error != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.notice = head.Error
	}
	return 0, nil
}
