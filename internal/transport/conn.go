package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/stdio"
)

// link is the byte stream of one connection and the ways to end it.
type link struct {
	io.Reader
	io.Writer

	close    func() error            // ends reading and writing
	stopRead func()                  // makes current and later reads fail; writing continues
	deadline func(t time.Time) error // limits later writes; nil: not supported
	hungUp   func() bool             // whether the peer can no longer read answers; nil: unknown

	socket *socketLink // whose bytes these are; nil: they do not come over a Unix socket

	requests source  // where requests come from; nil: the lines of Reader
	handler  Handler // serves them; nil: the server's handler
}

// source yields the requests of a connection, one after the other.
type source interface {
	// next appends the next request to buf. With errTooLong, buf holds only its
	// beginning and reading can continue; any other error ends the connection.
	next(buf []byte) ([]byte, error)
}

// conn serves one connection.
//
// Its goroutines (workers) are interchangeable and pass a turn around: the
// worker that has the turn reads a request, passes the turn to an idle or a new
// worker, and only then serves the request. So the goroutine that read a
// request also serves it, on the processor where its bytes are cached, the next
// request is read meanwhile, and a busy connection has as many goroutines as
// requests.
//
// The context of the connection is the parent of its requests' contexts.
// Cancelling it is the only way to end a connection at once.
type conn struct {
	srv    *Server
	link   link
	in     source // used only by the worker that has the turn
	table  Handler
	ctx    context.Context
	cancel context.CancelFunc

	draining  atomic.Bool // stop reading; set once
	delegated atomic.Bool // every request must have an actor; set once, see delegate.go

	callers map[string]*callerConn // by name, those that requests have named; guarded by srv.callers.mu

	writing sync.Mutex // serializes lines; must not be taken while holding mu
	armed   time.Time  // guarded by writing: the write deadline need not be renewed before

	mu      sync.Mutex // guards the fields below; never held during I/O
	workers int        // total, including the feeds of streams
	idle    int        // workers waiting for the turn
	busy    int        // workers serving a request
	bytes   int        // of the requests being served
	paused  bool       // reading waits until a request is answered
	ended   bool       // reading has ended
	streams map[string]*stream

	turn       chan struct{} // passes the turn to an idle worker; closed when ended
	notReading chan struct{} // signals that no worker is reading
	done       chan struct{} // closed when the last worker is gone
}

// maxIdle is the number of workers kept for later requests: one takes the turn,
// the others save a client with a few concurrent calls the start of goroutines.
const maxIdle = 4

// maxInFlightRequests is the number of maximum-size requests that one
// connection may have in flight, so that the limit in bytes is not MaxInFlight
// times the maximum.
const maxInFlightRequests = 8

func newConn(ctx context.Context, s *Server, l link) *conn {
	c := &conn{
		srv: s, link: l, in: l.requests, table: l.handler, workers: 1,
		turn: make(chan struct{}, 1), notReading: make(chan struct{}, 1), done: make(chan struct{}),
		streams: map[string]*stream{},
	}
	if c.in == nil {
		c.in = newLineReader(l, s.cfg.MaxRequestBytes)
	}
	if c.table == nil {
		c.table = s.cfg.Handler
	}
	c.ctx, c.cancel = context.WithCancel(service.WithDelegation(service.WithStreams(ctx, c), c))
	return c
}

// hangUpPoll is how soon a hang-up is detected while the connection is not
// being read; a read detects it at once.
const hangUpPoll = 250 * time.Millisecond

// serve returns when the connection has ended and all its goroutines have
// exited.
func (c *conn) serve() {
	end := func() {
		_ = c.link.close()
		c.srv.callers.leave(c)
	}
	stop := context.AfterFunc(c.ctx, end)
	defer func() {
		stop()
		c.cancel()
		end()
	}()
	go c.work()
	var poll <-chan time.Time
	for {
		select {
		case <-c.done:
			return
		case <-c.notReading:
		case <-poll:
		}
		poll = nil
		if c.isReading() || c.link.hungUp == nil {
			continue
		}
		if c.link.hungUp() {
			c.cancel()
			continue
		}
		poll = time.After(hangUpPoll)
	}
}

func (c *conn) isReading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.paused && !c.ended
}

// drain ends the connection once all requests that were read are answered.
func (c *conn) drain() {
	c.draining.Store(true)
	c.link.stopRead()
}

// work runs one worker. It starts with the turn.
func (c *conn) work() {
	var line []byte
	for {
		var err error
		line, err = c.read(line[:0])
		tooLong := errors.Is(err, errTooLong)
		if err != nil && !tooLong {
			c.endReading(err)
			return
		}
		size := len(line)
		settled := sync.OnceFunc(func() { c.passTurn(size) })
		c.handle(arrival.With(c.ctx, settled), line, tooLong, settled)
		if !c.awaitTurn(size) {
			return
		}
		if cap(line) > maxPooledBytes {
			line = nil
		}
	}
}

// read returns the next non-blank line.
func (c *conn) read(buf []byte) ([]byte, error) {
	for {
		if c.draining.Load() {
			return buf, io.EOF
		}
		line, err := c.in.next(buf[:0])
		if err != nil || len(bytes.TrimSpace(line)) > 0 {
			return line, err
		}
	}
}

