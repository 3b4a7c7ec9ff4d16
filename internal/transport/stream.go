package transport

import (
	"context"
	"errors"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/service"
)

// stream is a stream that was opened over a connection. It ends with its feed,
// with the connection, or by stream.close.
type stream struct {
	opened *service.OpenedStream
	ctx    context.Context
	cancel context.CancelFunc
	end    func()        // releases the context of the request; nil: nothing to release
	done   chan struct{} // closed when no more notifications are sent
}

// maxStreams limits the streams of one connection: one for each session that
// one agent can drive. Each costs a goroutine and, while its client does not
// read, a chunk.
const maxStreams = 1024

// open registers a stream of the request with the given context. It must be
// called before its id is sent. On success release is called, unless it is nil,
// when the stream has ended.
func (c *conn) open(ctx context.Context, o *service.OpenedStream, release func()) (*stream, *api.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) >= maxStreams {
		return nil, api.Errorf(api.CodeInvalidRequest, "the connection already has %d streams", maxStreams).
			With("max_streams", maxStreams).
			WithHint("close some with stream.close, or open another connection; a command started by exec.stream continues, see exec.list")
	}
	st := &stream{opened: o, end: release, done: make(chan struct{})}
	st.ctx, st.cancel = context.WithCancel(ctx)
	c.streams[o.StreamID] = st
	c.workers++ // the connection does not end before its streams
	return st, nil
}

// follow sends the notifications of a stream until its end.
func (c *conn) follow(st *stream) {
	err := st.opened.Feed(st.ctx, func(n notify.Notification) error { return c.notify(st, n) })
	if err != nil && st.ctx.Err() == nil {
		c.srv.log.ErrorContext(c.ctx, "stream failed", "stream", st.opened.StreamID, "error", err)
	}
	st.cancel()
	if st.end != nil {
		st.end()
	}
	close(st.done)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, st.opened.StreamID)
	c.leave()
}

var errConnEnded = errors.New("transport: connection ended")

// notify sends one notification. Unlike an answer it has no time limit: a
// client that reads nothing for an hour keeps its position, and the feed
// reports what it missed. A client that is gone is detected by other means.
func (c *conn) notify(st *stream, n notify.Notification) error {
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
	if st.ctx.Err() != nil { // closed while waiting to write
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
