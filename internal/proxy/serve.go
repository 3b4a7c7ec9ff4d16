package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

const (
	// acceptPause is the pause after an error that passes, such as too many open
	// files.
	acceptPause = 100 * time.Millisecond
	// refusalTime bounds the answer to a connection above the limit. It fits into
	// the empty buffer of a socket.
	refusalTime = 100 * time.Millisecond
)

// Serve serves the connections that l accepts, until ctx ends or the proxy is
// closed, and then ends them and returns nil. It owns l and closes it. The error is
// that of accepting.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		l.Close()
		return nil
	}
	p.serving.Add(1)
	p.mu.Unlock()
	defer p.serving.Done()
	defer l.Close()

	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.ctx, cancel)
	defer stop()
	context.AfterFunc(ctx, func() { l.Close() }) // ends Accept
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel()
	for {
		raw, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				raw.Close()
			}
			return nil
		case err != nil && passes(err):
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		case err != nil:
			return err
		}
		select {
		case p.slots <- struct{}{}:
			conns.Go(func() {
				defer func() { <-p.slots }()
				p.serveConn(ctx, raw)
			})
		default:
			p.refuseConn(raw)
		}
	}
}

// passes reports whether accepting may succeed again after an error.
func passes(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// serveConn serves one connection. Its first byte says which protocol it speaks.
func (p *Proxy) serveConn(ctx context.Context, raw net.Conn) {
	c := p.newConn(ctx, raw)
	defer c.end()
	defer func() {
		// What a session sends must not end the daemon.
		if v := recover(); v != nil {
			p.cfg.Log.Error("proxy failed", "event", "proxy_panic", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	if c.client.SetReadDeadline(time.Now().Add(p.cfg.Limits.Head)) != nil {
		return
	}
	first, err := c.in.Peek(1)
	switch {
	case err != nil: // the client is gone, or silent
	case first[0] == socks5 || first[0] == socks4:
		c.serveSOCKS()
	default:
		c.serveHTTP()
	}
}

// refuseConn answers a connection above the limit without reading from it.
func (p *Proxy) refuseConn(raw net.Conn) {
	why := refuse(ReasonLimit, "the session has too many connections at the same time")
	p.deny(request{}, why)
	c := &conn{p: p}
	c.client = &meter{Conn: raw, active: &c.active, stop: func() bool { return true }}
	if raw.SetDeadline(time.Now().Add(refusalTime)) == nil {
		c.fail(http.StatusServiceUnavailable, request{}.explain(why))
		_ = c.client.CloseWrite() // it is closed below
	}
	c.client.Close()
}
