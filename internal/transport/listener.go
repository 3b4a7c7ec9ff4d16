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

// httpListener limits the open connections, and tells connections that have
// sent a valid token from unauthenticated ones. It waits for an unauthenticated
// client no longer than unauthTimeout, and when it is full it closes the oldest
// unauthenticated connection to accept the next one. It never closes an
// authenticated connection for another; if all are authenticated, the next
// connection waits.
type httpListener struct {
	net.Listener
	tls           *tls.Config   // nil: plain TCP
	max           int           // limit of open connections
	unauthTimeout time.Duration // limit for unauthenticated clients

	mu              sync.Mutex // guards the fields below, and listElement and removed of every connection
	changed         sync.Cond  // on mu: there may be room, or the listener is closed
	open            int
	unauthenticated list.List // *httpConn, oldest first
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

// Accept waits for room, then for a connection. Connections that cannot be
// accepted stay in the kernel's queue, where the next daemon finds them.
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
		_ = nc.Close() // nothing was exchanged on it
		return nil, net.ErrClosed
	}
	return c, nil
}

// awaitRoom waits until there is room, or an unauthenticated connection to
// close. It reports whether the listener is still open. The caller must hold
// mu.
func (l *httpListener) awaitRoom() bool {
	for l.open >= l.max && l.unauthenticated.Len() == 0 && !l.closed {
		l.changed.Wait()
	}
	return !l.closed
}

// admit makes room for a connection, waiting again if necessary. It reports
// whether the listener is still open.
func (l *httpListener) admit(c *httpConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.awaitRoom() {
		return false
	}
	if l.open >= l.max {
		oldest := l.unauthenticated.Front().Value.(*httpConn)
		l.remove(oldest)
		// Closing raw does not wait for the peer, as closing TLS would.
		_ = oldest.raw.Close() // its goroutine notices
	}
	l.open++
	c.listElement = l.unauthenticated.PushBack(c)
	return true
}

// remove frees the slot of a connection, once. The caller must hold mu.
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

	// Used only by the goroutine that reads.
	framing framing

	listElement *list.Element // in unauthenticated; nil: it has sent a valid token. Guarded by listener.mu
	removed     bool          // its slot has been freed. Guarded by listener.mu
}

// leaveUnauthenticated removes c from the list of unauthenticated connections.
// The caller must hold listener.mu.
func (c *httpConn) leaveUnauthenticated() {
	if c.listElement != nil {
		c.listener.unauthenticated.Remove(c.listElement)
		c.listElement = nil
	}
}

// setAuthenticated records whether the last request had a valid token.
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

// speaksHTTP reports whether the bytes received instead of a TLS record are the
// beginning of an HTTP request, as net/http does for its own connections.
func speaksHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

// SetReadDeadline limits the following reads, further so for an unauthenticated
// client.
func (c *httpConn) SetReadDeadline(t time.Time) error {
	if latest := time.Now().Add(c.listener.unauthTimeout); t.After(latest) && c.isUnauthenticated() {
		t = latest
	}
	return c.Conn.SetReadDeadline(t)
}

// CloseWrite ends the sending side, so that a client that is still sending can
// read why it was refused.
func (c *httpConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close ends the connection and frees its slot.
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

// connOf returns the connection of a request, or nil.
func connOf(ctx context.Context) *httpConn {
	c, _ := ctx.Value(connKey{}).(*httpConn)
	return c
}
