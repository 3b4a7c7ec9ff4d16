package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lingerTime and lingerBytes bound what is read after the last answer: closing a
	// socket with unread bytes would reset it, and the client might lose the answer.
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// conn is one connection of a client.
type conn struct {
	p      *Proxy
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	client *meter
	in     *bufio.Reader // from client
	active atomic.Int64  // when a byte last passed in either direction, in Unix nanoseconds
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxHead) }}

// newConn takes over a connection. The caller must call end.
func (p *Proxy) newConn(ctx context.Context, raw net.Conn) *conn {
	c := &conn{p: p}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.client = c.meter(raw)
	c.in = readers.Get().(*bufio.Reader)
	c.in.Reset(c.client)
	go c.watch()
	return c
}

func (c *conn) end() {
	c.cancel()
	c.client.Close()
	c.releaseReader()
}

// releaseReader returns the buffer of the head, which a tunnel does not need.
func (c *conn) releaseReader() {
	if c.in != nil {
		c.in.Reset(nil)
		readers.Put(c.in)
		c.in = nil
	}
}

// watch ends a connection that is idle or too old.
func (c *conn) watch() {
	limits := &c.p.cfg.Limits
	total := time.NewTimer(limits.Total)
	defer total.Stop()
	idle := time.NewTimer(limits.Idle)
	defer idle.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-total.C:
		case <-idle.C:
			if left := limits.Idle - time.Since(time.Unix(0, c.active.Load())); left > 0 {
				idle.Reset(left)
				continue
			}
		}
		c.cancel()
		return
	}
}

// meter notes when bytes pass, and closes its connection when the client's ends.
type meter struct {
	net.Conn
	active *atomic.Int64
	stop   func() bool
}

// meter wraps a connection of either side.
func (c *conn) meter(raw net.Conn) *meter {
	m := &meter{Conn: raw, active: &c.active}
	m.stop = context.AfterFunc(c.ctx, func() { raw.Close() })
	m.note()
	return m
}

func (m *meter) note() { m.active.Store(time.Now().UnixNano()) }

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	m.note()
	return n, err
}

func (m *meter) Write(p []byte) (int, error) {
	n, err := m.Conn.Write(p)
	m.note()
	return n, err
}

func (m *meter) Close() error {
	m.stop()
	return m.Conn.Close()
}

// CloseWrite ends what the other side reads. Connections that can't end one
// direction alone are closed.
func (m *meter) CloseWrite() error {
	if half, ok := m.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return m.Close()
}

// reset makes the close of a connection an error on the other side too, so that what
// was cut off does not look complete.
func (m *meter) reset() {
	if tcp, ok := m.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only on a closed connection
	}
}

// linger lets the client read the last answer. from is what it may still be
// sending.
func (c *conn) linger(from io.Reader) {
	if c.client.CloseWrite() != nil || c.client.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, from, lingerBytes) // the connection ends either way
}

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// copyAll copies until from ends. Each read is written before the next one.
func copyAll(to io.Writer, from io.Reader) error {
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF { //nolint:errorlint // a Reader returns io.EOF itself
			return nil
		}
		if err != nil {
			return err
		}
	}
}
