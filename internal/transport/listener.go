package transport

import (
	"container/list"
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"time"
)

// httpListener bounds the open connections and tells those that have shown a
// valid token from strangers. It waits for a stranger no longer than patience,
// and where there is no room it closes the oldest stranger to let the next
// connection in. It never closes a connection that has shown a token for
// another; if all have, the next connection waits.
type httpListener struct {
	net.Listener
	tls           *tls.Config   // nil: plain
	max           int           // the open connections
	unauthTimeout time.Duration // with strangers

	mu              sync.Mutex // guards what follows, and place and left of every connection
	changed         sync.Cond  // of mu: there may be room, or it is closed
	open            int
	unauthenticated list.List // of *httpConn, the oldest first
	closed          bool
}

func newHTTPListener(l net.Listener, cfg *tls.Config, limit int, patience time.Duration) *httpListener {
	bounded := &httpListener{Listener: l, max: limit, unauthTimeout: patience}
	bounded.changed.L = &bounded.mu
	if cfg != nil {
		bounded.tls = cfg.Clone()
		bounded.tls.NextProtos = []string{"http/1.1"}
	}
	return bounded
}

// Accept waits for room, then for a connection. What can't be let in stays in
// the kernel's queue, where the next daemon finds it.
func (l *httpListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	open := l.awaitRoom()
	l.mu.Unlock()
	if !open {
		return nil, net.ErrClosed
	}
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &httpConn{Conn: nc, raw: nc, listener: l}
	if l.tls != nil {
		c.Conn = tls.Server(nc, l.tls)
	}
	if !l.admit(c) {
		_ = nc.Close() // nothing was said on it
		return nil, net.ErrClosed
	}
	return c, nil
}

// awaitRoom waits until there is room, or a stranger to make some. It reports
// whether the listener is still open. The caller must hold mu.
func (l *httpListener) awaitRoom() bool {
	for l.open >= l.max && l.unauthenticated.Len() == 0 && !l.closed {
		l.changed.Wait()
	}
	return !l.closed
}

// admit makes room for a connection, for which it may have to wait again. It
// reports whether the listener is still open.
func (l *httpListener) admit(c *httpConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.awaitRoom() {
		return false
	}
	if l.open >= l.max {
		oldest := l.unauthenticated.Front().Value.(*httpConn)
		l.remove(oldest)
		// It does not wait for the peer, as the end of TLS would.
		_ = oldest.raw.Close() // its goroutine finds it closed
	}
	l.open++
	c.listElement = l.unauthenticated.PushBack(c)
	return true
}

// remove gives the place of a connection back, once. The caller must hold mu.
func (l *httpListener) remove(c *httpConn) {
	if c.removed {
		return
	}
	c.removed = true
	l.open--
	c.leaveUnauthenticated()
	l.changed.Signal()
}

// Close stops accepting.
func (l *httpListener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// httpConn is a connection of an httpListener.
type httpConn struct {
	net.Conn // TLS over raw, or raw
	raw      net.Conn
	listener *httpListener

	// Of the goroutine that reads.
	framing framing

	listElement *list.Element // among the strangers; nil: it has shown a token. Guarded by listener.mu
	removed     bool          // its place is given back. Likewise
}

// leaveStrangers takes it off the list. The caller must hold listener.mu.
func (c *httpConn) leaveUnauthenticated() {
	if c.listElement != nil {
		c.listener.unauthenticated.Remove(c.listElement)
		c.listElement = nil
	}
}

// identified notes whether the last request had a valid token.
func (c *httpConn) setAuthenticated(valid bool) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	switch {
	case valid:
		c.leaveUnauthenticated()
	case c.listElement == nil && !c.removed:
		c.listElement = c.listener.unauthenticated.PushBack(c)
		c.listener.changed.Signal()
	}
}

func (c *httpConn) isUnauthenticated() bool {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return c.listElement != nil
}

// Read reads what the client sends; see framing.
func (c *httpConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.framing.filter(b[:n])
	if record, ok := err.(tls.RecordHeaderError); ok && record.Conn != nil && speaksHTTP(record.RecordHeader) {
		_, _ = io.WriteString(record.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
	}
	return n, err
}

// speaksHTTP reports whether what came instead of a TLS record is the beginning
// of a request, as net/http does for connections of its own.
func speaksHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

// SetReadDeadline bounds the next reads: those of a stranger more.
func (c *httpConn) SetReadDeadline(t time.Time) error {
	if latest := time.Now().Add(c.listener.unauthTimeout); t.After(latest) && c.isUnauthenticated() {
		t = latest
	}
	return c.Conn.SetReadDeadline(t)
}

// CloseWrite ends what is sent, so that a client that still sends gets to read
// why it was refused.
func (c *httpConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close ends the connection and makes room for another.
func (c *httpConn) Close() error {
	defer func() {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.remove(c)
	}()
	return c.Conn.Close()
}

type connKey struct{}

// withConn returns the context of a connection's requests.
func withConn(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, nc)
}

// connOf is the connection of a request; nil: it has none.
func connOf(ctx context.Context) *httpConn {
	c, _ := ctx.Value(connKey{}).(*httpConn)
	return c
}
