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
	// pingEvery is how often a silent peer is pinged, and pingTimeout how long
	// it has to answer: together about as long as proxies wait.
	pingEvery   = 30 * time.Second
	pingTimeout = 20 * time.Second
	// closeGrace limits the close handshake.
	closeGrace = time.Second
)

// websocket serves a connection like one of a socket, with messages instead of
// lines.
func (h *HTTPServer) websocket(w http.ResponseWriter, r *http.Request, actor access.Actor) {
	taken := &hijackRecorder{ResponseWriter: w}
	ws, err := websocket.Accept(taken, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // guard has checked the origin, and is stricter
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return // Accept has answered
	}
	if conn := connOf(r.Context()); conn != nil {
		conn.framing.state = afterFraming // no more HTTP requests: net/http has stopped reading
	}
	ws.SetReadLimit(-1) // messages enforces the limit, and can answer
	l := &wsLink{ws: ws, nc: taken.conn, messages: newMessages(ws, h.srv.cfg.MaxRequestBytes)}
	if h.onLink != nil {
		h.onLink(l)
	}
	// The request's own context ends when the connection is hijacked.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	var background sync.WaitGroup
	background.Go(l.messages.pump)
	background.Go(func() { h.monitorWebSocket(ctx, l, actor.TokenID, cancel) })
	err = h.srv.run(ctx, actor, l.link(rateLimited{Handler: h.srv.cfg.Handler, limits: h.limits, token: actor.TokenID}))
	if errors.Is(err, ErrServerClosed) {
		l.setCloseReason(websocket.StatusGoingAway, "the daemon is shutting down")
	}
	cancel()
	_ = l.close() // already closed, unless run did not start
	background.Wait()
}

// monitorWebSocket ends a connection, and everything in it, when its token is
// no longer valid or its peer is gone.
func (h *HTTPServer) monitorWebSocket(ctx context.Context, l *wsLink, token string, end func()) {
	next := time.Now().Add(pingEvery)
	for range every(ctx, tokenPoll) {
		if !h.keys.Valid(token) {
			l.setCloseReason(websocket.StatusPolicyViolation, "the token is no longer valid")
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

// hijackRecorder remembers the connection that the WebSocket takes over: writes
// need deadlines, and closing must not wait.
type hijackRecorder struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack takes over the connection.
func (t *hijackRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	t.conn = nc
	return nc, rw, err
}

// wsLink adapts a WebSocket to a link.
type wsLink struct {
	ws            *websocket.Conn
	nc            net.Conn
	messages      *messages
	writing       atomic.Bool
	partial       io.WriteCloser // an answer in several pieces; used only by the writer
	writeDeadline time.Time      // used only by the writer

	ending sync.Once
	mu     sync.Mutex
	code   websocket.StatusCode // 0: normal closure
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

// Write sends a line as a message, or a piece of a line as a piece of a
// message. Only the end of a line is a newline.
func (l *wsLink) Write(p []byte) (int, error) {
	l.writing.Store(true)
	defer l.writing.Store(false)
	// For this write only: pings are written too, and have their own limit.
	_ = l.nc.SetWriteDeadline(l.writeDeadline) // fails on a closed connection, and so does the write
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

// setCloseReason sets the status and the reason to send at the end. The first
// one wins.
func (l *wsLink) setCloseReason(code websocket.StatusCode, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.code == 0 {
		l.code, l.reason = code, reason
	}
}

// close sends the close reason and ends the connection, even during a stuck
// write.
func (l *wsLink) close() error {
	l.ending.Do(func() {
		l.messages.end()
		l.setCloseReason(l.messages.closeStatus())
		_ = l.nc.SetDeadline(time.Now().Add(closeGrace))
		_ = l.ws.Close(l.code, l.reason) // the peer may be gone
		_ = l.nc.Close()
	})
	return nil
}

// hungUp reports whether the peer has closed the connection.
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

// alive pings the peer. During a write, or while requests wait to be read, a
// pong could not get through: then detection is left to the kernel.
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

// messages reads requests from WebSocket messages. A separate goroutine, pump,
// reads them, because a read from a WebSocket cannot be cancelled without
// closing the connection. It reads only on request, so a paused connection
// leaves messages unread.
type messages struct {
	ws      *websocket.Conn
	max     int
	want    chan []byte // buffers to read into
	got     chan message
	ended   chan struct{} // closed by end
	once    sync.Once
	reading atomic.Bool
	count   atomic.Int64

	mu     sync.Mutex
	binary bool // the peer sent a binary message
}

type message struct {
	text []byte
	err  error
}

func newMessages(ws *websocket.Conn, limit int) *messages {
	return &messages{ws: ws, max: limit, want: make(chan []byte), got: make(chan message), ended: make(chan struct{})}
}

// end makes current and later calls of next return.
func (m *messages) end() { m.once.Do(func() { close(m.ended) }) }

// closeStatus returns the close status and the reason if the peer violated the
// protocol, and a normal closure otherwise.
func (m *messages) closeStatus() (websocket.StatusCode, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.binary {
		return websocket.StatusUnsupportedData, "requests must be text messages"
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

var errNotText = errors.New("transport: message is not text")

// read appends the next message to buf. As with lines, only the beginning of a
// message over the limit is kept. A message that is cut off with its connection
// may look complete here; that is harmless, since no prefix of a JSON object is
// a JSON object.
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
			buf = bytes.Clone(buf[:min(len(buf), idPrefixBytes)]) // frees the rest
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

// unexpectedEOF makes sure that the end of a WebSocket is not mistaken for the
// end of an input whose answers are still wanted.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
