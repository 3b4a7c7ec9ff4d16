package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// feed delivers the notifications of one stream for as long as one connection
// lasts.
type feed[T any] struct {
	notifications chan *T
	closed        chan struct{}   // by close: no reader is left
	ended         <-chan struct{} // closed when the connection has ended
	reason        func() error
	stop          func() // releases the feed's resources
}

// feedBuffer is how many notifications are buffered for a reader: enough that
// it does not wait for the next one to be read. A slow reader makes the daemon
// wait.
const feedBuffer = 4

func newFeed[T any]() *feed[T] {
	return &feed[T]{notifications: make(chan *T, feedBuffer), closed: make(chan struct{})}
}

// put passes a notification to the reader, and reports whether it could.
func (f *feed[T]) put(n *T) bool {
	select {
	case f.notifications <- n:
		return true
	case <-f.closed:
	case <-f.ended:
	}
	return false
}

// next returns the next notification. It returns everything received before the
// end of the connection before it returns the error.
func (f *feed[T]) next(ctx context.Context) (*T, error) {
	select {
	case n := <-f.notifications:
		return n, nil
	default:
	}
	select {
	case n := <-f.notifications:
		return n, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-f.ended:
		select {
		case n := <-f.notifications:
			return n, nil
		default:
			return nil, f.reason()
		}
	}
}

// close must be called exactly once.
func (f *feed[T]) close() {
	close(f.closed)
	f.stop()
}

// streamCloseTimeout bounds the request that closes a stream. The daemon stops
// sending anyway when the connection ends.
const streamCloseTimeout = time.Second

// follow calls a method that opens a stream.
func follow[T any](ctx context.Context, l *lineTransport, method string, params, result any, parse func([]byte) (*T, error)) (*feed[T], error) {
	c, own, err := l.streamConn(ctx)
	if err != nil {
		return nil, err
	}
	f := newFeed[T]()
	f.ended, f.reason = c.Done(), c.Err
	torn := false // a notification was dropped, so later ones would not be contiguous
	var raw json.RawMessage
	line, err := c.Call(ctx, peer.Request{Method: method, Params: params}, func(_ string, params []byte) {
		if torn {
			return
		}
		n, err := parse(params)
		if err != nil {
			c.Fail(fmt.Errorf("%w: %s: malformed notification: %w", ErrClosed, method, err))
		}
		torn = err != nil || !f.put(n)
	})
	if err == nil {
		err = peer.Decode(method, line, &raw)
	}
	var opened struct {
		StreamID string `json:"stream_id"`
	}
	if err == nil {
		err = errors.Join(json.Unmarshal(raw, &opened), json.Unmarshal(raw, result))
	}
	if err != nil {
		if own {
			c.Close()
		}
		return nil, err
	}
	f.stop = c.Close
	if !own {
		f.stop = func() {
			c.Unsubscribe(opened.StreamID)
			ctx, cancel := context.WithTimeout(context.Background(), streamCloseTimeout)
			defer cancel()
			_ = callOver(ctx, c, api.MethodStreamClose, api.StreamCloseParams{StreamID: opened.StreamID}, nil) // the stream may have ended
		}
	}
	return f, nil
}

func parseChunk(b []byte) (*api.Chunk, error) {
	var c api.Chunk
	return &c, c.ParseJSON(b)
}

func parseEvent(b []byte) (*api.SessionEvent, error) {
	var e api.SessionEvent
	return &e, json.Unmarshal(b, &e)
}

// Stream follows the output of one command. After a lost connection it resumes
// at its offset, so that each byte is received exactly once. It is not safe for
// concurrent use.
//
// A slow reader delays no other client. If the daemon's quota overtakes it, a
// chunk of type gap says how many bytes are missing.
type Stream struct {
	client *Client
	ctx    context.Context
	cancel context.CancelFunc
	execID string
	next   int64
	feed   *feed[api.Chunk] // nil: not connected
	result *api.ExecResult
	err    error // nil until the stream has ended; io.EOF after the exit chunk

	failingSince time.Time // zero: the last attempt received something
	pause        time.Duration
}

// Stream runs a command and follows it. ctx bounds the stream, not the command:
// use Cancel to stop that.
func (c *Client) Stream(ctx context.Context, p api.ExecStreamParams) (*Stream, error) {
	if p.Key == "" {
		p.Key = newKey()
	}
	s := c.newStream(ctx)
	var effect effect
	open := func() (err error) {
		s.execID, s.feed, err = c.transport.stream(s.ctx, p)
		return effect.note(err)
	}
	err := open()
	if err != nil && c.transport.canRedial() {
		err = c.retry(s.ctx, err, open, lost)
	}
	if err != nil {
		s.cancel()
		return nil, effect.correct(err)
	}
	return s, nil
}

