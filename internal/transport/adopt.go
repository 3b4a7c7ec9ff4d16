package transport

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/nowait"
	"github.com/terminal-runtime/trl/internal/stdio"
)

// socketLink is the byte stream of an accepted connection: the socket, until its
// client, a relay, has passed two pipes over it, and then these. The socket has no
// other use then than to show each side that the other one is alive.
type socketLink struct {
	sock   *net.UnixConn
	reader *nowait.Reader // of the socket
	writer *nowait.Writer // to the socket
	timing stdio.Timing
	pipes  atomic.Pointer[stdio.Files] // nil: the socket is used; set once
	beats  sync.WaitGroup              // the goroutine that sends heartbeats over the pipes
}

// endpoint is what the two forms of a socketLink have in common.
type endpoint interface {
	io.Closer
	syscall.Conn
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

func (l *socketLink) now() endpoint {
	if pipes := l.pipes.Load(); pipes != nil {
		return pipes
	}
	return l.sock
}

func newSocketLink(sock *net.UnixConn, timing stdio.Timing) *socketLink {
	return &socketLink{sock: sock, reader: nowait.NewReader(sock), writer: nowait.NewWriter(sock), timing: timing}
}

func (l *socketLink) Read(b []byte) (int, error) {
	if pipes := l.pipes.Load(); pipes != nil {
		return pipes.Read(b)
	}
	return l.reader.Read(b)
}

func (l *socketLink) Write(b []byte) (int, error) {
	if pipes := l.pipes.Load(); pipes != nil {
		return pipes.Write(b)
	}
	return l.writer.Write(b)
}

// Close closes the pipes before the socket: when the relay ends, its caller must
// find the end of the pipes, and not wait for it.
func (l *socketLink) Close() error {
	_ = l.now().Close()
	return l.sock.Close()
}

func (l *socketLink) link() link {
	return link{
		Reader:   l,
		Writer:   l,
		close:    l.Close,
		deadline: func(t time.Time) error { return l.now().SetWriteDeadline(t) },
		stopRead: func() { _ = l.now().SetReadDeadline(time.Unix(1, 0)) },
		hungUp:   func() bool { return hungUp(l.now()) },
		socket:   l,
	}
}

// canAdopt reports whether adopt may be called: once, and not over other transports.
func (c *conn) canAdopt() bool { return c.link.socket != nil && c.link.socket.pipes.Load() == nil }

// adopt serves stdio.Method: from now on requests come from the first of the two
// pipes that the client passes, and answers go to the second one. The connection and
// its rights stay the same. It answers the request itself if it succeeds.
//
// It is called by the worker that has the turn, so nothing else reads meanwhile.
func (c *conn) adopt(id json.RawMessage) *api.Error {
	l := c.link.socket
	c.write([]byte("\n"))
	pipes, err := stdio.Receive(l.sock, l.timing)
	if err != nil {
		return api.Errorf(api.CodeInvalidRequest, "%s: %w", stdio.Method, err).
			WithHint("copy between the pipes and this connection instead, as `trl connect` does")
	}
	a := c.srv.answers.get()
	c.write(a.encode(id, struct{}{}, nil))
	c.srv.answers.put(a)
	c.writing.Lock()
	l.pipes.Store(pipes)
	c.armed = time.Time{}
	c.writing.Unlock()
	if c.ctx.Err() != nil {
		_ = l.Close() // which may have been called before it knew the pipes
	}
	l.beats.Go(func() {
		err := pipes.Beat(l.awaitRelay)
		c.srv.log.DebugContext(c.ctx, "relay ended", "reason", err)
		c.cancel()
	})
	return nil
}

// awaitRelay waits for d. It returns an error as soon as the relay is gone, or if it
// sends anything.
func (l *socketLink) awaitRelay(d time.Duration) error {
	if err := l.sock.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	var b [1]byte
	switch _, err := l.sock.Read(b[:]); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err != nil:
		return err
	default:
		return errors.New("the relay sent something after its descriptors")
	}
}
