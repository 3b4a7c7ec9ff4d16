package peer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/coder/websocket"
)

// webSocket is a wire that carries one JSON object per message.
type webSocket struct {
	conn   *websocket.Conn
	ctx    context.Context // ends Receive and Send
	cancel context.CancelFunc
	buf    []byte
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
}

// DialWebSocket connects to the daemon at addr, a ws or wss URL without a path.
func DialWebSocket(ctx context.Context, addr string, opts WebOptions) (Wire, error) {
	header := http.Header{}
	if opts.Token != "" {
		header.Set("Authorization", "Bearer "+opts.Token)
	}
	c, res, err := websocket.Dial(ctx, addr+"/ws", &websocket.DialOptions{HTTPHeader: header, HTTPClient: opts.Client})
	if err != nil {
		if res != nil && res.StatusCode != http.StatusSwitchingProtocols {
			return nil, opts.Refusal(res)
		}
		return nil, NoDaemon(addr, err)
	}
	c.SetReadLimit(MaxMessage)
	w := &webSocket{conn: c}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w, nil
}

func (w *webSocket) Send(message []byte) error {
	return w.conn.Write(w.ctx, websocket.MessageText, message)
}

func (w *webSocket) Receive() ([]byte, error) {
	_, r, err := w.conn.Reader(w.ctx)
	if err != nil {
		return nil, err
	}
	w.buf, err = AppendAll(w.buf[:0], r)
	return w.buf, err
}

func (w *webSocket) Close() error {
	w.cancel()
	return w.conn.CloseNow()
}

func (w *webSocket) SetReceiveTimeout(d time.Duration) bool {
	time.AfterFunc(d, w.cancel)
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
