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
)

// link is the bytes of one connection and the ways to end it.
type link struct {
	io.Reader
	io.Writer

	close    func() error            // ends reading and writing
	stopRead func()                  // makes reading fail, now and later; writing goes on
	deadline func(t time.Time) error // bounds the writes that follow; nil: they cannot be bounded
	hungUp   func() bool             // whether nobody can read answers any more; nil: not to be known

	requests source  // where requests come from; nil: they are the lines of Reader
	handler  Handler // who serves them; nil: the server's
}

// source is the requests of a connection, one after the other.
type source interface {
	// next appends the next request to buf. With errTooLong it is only its
	// beginning, and the next one can be read; any other error is the end.
	next(buf []byte) ([]byte, error)
}

// conn serves one connection.
//
// Its goroutines (workers) are alike and pass a turn around: the one that has
// it reads a line, gives the turn to an idle worker or a new one, and only
// then serves what it read. So a request is served by the goroutine that read
// it, on the processor where its bytes are warm, the next one is read
// meanwhile, and a busy connection has as many goroutines as requests.
//
// The context of the connection is that of its requests. To cancel it is the
// one way to end a connection at once.
type conn struct {
	srv    *Server
	link   link
	in     source // used by the worker that has the turn
	table  Handler
	ctx    context.Context
	cancel context.CancelFunc

	draining atomic.Bool // read nothing more; set once

	writing sync.Mutex // one line at a time; taken with mu not held
	armed   time.Time  // guarded by writing: until when the write deadline is good enough

	mu      sync.Mutex // guards what follows; held for moments only
	workers int        // all there are, and the feeds of streams
	idle    int        // of those, waiting for the turn
	busy    int        // of those, serving a request
	bytes   int        // of the requests being served
	paused  bool       // the turn waits for a request to be answered
	ended   bool       // nothing will be read any more
	streams map[string]*stream

	turn       chan struct{} // wakes an idle worker with the turn; closed when ended
	notReading chan struct{} // says that nobody is reading
	done       chan struct{} // closed when the last worker is gone
}

// maxIdle is how many workers stay for a next request: one takes the turn,
// the others spare a client with a few calls at once the making of goroutines.
const maxIdle = 4

// maxInFlightRequests is how many requests of the largest size one connection
// may have in flight, so that the bound in bytes is not MaxInFlight times the
// largest.
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
	c.ctx, c.cancel = context.WithCancel(service.WithStreams(ctx, c))
	return c
}

// hangUpPoll is how soon a hang-up is noticed while nobody reads the
// connection; otherwise reading notices it at once.
const hangUpPoll = 250 * time.Millisecond

// serve returns when the connection has ended and no goroutine of it is left.
func (c *conn) serve() {
	stop := context.AfterFunc(c.ctx, func() { _ = c.link.close() })
	defer func() {
		stop()
		c.cancel()
		_ = c.link.close()
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

// drain makes the connection end when the requests that were read have been
// answered.
func (c *conn) drain() {
	c.draining.Store(true)
	c.link.stopRead()
}

// work is one worker. It starts with the turn.
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

// read returns the next line that is not blank.
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

// passTurn lets another worker read while this one serves a request of so many
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
		c.turn <- struct{}{} // never blocks: there is one turn, and this is it
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

// awaitTurn ends the serving of a request, and returns true when it is this
// worker's turn to read. After false the worker is no longer counted.
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

// leave takes a worker out of the count. c.mu is held.
func (c *conn) leave() {
	if c.workers--; c.workers == 0 {
		close(c.done)
	}
}

// endReading is called by the worker whose turn found the end of the input,
// which leaves. Requests in flight go on if someone may still want their
// answers: a client that has only closed its sending side, a drain.
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

// handle serves one line. The next may be read when it has its place among those of
// the connection, and before it is answered: that may take as long as the client likes.
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
	var result any
	if failure == nil {
		var err error
		if result, err = c.table.Call(ctx, q.method, q.params); err != nil {
			failure = api.AsError(err)
		}
	}
	settled()
	if q.id != nil {
		var st *stream
		if opened, ok := result.(*service.OpenedStream); ok && failure == nil {
			result = opened.Result
			st, failure = c.open(opened)
		}
		a := c.srv.answers.get()
		c.write(a.encode(q.id, result, failure))
		c.srv.answers.put(a)
		if st != nil {
			go c.follow(st)
		}
	}
	if debug {
		code := "ok"
		if failure != nil {
			code = string(failure.Code)
		}
		log.DebugContext(c.ctx, "request", "method", clip(q.method), "id", clip(string(q.id)), "duration", time.Since(start), "code", code)
	}
}

// clip keeps what a client made up from filling the log.
func clip(s string) string { return s[:min(len(s), 64)] }

// writePieceBytes is how much of an answer must be taken within the write
// timeout. All but the largest answers are one piece, and one system call.
const writePieceBytes = 1 << 20

// arm sees to it that a write that is stuck ends. To move a deadline costs a
// tenth of a short answer, so one that is at most a quarter used up stays.
func (c *conn) arm() {
	now := time.Now()
	if c.link.deadline == nil || now.Before(c.armed) {
		return
	}
	c.armed = now.Add(c.srv.cfg.WriteTimeout / 4)
	_ = c.link.deadline(now.Add(c.srv.cfg.WriteTimeout)) // it fails on a closed connection, and so will the write
}

// disarm lets a write take its time. Under writing.
func (c *conn) disarm() {
	if c.link.deadline != nil && !c.armed.IsZero() {
		c.armed = time.Time{}
		_ = c.link.deadline(time.Time{})
	}
}

// write sends one answer. If it cannot, the connection is of no more use: part
// of a line may have been sent.
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
