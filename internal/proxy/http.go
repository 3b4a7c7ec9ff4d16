package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const portHTTP = 80

// serveHTTP serves requests one after the other. Each is checked by itself.
func (c *conn) serveHTTP() {
	for {
		hd, err := c.readHead()
		r, to, bad := asked(hd)
		var why *refusal
		if errors.As(err, &why) {
			c.denyHTTP(r, why)
			return
		}
		if err != nil {
			return // the client is gone, or too slow
		}
		if bad != nil {
			c.denyHTTP(r, bad)
			return
		}
		req, err := http.ReadRequest(c.in)
		switch {
		case err != nil:
			c.denyHTTP(r, refuse(ReasonRequest, "it is not a valid HTTP request"))
			return
		case req.Method == http.MethodConnect:
			c.serveConnect(req, r, to)
			return
		case !c.servePlain(req, hd, r, to):
			return
		}
	}
}

// readHead waits for the head of a request, checks it, and leaves it unread. The
// error is a *refusal, or from the connection.
func (c *conn) readHead() (head, error) {
	if err := c.client.SetReadDeadline(time.Now().Add(c.p.cfg.Limits.Head)); err != nil {
		return head{}, err
	}
	for seen, begun := 0, false; ; {
		buf, err := c.in.Peek(max(c.in.Buffered(), seen+1))
		end, bad := headEnd(buf, seen)
		switch {
		case bad != nil:
			return partHead(buf), refuse(ReasonRequest, bad.Error())
		case end > 0:
			hd, err := parseHead(buf[:end])
			if err != nil {
				return hd, refuse(ReasonRequest, err.Error())
			}
			return hd, c.client.SetReadDeadline(time.Time{})
		case errors.Is(err, bufio.ErrBufferFull):
			return partHead(buf), refuse(ReasonRequest, fmt.Sprintf("its head is longer than %d bytes", maxHead))
		case err != nil:
			return head{}, err
		}
		if !begun && len(buf) > 0 { // the wait between two requests does not count
			begun = true
			if err := c.client.SetReadDeadline(time.Now().Add(c.p.cfg.Limits.Head)); err != nil {
				return head{}, err
			}
		}
		seen = len(buf)
	}
}

// partHead returns what is known of an invalid head, for messages.
func partHead(buf []byte) head {
	line, _, _ := strings.Cut(string(buf), "\r")
	method, rest, _ := strings.Cut(line, " ")
	at, _, _ := strings.Cut(rest, " ")
	return head{method: method, target: at}
}

// asked returns where a request wants to go, as text and parsed. The text is as good
// as it can be even if the request is refused.
func asked(hd head) (request, host, *refusal) {
	r, text, defaultPort := request{protocol: protocolConnect}, hd.target, uint16(0)
	if hd.method != http.MethodConnect {
		scheme, rest, ok := strings.Cut(hd.target, "://")
		if !ok {
			rest = ""
		}
		r.protocol, text, defaultPort = protocolHTTP, authority(rest), portHTTP
		if !strings.EqualFold(scheme, "http") {
			r.host = shown(text)
			return r, host{}, refuse(ReasonRequest, "this is a proxy: it serves CONNECT HOST:PORT and http:// URLs only")
		}
	}
	h, port, err := parseAuthority(text, defaultPort)
	if err != nil {
		r.host = shown(text)
		return r, host{}, refuse(ReasonHost, err.Error())
	}
	r.host, r.port = h.String(), port
	return r, h, nil
}

// authority returns what stands before the path of a URL. It is parsed as it was
// sent, so an @, a % or a backslash in it makes it invalid.
func authority(rest string) string {
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		return rest[:end]
	}
	return rest
}

// serveConnect serves CONNECT host:port. Its Host header is not used for anything.
func (c *conn) serveConnect(req *http.Request, r request, to host) {
	if req.ContentLength != 0 {
		c.denyHTTP(r, refuse(ReasonRequest, "CONNECT has no body"))
		return
	}
	t, server := c.open(r, to)
	if server == nil {
		return
	}
	if _, err := c.client.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		server.Close()
		return
	}
	c.tunnel(r, t, server)
}

// servePlain serves a request with a whole URL. It reports whether the connection can
// be used for another one.
func (c *conn) servePlain(req *http.Request, hd head, r request, to host) bool {
	if why := checkPlain(req, hd, to, r.port); why != nil {
		c.denyHTTP(r, why)
		return false
	}
	t, server := c.open(r, to)
	if server == nil {
		return false
	}
	req.Host = req.URL.Host
	return c.forward(req, t, server)
}

// checkPlain refuses a request that its server might take for another one.
func checkPlain(req *http.Request, hd head, h host, port uint16) *refusal {
	if len(hd.hosts) == 0 && req.ProtoAtLeast(1, 1) {
		return refuse(ReasonHostField, "it has no Host header")
	}
	for _, value := range hd.hosts {
		other, otherPort, err := parseAuthority(value, portHTTP)
		if err != nil || other != h || otherPort != port {
			return refuse(ReasonHostField, "its Host header names another host than its URL")
		}
	}
	// net/http must have read the same host.
	if read, readPort, err := parseAuthority(req.URL.Host, portHTTP); err != nil || read != h || readPort != port || req.URL.User != nil {
		return refuse(ReasonHost, errBadHost.Error())
	}
	switch {
	case port == portHTTPS:
		return refuse(ReasonNotTLS, "only TLS may be sent to port 443")
	case strings.EqualFold(req.Header.Get("Upgrade"), "websocket"):
		return refuse(ReasonUpgrade, "a WebSocket needs a tunnel: use CONNECT")
	}
	switch expects := req.Header["Expect"]; {
	case len(expects) > 1, len(expects) == 1 && !strings.EqualFold(expects[0], "100-continue"):
		return refuse(ReasonRequest, "its Expect header is unknown")
	}
	return nil
}

// open checks the destination of a request and connects to it. If it returns no
// connection, the client has its answer.
func (c *conn) open(r request, to host) (target, *meter) {
	t, why := c.p.check(to, r.port)
	if why != nil {
		c.denyHTTP(r, why)
		return t, nil
	}
	raw, err := c.p.dial(c.ctx, t)
	if errors.As(err, &why) {
		c.denyHTTP(r, why)
		return t, nil
	}
	if err != nil {
		c.fail(http.StatusBadGateway, fmt.Sprintf("TRL allows %s, but there is no connection: %s.\n", r, err))
		c.linger(c.in)
		return t, nil
	}
	return t, c.meter(raw)
}

func (c *conn) denyHTTP(r request, why *refusal) {
	c.p.deny(r, why)
	status := http.StatusForbidden
	if why.reason == ReasonRequest {
		status = http.StatusBadRequest
	}
	c.fail(status, r.explain(why))
	c.linger(c.in)
}
