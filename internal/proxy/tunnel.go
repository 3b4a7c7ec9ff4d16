package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"
)

const portHTTPS = 443

// accessDenied is a TLS alert, so that a client reports more than a closed
// connection.
var accessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

// tunnel passes bytes on between the client and a server until both directions have
// ended. The server gets no byte before the first bytes have been checked; the
// client gets those of the server at once, because in some protocols the server
// speaks first.
func (c *conn) tunnel(r request, t target, server *meter) {
	defer server.Close()
	ahead, _ := c.in.Peek(c.in.Buffered()) // returns what is buffered
	from := io.MultiReader(bytes.NewReader(bytes.Clone(ahead)), c.client)
	c.releaseReader()

	down := make(chan struct{})
	go func() {
		defer close(down)
		err := copyAll(c.client, server)
		switch {
		case err == nil:
			_ = c.client.CloseWrite() // a client that is gone ends the other direction
		case !errors.Is(err, net.ErrClosed):
			c.client.reset()
			c.cancel()
		}
	}()

	first, err := c.firstBytes(from, t)
	var why *refusal
	if errors.As(err, &why) {
		c.p.deny(r, why)
		server.Close()
		_ = c.client.SetWriteDeadline(time.Now().Add(lingerTime)) // a client that does not read must not hold this; fails only on a closed connection
		<-down
		if is, _ := tlsLike(first); is {
			_, _ = c.client.Write(accessDenied) // the connection ends either way
		}
		c.linger(from)
		return
	}
	if err == nil {
		_, err = server.Write(first)
	}
	if err == nil {
		err = copyAll(server, from)
	}
	if err == nil || err == io.EOF { //nolint:errorlint // a Reader returns io.EOF itself
		_ = server.CloseWrite() // a server that is gone ends the other direction
	} else {
		server.reset()
		c.cancel()
	}
	<-down
}

// firstBytes reads and checks what a client sends first. On port 443 that must be
// the first message of TLS. Elsewhere it may be anything, but if it is TLS, it is
// checked as well. The error is a *refusal, or from the connection.
func (c *conn) firstBytes(from io.Reader, t target) ([]byte, error) {
	var h hello
	buf := make([]byte, 2048) // usually the whole message
	inTime := t.port == portHTTPS
	if inTime {
		c.helloDeadline()
	}
	for {
		n, err := from.Read(buf)
		complete, bad := h.add(buf[:n])
		is, known := tlsLike(h.raw)
		switch {
		case known && !is && t.port != portHTTPS:
			return h.raw, c.client.SetReadDeadline(time.Time{}) // not TLS; it is allowed as it is
		case known && !is:
			return h.raw, refuse(ReasonNotTLS, "only TLS may be sent to port 443 through a tunnel")
		case known && bad != nil:
			return h.raw, refuse(ReasonHello, bad.Error())
		case complete:
			if err := h.check(t); err != nil {
				return h.raw, err
			}
			return h.raw, c.client.SetReadDeadline(time.Time{})
		case isTimeout(err):
			return h.raw, refuse(ReasonHello, "the first TLS message did not come in time")
		case err == io.EOF && (t.port == portHTTPS && len(h.raw) > 0 || is): //nolint:errorlint // a Reader returns io.EOF itself
			return h.raw, refuse(ReasonHello, "the connection ended within the first TLS message")
		case err == io.EOF && len(h.raw) > 0: //nolint:errorlint // as above
			return h.raw, nil // one byte that could have been TLS
		case err != nil:
			return h.raw, err
		case len(h.raw) > 0 && !inTime:
			inTime = true
			c.helloDeadline()
		}
	}
}

func (c *conn) helloDeadline() {
	_ = c.client.SetReadDeadline(time.Now().Add(c.p.cfg.Limits.Hello)) // fails only on a closed connection
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// check compares the server that TLS names with the one that the client asked for.
func (h *hello) check(t target) error {
	name, err := h.serverName()
	switch {
	case err != nil:
		return refuse(ReasonHello, err.Error())
	case name == "" && t.host.addr.IsValid():
		return nil // TLS has no form for an address
	case name == "":
		return refuse(ReasonNoSNI, "TLS does not name the server it wants (SNI)")
	}
	if named, err := parseHost(name); err != nil || named != t.host {
		return refuse(ReasonSNI, "TLS names another server (SNI) than the one that the tunnel was opened for")
	}
	return nil
}
