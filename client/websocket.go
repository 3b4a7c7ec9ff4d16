package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/terminal-runtime/trl/api"
)

// webSocket is a wire that carries one JSON object per message.
type webSocket struct {
	conn   *websocket.Conn
	ctx    context.Context // ends receive and send
	cancel context.CancelFunc
	buf    []byte
}

// maxMessage limits a message from the daemon: the largest result in base64,
// with some room.
const maxMessage = 32 << 20

func dialWebSocket(ctx context.Context, addr string, opts Options) (wire, error) {
	header := http.Header{}
	if opts.Token != "" {
		header.Set("Authorization", "Bearer "+opts.Token)
	}
	c, res, err := websocket.Dial(ctx, addr+"/ws", &websocket.DialOptions{HTTPHeader: header, HTTPClient: httpClient(opts)})
	if err != nil {
		if res != nil && res.StatusCode != http.StatusSwitchingProtocols {
			return nil, refusal(res)
		}
		return nil, noDaemon(addr, err)
	}
	c.SetReadLimit(maxMessage)
	w := &webSocket{conn: c}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w, nil
}

func (w *webSocket) send(message []byte) error {
	return w.conn.Write(w.ctx, websocket.MessageText, message)
}

func (w *webSocket) receive() ([]byte, error) {
	_, r, err := w.conn.Reader(w.ctx)
	if err != nil {
		return nil, err
	}
	w.buf, err = appendAll(w.buf[:0], r)
	return w.buf, err
}

func (w *webSocket) close() error {
	w.cancel()
	return w.conn.CloseNow()
}

func (w *webSocket) setReceiveTimeout(d time.Duration) bool {
	time.AfterFunc(d, w.cancel)
	return true
}

// refusal returns the error in a response that has an unexpected status.
func refusal(res *http.Response) error {
	defer res.Body.Close()
	body, err := appendAll(nil, http.MaxBytesReader(nil, res.Body, maxRefusal))
	if err == nil {
		var answer struct{ Error *api.Error }
		if unmarshal(body, &answer) && answer.Error != nil {
			return answer.Error
		}
	}
	if res.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("%w: HTTP status %s", ErrClosed, res.Status)
	}
	return fmt.Errorf("unexpected HTTP status %s: is it a TRL daemon?", res.Status)
}

// maxRefusal is larger than any error.
const maxRefusal = 1 << 20
