package peer

import (
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

// LongAnswer is a MaxAnswer for calls that read: a page of output, each byte of which
// takes up to six in JSON, or a list of some thousand sessions.
const LongAnswer = 7 << 20

// Request is one call.
type Request struct {
	Method string
	// Params are encoded as the parameters, unless they are nil. A json.RawMessage
	// must be valid JSON.
	Params any
	// Actor is who makes the request, on a connection that acts for others. nil
	// means that the connection acts for itself.
	Actor json.RawMessage
	// MaxAnswer is how long the answer may be, in bytes, if that is more than the wire
	// allows without a reason.
	MaxAnswer int
	// Sent is called, unless it is nil, once the call has its position among those
	// of the connection: calls that are made later arrive later.
	Sent func()
}

// Subscriber receives the notifications of a stream. The read goroutine calls it:
// until it returns, nothing else is read. params is valid only until then.
type Subscriber func(method string, params []byte)

// Conn is one connection. It is safe for concurrent use.
type Conn struct {
	wire    Wire
	prompt  prompt        // the wire; nil if it can't send without waiting
	sending chan struct{} // holds a value while a message is being sent; never empty again after a failure
	rest    chan []byte   // of the message that is being sent, to the write goroutine; buffered
	done    chan struct{} // closed when the connection has ended

	mu      sync.Mutex // guards the fields below; never held during I/O
	lastID  uint64
	waiting map[uint64]*pending
	subs    map[string]Subscriber // by stream id
	notice  *api.Error            // the last error without a request id
	err     error                 // why the connection has ended; set before done is closed
}

// pending is a call that has not been answered yet.
type pending struct {
	answer chan []byte // buffered
	sub    Subscriber  // set for a call that opens a stream
	max    int         // see Request.MaxAnswer
}

// NewConn returns a connection over w, which it owns.
func NewConn(w Wire) *Conn {
	c := &Conn{
		wire: w, sending: make(chan struct{}, 1), rest: make(chan []byte, 1), done: make(chan struct{}),
		waiting: map[uint64]*pending{}, subs: map[string]Subscriber{},
	}
	c.prompt, _ = w.(prompt)
	go c.read()
	go c.write()
	return c
}

// Close ends the connection. Unanswered calls fail with ErrClosed.
func (c *Conn) Close() { c.Fail(ErrClosed) }

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Ended reports whether the connection has ended.
func (c *Conn) Ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Busy reports whether calls or streams use the connection.
func (c *Conn) Busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) > 0 || len(c.subs) > 0
}

// Err returns why the connection has ended; nil while it has not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Call makes a call, and returns the line that answers it, which the caller owns.
// If the method opens a stream, sub receives its notifications.
func (c *Conn) Call(ctx context.Context, q Request, sub Subscriber) ([]byte, error) {
	id, answer, err := c.register(q, sub)
	if err != nil {
		return nil, err
	}
	defer c.forget(id)
	line, err := Encode(id, q)
	if err != nil {
		return nil, fmt.Errorf("%s: params: %w", q.Method, err)
	}
	select {
	case c.sending <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", q.Method, ctx.Err())
	case <-c.done:
		return nil, &unsentError{c.Err()}
	}
	c.send(line)
	if q.Sent != nil {
		q.Sent()
	}
	select {
	case line = <-answer:
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", q.Method, ctx.Err())
	case <-c.done:
		// The answer may have arrived just before the connection ended.
		select {
		case line = <-answer:
		default:
			return nil, c.Err()
		}
	}
	return line, nil
}

// unsentError is the error of a call of which nothing was sent.
type unsentError struct{ reason error }

func (e *unsentError) Error() string { return e.reason.Error() }
func (e *unsentError) Unwrap() error { return e.reason }

// Unsent reports whether err says that the daemon can't have received the call.
func Unsent(err error) bool {
	var e *unsentError
	return errors.As(err, &e)
}

func (c *Conn) register(q Request, sub Subscriber) (uint64, chan []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, &unsentError{c.err}
	}
	c.lastID++
	answer := make(chan []byte, 1)
	c.waiting[c.lastID] = &pending{answer: answer, sub: sub, max: q.MaxAnswer}
	if q.MaxAnswer > 0 {
		c.allow()
	}
	return c.lastID, answer, nil
}

func (c *Conn) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.waiting[id]
	delete(c.waiting, id)
	if p != nil && p.max > 0 {
		c.allow()
	}
}

