// Package client speaks to a TRL daemon.
//
// A Client is one connection, over which any number of goroutines call at
// once. Errors that the daemon answers are *api.Error, to be told apart by
// their code; see api.IsCode.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// ErrNoDaemon is what Dial's error is when nobody listens at the address.
var ErrNoDaemon = errors.New("no TRL daemon is running")

// ErrClosed is what the error of a call is when its connection has ended,
// whichever side ended it. Whether the daemon got the call is then unknown.
var ErrClosed = errors.New("the connection to the daemon is closed")

// Client is a connection to a daemon. It is safe for concurrent use.
type Client struct {
	conn  io.ReadWriteCloser
	lines chan []byte   // to the goroutine that writes
	done  chan struct{} // closed when the connection has ended

	mu      sync.Mutex // guards what follows; held for moments only
	lastID  uint64
	waiting map[uint64]chan []byte // calls without an answer yet, each with room for its line
	notice  *api.Error             // the last error that answered no call in particular
	err     error                  // why the connection has ended; set before done is closed
}

// Dial connects to the daemon at addr: "unix:" and a path, or a path alone.
func Dial(ctx context.Context, addr string) (*Client, error) {
	path := strings.TrimPrefix(addr, "unix:")
	if path == addr && strings.Contains(addr, "://") {
		return nil, fmt.Errorf("address %q: only unix:PATH is supported", addr)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w at %s: %w", ErrNoDaemon, path, err)
	}
	if err != nil {
		return nil, err
	}
	return NewConn(conn), nil
}

// NewConn speaks over a connection that already exists, such as the standard
// input and output of a daemon that was started for it. Close closes conn,
// which must make a Read of it return.
func NewConn(conn io.ReadWriteCloser) *Client {
	c := &Client{
		conn: conn, lines: make(chan []byte), done: make(chan struct{}),
		waiting: map[uint64]chan []byte{},
	}
	go c.read()
	go c.write()
	return c
}

// Close ends the connection. The daemon stops waiting on behalf of the calls
// that are unanswered, which fail; commands that run go on.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	return nil
}

// Call calls a method. params is encoded as its parameters, unless it is nil;
// the result is decoded into result, unless that is nil. When ctx is done the
// call is abandoned and returns; what the daemon does of it, it does.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	id, answer, err := c.register()
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
		// The answer may have come right before the end.
		select {
		case line = <-answer:
		default:
			return c.err
		}
	}
	return decode(method, line, result)
}

func (c *Client) register() (uint64, chan []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	c.lastID++
	answer := make(chan []byte, 1)
	c.waiting[c.lastID] = answer
	return c.lastID, answer, nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// fail ends the connection, for the first reason given.
func (c *Client) fail(reason error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = reason
	close(c.done)
	c.mu.Unlock()
	_ = c.conn.Close() // nothing is lost: all that was asked has failed
}

// encode makes a request line. The id goes first, where a daemon that refuses
// the line for its length still finds it.
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
	b.Truncate(b.Len() - 1) // Encode ends with a newline of its own
	if params != nil {
		b.WriteString(`,"params":`)
		if err := enc.Encode(params); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - 1)
	}
	b.WriteString("}\n")
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
		return fmt.Errorf("%s: the daemon's answer: %w", method, err)
	}
	if answer.Error != nil {
		return answer.Error
	}
	return nil
}

// lastWords is how long, once writing has failed, the daemon's last lines are
// waited for: they say why. They are already on their way.
const lastWords = time.Second

// write is the goroutine that writes, so that a call can be abandoned while a
// daemon that is busy lets its line wait.
func (c *Client) write() {
	for {
		select {
		case line := <-c.lines:
			if _, err := c.conn.Write(line); err != nil {
				if d, ok := c.conn.(interface{ SetReadDeadline(time.Time) error }); ok && d.SetReadDeadline(time.Now().Add(lastWords)) == nil {
					return // the reader finds the end, with its reason
				}
				c.fail(c.lost(err))
				return
			}
		case <-c.done:
			return
		}
	}
}

// read is the goroutine that reads, and hands each answer to its call.
func (c *Client) read() {
	r := bufio.NewReaderSize(c.conn, 64<<10) // holds most answers whole
	for {
		line, err := r.ReadBytes('\n')
		if err == nil {
			err = c.deliver(line)
		}
		if err != nil {
			c.fail(c.lost(err))
			return
		}
	}
}

// lost is the error of calls whose connection ended with err. If the daemon
// has said why, that counts.
func (c *Client) lost(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.notice != nil {
		return fmt.Errorf("%w: %w", ErrClosed, c.notice)
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the daemon has ended it", ErrClosed)
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

func (c *Client) deliver(line []byte) error {
	id, ok := quickID(line)
	if !ok {
		var err error
		if id, err = c.slowID(line); err != nil || id == 0 {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer, ok := c.waiting[id]; ok {
		answer <- line // never blocks: it has room, and is forgotten with this
		delete(c.waiting, id)
	}
	return nil
}

// quickID finds the id where this daemon writes it, so that a large answer is
// not read twice.
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

// slowID reads the id of a line in any form of JSON. It is 0 for one that
// answers no call: a notification, which is ignored, or an error without an
// id, which is kept as the reason for what comes after it.
func (c *Client) slowID(line []byte) (uint64, error) {
	var head struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *api.Error      `json:"error"`
	}
	if err := json.Unmarshal(line, &head); err != nil || head.Version != "2.0" {
		return 0, errors.New("what is there does not speak JSON-RPC: is it a TRL daemon?")
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
