package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// webSocket is a wire that carries one JSON object per message.
type webSocket struct {
	conn   *websocket.Conn
	ctx    context.Context // ends Receive and Send
	cancel context.CancelCauseFunc
	buf    []byte

	// waiting is when Receive last got anything, or began to wait for it, in
	// nanoseconds of the Unix time; 0 while it does not wait.
	waiting atomic.Int64
}

// MaxMessage limits a message from a daemon: the largest result in base64, with
// some room.
const MaxMessage = 32 << 20

// WebOptions says how to reach a daemon over HTTP.
type WebOptions struct {
	Client *http.Client
	Token  string // "": none
	// Refusal returns the error in a response that has an unexpected status.
	Refusal func(*http.Response) error
	// Heartbeats sends a ping every HeartbeatInterval. The connection ends if nothing
	// arrives for SilenceLimit, not even the answer to a ping.
	Heartbeats bool
}

// DialWebSocket connects to the daemon at addr, a ws or wss URL without a path.
func DialWebSocket(ctx context.Context, addr string, opts WebOptions) (Wire, error) {
	header := http.Header{}
	if opts.Token != "" {
		header.Set("Authorization", "Bearer "+opts.Token)
	}
	w := &webSocket{}
	c, res, err := websocket.Dial(ctx, addr+"/ws", &websocket.DialOptions{
		HTTPHeader: header, HTTPClient: opts.Client,
		OnPongReceived: func(context.Context, []byte) { w.waiting.Store(time.Now().UnixNano()) },
	})
	if err != nil {
		if res != nil && res.StatusCode != http.StatusSwitchingProtocols {
			return nil, opts.Refusal(res)
		}
		return nil, NoDaemon(addr, err)
	}
	c.SetReadLimit(MaxMessage)
	w.conn = c
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	if opts.Heartbeats {
		go w.sendHeartbeats(HeartbeatInterval, SilenceLimit)
	}
	return w, nil
}

// sendHeartbeats sends a ping now and then, until the connection ends, and ends it
// when Receive has waited for anything for longer than limit.
func (w *webSocket) sendHeartbeats(interval, limit time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-w.ctx.Done():
			return
		}
		if since := w.waiting.Load(); since != 0 && time.Since(time.Unix(0, since)) > limit {
			w.cancel(fmt.Errorf("the connection was silent for %s", limit))
			return
		}
		ctx, cancel := context.WithTimeout(w.ctx, interval)
		_ = w.conn.Ping(ctx) // a message may be being sent; Receive finds the end of the connection
		cancel()
	}
}

func (w *webSocket) Send(message []byte) error {
	return w.conn.Write(w.ctx, websocket.MessageText, message)
}

func (w *webSocket) Receive() ([]byte, error) {
	w.waiting.Store(time.Now().UnixNano())
	defer w.waiting.Store(0)
	_, r, err := w.conn.Reader(w.ctx)
	if err == nil {
		w.buf, err = AppendAll(w.buf[:0], &arriving{r, w})
	}
	if cause := context.Cause(w.ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return nil, cause
	}
	return w.buf, err
}

// arriving reads a message, and records that it arrives.
type arriving struct {
	r io.Reader
	w *webSocket
}

func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.r.Read(b)
	a.w.waiting.Store(time.Now().UnixNano())
	return n, err
}

func (w *webSocket) Close() error {
	w.cancel(nil)
	return w.conn.CloseNow()
}

func (w *webSocket) SetReceiveTimeout(d time.Duration) bool {
	time.AfterFunc(d, func() { w.cancel(nil) })
	return true
}

// AppendAll reads r to the end and appends the bytes to b.
func AppendAll(b []byte, r io.Reader) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = slices.Grow(b, max(512, cap(b)))
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}
