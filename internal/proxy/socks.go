package proxy

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"time"
)

// SOCKS, from RFC 1928.
const (
	socks4, socks5 = 4, 5

	socksNoAuth   = 0
	socksNoMethod = 0xff
	socksConnect  = 1
	socksIPv4     = 1
	socksName     = 3
	socksIPv6     = 4

	socksSucceeded      = 0
	socksNotAllowed     = 2
	socksHostUnreached  = 4
	socksBadCommand     = 7
	socksBadAddressType = 8
)

// serveSOCKS serves a connection whose first byte, the version, is not read yet.
func (c *conn) serveSOCKS() {
	r := request{protocol: protocolSOCKS}
	if c.client.SetReadDeadline(time.Now().Add(c.p.cfg.Limits.Head)) != nil || !c.greet(r) {
		return
	}
	h, port, status, err := c.readSOCKS()
	r.host, r.port = h.String(), port
	var why *refusal
	if errors.As(err, &why) {
		c.denySOCKS(r, status, why)
		return
	}
	if err != nil || c.client.SetReadDeadline(time.Time{}) != nil {
		return // the client is gone
	}
	t, refused := c.p.check(h, port)
	if refused != nil {
		c.denySOCKS(r, socksNotAllowed, refused)
		return
	}
	raw, err := c.p.dial(c.ctx, t)
	switch {
	case errors.As(err, &why):
		c.denySOCKS(r, socksNotAllowed, why)
	case err != nil:
		c.replySOCKS(socksHostUnreached)
		c.linger(c.in)
	default:
		server := c.meter(raw)
		if !c.replySOCKS(socksSucceeded) {
			server.Close()
			return
		}
		c.tunnel(r, t, server)
	}
}

// greet agrees on no authentication. It reports whether the client has agreed.
func (c *conn) greet(r request) bool {
	var head [2]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return false
	}
	if head[0] != socks5 {
		c.p.deny(r, refuse(ReasonCommand, "SOCKS 4 is not supported; use SOCKS 5 with names (socks5h)"))
		_, _ = c.client.Write([]byte{0, 0x5b, 0, 0, 0, 0, 0, 0}) // "rejected"; the connection ends either way
		c.linger(c.in)
		return false
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(c.in, methods); err != nil {
		return false
	}
	for _, m := range methods {
		if m == socksNoAuth {
			_, err := c.client.Write([]byte{socks5, socksNoAuth})
			return err == nil
		}
	}
	c.p.deny(r, refuse(ReasonRequest, "the client insists on SOCKS authentication; there is none"))
	_, _ = c.client.Write([]byte{socks5, socksNoMethod}) // the connection ends either way
	c.linger(c.in)
	return false
}

// readSOCKS reads the request. With a *refusal it also returns the status of the
// reply.
func (c *conn) readSOCKS() (h host, port uint16, status byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return h, 0, 0, err
	}
	size := 0
	switch head[3] {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		n, err := c.in.ReadByte()
		if err != nil {
			return h, 0, 0, err
		}
		size = int(n)
	default:
		return h, 0, socksBadAddressType, refuse(ReasonRequest, "the type of the SOCKS address is unknown")
	}
	rest := make([]byte, size+2)
	if _, err := io.ReadFull(c.in, rest); err != nil {
		return h, 0, 0, err
	}
	port = binary.BigEndian.Uint16(rest[size:])
	if addr, ok := netip.AddrFromSlice(rest[:size]); ok && head[3] != socksName {
		h.addr = addr
	} else if h, err = parseHost(string(rest[:size])); err != nil {
		return host{name: string(rest[:size])}, port, socksNotAllowed, refuse(ReasonHost, err.Error())
	}
	switch {
	case head[0] != socks5 || head[2] != 0:
		return h, port, socksNotAllowed, refuse(ReasonRequest, "the SOCKS request is malformed")
	case head[1] != socksConnect:
		return h, port, socksBadCommand, refuse(ReasonCommand, "SOCKS can only connect; it can't bind or pass on UDP")
	case port == 0:
		return h, port, socksNotAllowed, refuse(ReasonHost, errBadPort.Error())
	}
	return h, port, 0, nil
}

func (c *conn) denySOCKS(r request, status byte, why *refusal) {
	c.p.deny(r, why)
	c.replySOCKS(status)
	c.linger(c.in)
}

// replySOCKS reports whether the client got the reply. Its address is always
// 0.0.0.0:0: a client has no use for ours.
func (c *conn) replySOCKS(status byte) bool {
	_, err := c.client.Write([]byte{socks5, status, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err == nil
}