// passTurn lets another worker read while this one serves a request of size
// bytes, or pauses reading.
func (c *conn) passTurn(size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy++
	c.bytes += size
	switch {
	case c.full():
		c.paused = true
		c.signalNotReading()
	case c.idle > 0:
		c.idle--
		c.turn <- struct{}{} // never blocks: there is only one turn
	default:
		c.workers++
		go c.work()
	}
}

func (c *conn) full() bool {
	return c.busy >= c.srv.cfg.MaxInFlight || c.bytes >= maxInFlightRequests*c.srv.cfg.MaxRequestBytes
}

func (c *conn) signalNotReading() {
	select {
	case c.notReading <- struct{}{}:
	default:
	}
}

// awaitTurn ends the serving of a request and returns true when it is this
// worker's turn to read. If it returns false, the worker is no longer counted.
func (c *conn) awaitTurn(size int) bool {
	c.mu.Lock()
	c.busy--
	c.bytes -= size
	switch {
	case c.paused && !c.full():
		c.paused = false
		c.mu.Unlock()
		return true
	case c.ended || c.idle >= maxIdle:
		c.leave()
		c.mu.Unlock()
		return false
	}
	c.idle++
	c.mu.Unlock()
	if _, ok := <-c.turn; ok {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave()
	return false
}

// leave removes a worker from the count. The caller must hold c.mu.
func (c *conn) leave() {
	if c.workers--; c.workers == 0 {
		close(c.done)
	}
}

// endReading is called by the worker that finds the end of the input, and
// removes that worker. Requests in flight continue if their answers may still
// be wanted: by a client that has only closed its sending side, or during a
// drain.
func (c *conn) endReading(err error) {
	if !errors.Is(err, io.EOF) && !c.draining.Load() {
		c.cancel()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	close(c.turn)
	c.signalNotReading()
	c.leave()
}

// handle serves one line. The next line may be read once this request's
// position among those of the connection is fixed, which is before it is
// answered: the answer may take as long as the client likes.
func (c *conn) handle(ctx context.Context, line []byte, long bool, settled func()) {
	log := c.srv.log
	debug := log.Enabled(c.ctx, slog.LevelDebug)
	var start time.Time
	if debug {
		start = time.Now()
	}
	var q request
	var failure *api.Error
	if long {
		q, failure = tooLong(line, c.srv.cfg.MaxRequestBytes)
	} else {
		q, failure = parse(line)
	}
	var release func()
	if failure == nil {
		ctx, release, failure = c.identify(ctx, &q)
	}
	var result any
	if failure == nil {
		result, failure = c.call(ctx, &q)
	}
	settled()
	var st *stream
	if q.id != nil {
		if opened, ok := result.(*service.OpenedStream); ok && failure == nil {
			result = opened.Result
			st, failure = c.open(ctx, opened, release)
		}
		a := c.srv.answers.get()
		c.write(a.encode(q.id, result, failure))
		c.srv.answers.put(a)
		if st != nil {
			go c.follow(st)
		}
	}
	if st == nil && release != nil {
		release()
	}
	if debug {
		code := "ok"
		if failure != nil {
			code = string(failure.Code)
		}
		log.DebugContext(c.ctx, "request", "method", clip(q.method), "id", clip(string(q.id)), "duration", time.Since(start), "code", code)
	}
}

// call serves a request. One that it has answered itself has no id any more.
func (c *conn) call(ctx context.Context, q *request) (any, *api.Error) {
	if q.method == stdio.Method && q.id != nil && c.canAdopt() {
		failure := c.adopt(q.id)
		if failure == nil {
			q.id = nil
		}
		return nil, failure
	}
	result, err := c.table.Call(ctx, q.method, q.params)
	if err != nil {
		return nil, api.AsError(err)
	}
	return result, nil
}

// clip keeps client-supplied text from filling the log.
func clip(s string) string { return s[:min(len(s), 64)] }

// writePieceBytes is how much of an answer the client must read within the
// write timeout. All but the largest answers are one piece, and one system
// call.
const writePieceBytes = 1 << 20

// arm sets a deadline so that a stuck write ends. Setting it costs a tenth of a
// short answer, so a deadline is kept until a quarter of it has passed.
func (c *conn) arm() {
	now := time.Now()
	if c.link.deadline == nil || now.Before(c.armed) {
		return
	}
	c.armed = now.Add(c.srv.cfg.WriteTimeout / 4)
	_ = c.link.deadline(now.Add(c.srv.cfg.WriteTimeout)) // fails on a closed connection, and so will the write
}

// disarm lets writes take any time. The caller must hold writing.
func (c *conn) disarm() {
	if c.link.deadline != nil && !c.armed.IsZero() {
		c.armed = time.Time{}
		_ = c.link.deadline(time.Time{})
	}
}

// write sends one answer. If it fails, the connection is unusable: part of a
// line may have been sent.
func (c *conn) write(line []byte) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for len(line) > 0 && c.ctx.Err() == nil {
		piece := line[:min(len(line), writePieceBytes)]
		c.arm()
		if !c.put(piece) {
			return
		}
		line = line[len(piece):]
	}
}

func (c *conn) put(piece []byte) bool {
	if _, err := c.link.Write(piece); err != nil {
		c.cancel()
		return false
	}
	return true
}