// Attach follows a command that was started earlier, beginning at an offset.
func (c *Client) Attach(ctx context.Context, p api.ExecAttachParams) (*Stream, error) {
	s := c.newStream(ctx)
	s.execID, s.next = p.ExecID, p.From
	if err := s.attach(); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

func (c *Client) newStream(ctx context.Context) *Stream {
	s := &Stream{client: c, pause: firstPause}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

func (s *Stream) attach() (err error) {
	s.feed, err = s.client.transport.attach(s.ctx, s.execID, s.next)
	return err
}

// ExecID returns the id of the command.
func (s *Stream) ExecID() string { return s.execID }

// Next returns the offset after the last byte received. A later Attach can
// continue from there.
func (s *Stream) Next() int64 { return s.next }

// Result returns how the command ended, without its output. It is nil until the
// exit chunk has been received.
func (s *Stream) Result() *api.ExecResult { return s.result }

// Close ends the stream. The command continues.
func (s *Stream) Close() error {
	s.cancel()
	s.drop()
	return nil
}

func (s *Stream) drop() {
	if s.feed != nil {
		s.feed.close()
		s.feed = nil
	}
}

// Receive returns the next chunk. After the exit chunk it returns io.EOF. If the
// place of the command has forgotten it, that error ends the stream.
func (s *Stream) Receive() (*api.Chunk, error) {
	for {
		if s.err != nil {
			return nil, s.err
		}
		err := error(nil)
		if s.feed == nil {
			err = s.attach()
		}
		if err == nil {
			var c *api.Chunk
			c, err = s.feed.next(s.ctx)
			if err == nil && c.Type == api.ChunkError {
				s.err = c.Err()
				s.drop()
				continue
			}
			if err == nil && c.Offset == s.next {
				s.received(c)
				return c, nil
			}
		}
		if err == nil {
			err = fmt.Errorf("%w: missing chunk", ErrClosed)
		}
		s.drop()
		if !s.mayResume(err) {
			return nil, err
		}
	}
}

// received records that a chunk was received.
func (s *Stream) received(c *api.Chunk) {
	s.next, s.failingSince, s.pause = c.Next, time.Time{}, firstPause
	if c.Type == api.ChunkExit {
		s.result = c.Result
		if s.result == nil {
			s.result = &api.ExecResult{ExecID: s.execID}
		}
		s.err = io.EOF
		s.drop()
	}
}

// mayResume reports whether to attach again after an error: at once if
// something was received since the last attempt, otherwise after a pause, until
// Patience has run out.
func (s *Stream) mayResume(err error) bool {
	if !lost(err) || !s.client.transport.canRedial() {
		return false
	}
	if s.failingSince.IsZero() {
		s.failingSince = time.Now()
		return s.ctx.Err() == nil && s.client.opts.Patience > 0
	}
	if time.Since(s.failingSince) > s.client.opts.Patience {
		return false
	}
	pause := s.pause
	s.pause = min(2*pause, maxPause)
	return sleep(s.ctx, jitter(pause))
}

// Chunks iterates over the remaining chunks, up to and including the exit
// chunk. An error ends the iteration.
func (s *Stream) Chunks() iter.Seq2[*api.Chunk, error] {
	return func(yield func(*api.Chunk, error) bool) {
		for {
			c, err := s.Receive()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// Events receives the events of sessions. Events that occur while the
// connection is lost are not delivered: Events ends then, and the caller should
// watch again, with a snapshot.
type Events struct {
	ctx    context.Context
	cancel context.CancelFunc
	feed   *feed[api.SessionEvent]
}

// Watch follows the events of one session, or of all, from now on. A caller that
// needs the current sessions too asks for a snapshot: then no event is missed
// between.
func (c *Client) Watch(ctx context.Context, p api.SessionWatchParams) (*Events, error) {
	ctx, cancel := context.WithCancel(ctx)
	f, err := c.transport.watch(ctx, p)
	if err != nil {
		cancel()
		return nil, err
	}
	return &Events{ctx: ctx, cancel: cancel, feed: f}, nil
}

// Receive returns the next event.
func (e *Events) Receive() (*api.SessionEvent, error) { return e.feed.next(e.ctx) }

// All iterates over the events. An error ends the iteration.
func (e *Events) All() iter.Seq2[*api.SessionEvent, error] {
	return func(yield func(*api.SessionEvent, error) bool) {
		for {
			n, err := e.Receive()
			if !yield(n, err) || err != nil {
				return
			}
		}
	}
}

// Close stops watching.
func (e *Events) Close() error {
	e.cancel()
	e.feed.close()
	return nil
}
