package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/terminal-runtime/trl/internal/access"
)

const (
	// pingEvery is how often a silent peer is asked whether it is there, and
	// pingPatience how long it has to answer: together about as long as
	// proxies wait.
	pingEvery   = 30 * time.Second
	pingTimeout = 20 * time.Second
	// closeGrace is what the last words of a connection may take.
	closeGrace = time.Second
)

// websocket serves a connection as the one of a socket, with messages for
// lines.
func (h *HTTPServer) websocket(w http.ResponseWriter, r *http.Request, actor access.Actor) {
	taken := &hijackRecorder{ResponseWriter: w}
	ws, err := websocket.Accept(taken, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the guard has looked at the origin, and is stricter
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return // it has been answered
	}
	if conn := connOf(r.Context()); conn != nil {
		conn.framing.state = afterFraming // no more requests of HTTP; net/http does not read any more
	}
	ws.SetReadLimit(-1) // messages bounds them, and can say so
	l := &wsLink{ws: ws, nc: taken.conn, messages: newMessages(ws, h.srv.cfg.MaxRequestBytes)}
	if h.onLink != nil {
		h.onLink(l)
	}
	// The request's own context ends with the connection's taking.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	var beside sync.WaitGroup
	beside.Go(l.messages.pump)
	beside.Go(func() { h.monitorWebSocket(ctx, l, actor.TokenID, cancel) })
	err = h.srv.run(ctx, actor, l.link(rateLimited{Handler: h.srv.cfg.Handler, limits: h.limits, token: actor.TokenID}))
	if errors.Is(err, ErrServerClosed) {
		l.setCloseReason(websocket.StatusGoingAway, "the daemon is shutting down")
	}
	cancel()
	_ = l.close() // run has; unless there was nothing to run
	beside.Wait()
}

// attend ends a connection whose token is no longer good or whose peer is gone,
// with all that goes on in it.
func (h *HTTPServer) monitorWebSocket(ctx context.Context, l *wsLink, token string, end func()) {
	tick := time.NewTicker(tokenPoll)
	defer tick.Stop()
	next := time.Now().Add(pingEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !h.keys.Valid(token) {
			l.setCloseReason(websocket.StatusPolicyViolation, "the token is no longer good")
			end()
			return
		}
		if now := time.Now(); now.After(next) {
			next = now.Add(pingEvery)
			if !l.alive(ctx) {
				end()
				return
			}
		}
	}
}

// takenWriter remembers the connection that the WebSocket takes over: writes
// need deadlines, and ending must not wait.
type hijackRecorder struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack hands the connection over.
func (t *hijackRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	t.conn = nc
	return nc, rw, err
}

// wsLink is a WebSocket as a connection sees it.
type wsLink struct {
	ws            *websocket.Conn
	nc            net.Conn
	messages      *messages
	writing       atomic.Bool
	partial       io.WriteCloser // of an answer in several pieces; used by the one who writes
	writeDeadline time.Time      // the deadline of writes; used by the one who writes

	ending sync.Once
	mu     sync.Mutex
	code   websocket.StatusCode // 0: a normal end
	reason string
}

func (l *wsLink) link(handler Handler) link {
	return link{
		Writer:   l,
		requests: l.messages,
		handler:  handler,
		close:    l.close,
		stopRead: func() {
			l.setCloseReason(websocket.StatusGoingAway, "the daemon is shutting down")
			l.messages.end()
		},
		deadline: func(t time.Time) error { l.writeDeadline = t; return nil },
		hungUp:   l.hungUp,
	}
}

