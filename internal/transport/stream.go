package transport

import (
	"context"
	"errors"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/service"
)

// stream is one that was opened over a connection. It ends with its feed, with
// the connection, or by stream.close.
type stream struct {
	opened *service.OpenedStream
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when nothing more of it is sent
}

// maxStreams bounds the streams of one connection, each a goroutine and, while
// its client does not read, a chunk: as many as sessions one agent can drive.
const maxStreams = 1024

// open registers a stream, before its id is answered.
func (c *conn) open(o *service.OpenedStream) (*stream, *api.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) >= maxStreams {
		return nil, api.Errorf(api.CodeInvalidRequest, "the connection has %d streams already", maxStreams).
			With("max_streams", maxStreams).
			WithHint("end some with stream.close, or open another connection; a command that exec.stream started goes on, exec.list shows it")
	}
	st := &stream{opened: o, done: make(chan struct{})}
	st.ctx, st.cancel = context.WithCancel(c.ctx)
	c.streams[o.StreamID] = st
	c.workers++ // the connection does not end before its streams
	return st, nil
}

// follow sends what follows the answer, to the end of the stream.
func (c *conn) follow(st *stream) {
	err := st.opened.Feed(st.ctx, func(n api.Notification) error { return c.notify(st, n) })
	if err != nil && st.ctx.Err() == nil {
		c.srv.log.ErrorContext(c.ctx, "a stream failed", "stream", st.opened.StreamID, "error", err)
	}
	st.cancel()
	close(st.done)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, st.opened.StreamID)
	c.leave()
}

var errConnEnded = errors.New("transport: the connection has ended")

// notify sends one notification. Unlike an answer it has no time limit: a
// client that reads nothing for an hour keeps its place, and is told by the
// feed what it missed. One that is gone is noticed by other means.
func (c *conn) notify(st *stream, n api.Notification) error {
	buf := c.srv.buffers.get()
	defer c.srv.buffers.put(buf)
	b := (*buf)[:0]
	b = append(b, `{"jsonrpc":"2.0","method":"`...)
	b = append(append(b, n.Method()...), `","params":`...)
	b, err := n.AppendJSON(b)
	*buf = b
	if err != nil {
		return err
	}
	b = append(b, '}', '\n')
	*buf = b
	c.writing.Lock()
	defer c.writing.Unlock()
	if st.ctx.Err() != nil { // closed while it waited for its turn to write
		return st.ctx.Err()
	}
	c.disarm()
	if !c.put(b) {
		return errConnEnded
	}
	return nil
}

// CloseStream ends a stream of this connection; see service.Streams.
func (c *conn) CloseStream(ctx context.Context, id string) bool {
	c.mu.Lock()
	st := c.streams[id]
	c.mu.Unlock()
	if st == nil {
		return false
	}
	st.cancel()
	select {
	case <-st.done:
	case <-ctx.Done():
	}
	return true
}