// allow allows the messages that calls wait for. Caller must hold mu.
func (c *Conn) allow() {
	if w, ok := c.wire.(limited); ok {
		longest := 0
		for _, p := range c.waiting {
			longest = max(longest, p.max)
		}
		w.AllowMessage(longest)
	}
}

// Unsubscribe drops further notifications of a stream.
func (c *Conn) Unsubscribe(stream string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subs, stream)
}

// Fail ends the connection. Only the first reason is recorded.
func (c *Conn) Fail(reason error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = reason
	close(c.done)
	c.mu.Unlock()
	_ = c.wire.Close() // nothing is lost: all pending calls have failed
}

// Encode builds the line of a request. The id goes first, where a daemon that
// refuses the request for its length still finds it.
func Encode(id uint64, q Request) ([]byte, error) {
	method, err := json.Marshal(q.Method)
	if err != nil {
		return nil, err
	}
	params, err := encodeParams(q.Params)
	if err != nil {
		return nil, err
	}
	const most = len(`{"jsonrpc":"2.0","id":18446744073709551615,"method":,"actor":,"params":}` + "\n") // a wire appends the newline
	b := make([]byte, 0, most+len(method)+len(q.Actor)+len(params))
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendUint(b, id, 10)
	b = append(append(b, `,"method":`...), method...)
	if q.Actor != nil {
		b = append(append(b, `,"actor":`...), q.Actor...)
	}
	if params != nil {
		b = append(append(b, `,"params":`...), params...)
	}
	return append(b, '}'), nil
}

// encodeParams returns parameters in one line; nil for none.
func encodeParams(params any) ([]byte, error) {
	var b bytes.Buffer
	switch params := params.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		if bytes.IndexByte(params, '\n') < 0 {
			return params, nil
		}
		// The rest would count as requests of their own, with an actor of the caller's
		// choice.
		err := json.Compact(&b, params)
		return b.Bytes(), err
	default:
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // a command is full of < > &
		err := enc.Encode(params)
		return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
	}
}

// Decode reads the answer to a call of method in one pass, straight into result,
// which may be nil. The error in an answer is returned as an *api.Error.
func Decode(method string, line []byte, result any) error {
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

// send sends a request, and what it would have to wait for in the write goroutine, so
// that a call can be abandoned while a busy daemon is not reading. The caller must
// have put a value into sending.
func (c *Conn) send(line []byte) {
	if c.prompt == nil {
		c.rest <- line // never blocks: one message is sent at a time
		return
	}
	rest, err := c.prompt.Begin(line)
	if err == nil && len(rest) > 0 {
		c.rest <- rest
		return
	}
	c.sent(err)
}

// write sends what send has left.
func (c *Conn) write() {
	finish := c.wire.Send
	if c.prompt != nil {
		finish = c.prompt.Finish
	}
	for {
		select {
		case rest := <-c.rest:
			c.sent(finish(rest))
		case <-c.done:
			return
		}
	}
}

// sent lets the next message be sent, unless err says that there can be none.
func (c *Conn) sent(err error) {
	switch {
	case err == nil:
		<-c.sending
	case !c.wire.SetReceiveTimeout(closeTimeout): // otherwise read finds the end and its reason
		c.Fail(c.closeError(err))
	}
}

// read receives messages in its own goroutine, and delivers each answer to its
// call and each notification to its stream.
func (c *Conn) read() {
	for {
		line, err := c.wire.Receive()
		if err == nil {
			err = c.deliver(line)
		}
		if err != nil {
			c.Fail(c.closeError(err))
			return
		}
	}
}

// closeError returns the error for calls whose connection ended with err. It
// prefers the reason that the daemon gave.
func (c *Conn) closeError(err error) error {
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

func (c *Conn) deliver(line []byte) error {
	if method, params, ok := quickNotification(line); ok {
		return c.notify(method, params)
	}
	id, ok := quickID(line)
	if !ok {
		if len(bytes.TrimSpace(line)) == 0 {
			return nil // a heartbeat
		}
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
	if p.max > 0 {
		c.allow()
	}
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
func (c *Conn) notify(method string, params []byte) error {
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
		sub(method, params)
	}
	return nil
}

// slowID parses the id of a message in any form of JSON. It returns 0 for a
// message that answers no call: a notification, which it delivers, or an error
// without an id, which it keeps as the reason for a later close.
func (c *Conn) slowID(line []byte) (uint64, error) {
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