// Write sends a line, or a piece of one, as a message, or as a piece of one.
// A line has its one newline at its end.
func (l *wsLink) Write(p []byte) (int, error) {
	l.writing.Store(true)
	defer l.writing.Store(false)
	// For this write alone: pings are written too, and have a limit of their own.
	_ = l.nc.SetWriteDeadline(l.writeDeadline) // it fails on a closed connection, and so does the write
	defer func() { _ = l.nc.SetWriteDeadline(time.Time{}) }()
	text, last := bytes.CutSuffix(p, []byte("\n"))
	var err error
	switch {
	case last && l.partial == nil:
		err = l.ws.Write(context.Background(), websocket.MessageText, text)
	default:
		if l.partial == nil {
			if l.partial, err = l.ws.Writer(context.Background(), websocket.MessageText); err != nil {
				return 0, err
			}
		}
		_, err = l.partial.Write(text)
		if last && err == nil {
			err = l.partial.Close()
			l.partial = nil
		}
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// because says what the peer is to be told at the end. The first reason holds.
func (l *wsLink) setCloseReason(code websocket.StatusCode, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.code == 0 {
		l.code, l.reason = code, reason
	}
}

// close says why and ends the connection, also under a write that is stuck.
func (l *wsLink) close() error {
	l.ending.Do(func() {
		l.messages.end()
		l.setCloseReason(l.messages.closeStatus())
		_ = l.nc.SetDeadline(time.Now().Add(closeGrace))
		_ = l.ws.Close(l.code, l.reason) // who is gone is told nothing
		_ = l.nc.Close()
	})
	return nil
}

// hungUp reports whether nobody is at the other end.
func (l *wsLink) hungUp() bool {
	nc := l.nc
	for {
		switch inner := nc.(type) {
		case *httpConn:
			nc = inner.raw
		case syscall.Conn:
			return hungUp(inner)
		default:
			return false
		}
	}
}

// alive asks the peer whether it is there. While it is being written to, or
// requests wait to be read, an answer could not get through: then the kernel
// has to notice.
func (l *wsLink) alive(ctx context.Context) bool {
	if l.writing.Load() || !l.messages.reading.Load() {
		return true
	}
	before := l.messages.count.Load()
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := l.ws.Ping(ctx); err == nil {
		return true
	}
	return l.writing.Load() || !l.messages.reading.Load() || l.messages.count.Load() != before
}

// messages is the requests that come as messages. They are read by pump, a
// goroutine of its own, because a read of a WebSocket can't be given up
// without giving up the connection. It reads when it is asked to, so a
// connection that pauses leaves messages where they are.
type messages struct {
	ws      *websocket.Conn
	max     int
	want    chan []byte // buffers to read into
	got     chan message
	ended   chan struct{} // closed by end: nothing is wanted any more
	once    sync.Once
	reading atomic.Bool
	count   atomic.Int64

	mu     sync.Mutex
	binary bool // the peer sent what is no text
}

type message struct {
	text []byte
	err  error
}

func newMessages(ws *websocket.Conn, limit int) *messages {
	return &messages{ws: ws, max: limit, want: make(chan []byte), got: make(chan message), ended: make(chan struct{})}
}

// end makes next return, now and later.
func (m *messages) end() { m.once.Do(func() { close(m.ended) }) }

// fault is what the peer did wrong, for its last words.
func (m *messages) closeStatus() (websocket.StatusCode, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.binary {
		return websocket.StatusUnsupportedData, "a request is a text message"
	}
	return websocket.StatusNormalClosure, ""
}

func (m *messages) next(buf []byte) ([]byte, error) {
	select {
	case m.want <- buf:
	case <-m.ended:
		return buf, io.EOF
	}
	select {
	case got := <-m.got:
		return got.text, got.err
	case <-m.ended:
		return nil, io.EOF
	}
}

func (m *messages) pump() {
	for {
		var got message
		select {
		case buf := <-m.want:
			m.reading.Store(true)
			got.text, got.err = m.read(buf)
			m.reading.Store(false)
			m.count.Add(1)
		case <-m.ended:
			return
		}
		select {
		case m.got <- got:
		case <-m.ended:
			return
		}
	}
}

var errNotText = errors.New("transport: a message that is not text")

// read appends the next message to buf. As with lines, of one over the limit
// only the beginning is kept. A message that is cut off with its connection may
// look whole here; it does no harm, since no part of a JSON object is another.
func (m *messages) read(buf []byte) ([]byte, error) {
	kind, r, err := m.ws.Reader(context.Background())
	if err != nil {
		return buf, unexpectedEOF(err)
	}
	if kind != websocket.MessageText {
		m.mu.Lock()
		m.binary = true
		m.mu.Unlock()
		return buf, errNotText
	}
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, make([]byte, max(512, len(buf)))...)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if len(buf) > m.max {
			buf = bytes.Clone(buf[:min(len(buf), idPrefixBytes)]) // lets go of the rest
			if _, err := io.Copy(io.Discard, r); err != nil {
				return buf, unexpectedEOF(err)
			}
			return buf, errTooLong
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return buf, unexpectedEOF(err)
		}
	}
}

// gone makes sure that the end of a WebSocket is not taken for the end of an
// input whose answers are still wanted.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
