package peer

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// A busy machine answers pings in much less than the limit.
const (
	testInterval = 500 * time.Millisecond
	testLimit    = 2 * time.Second
)

// heartbeatsTo connects to a server that reads and answers pings as long as serve
// does, with short heartbeats.
func heartbeatsTo(t *testing.T, serve func(*websocket.Conn)) *webSocket {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		serve(c)
	}))
	t.Cleanup(server.Close)
	w, err := DialWebSocket(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), WebOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	ws := w.(*webSocket)
	go ws.sendHeartbeats(testInterval, testLimit)
	return ws
}

// TestWebSocketSilence checks that a connection ends on which nothing arrives, and
// that answers to pings count.
func TestWebSocketSilence(t *testing.T) {
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		done := make(chan struct{})
		defer close(done)
		w := heartbeatsTo(t, func(*websocket.Conn) { <-done }) // it reads nothing
		begin := time.Now()
		_, err := w.Receive()
		if err == nil || !strings.Contains(err.Error(), "silent for 2s") {
			t.Errorf("error %v", err)
		}
		if took := time.Since(begin); took < testLimit {
			t.Errorf("ended after %s", took)
		}
	})
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		w := heartbeatsTo(t, func(c *websocket.Conn) {
			ctx := c.CloseRead(t.Context()) // answers pings
			time.Sleep(testLimit * 3 / 2)   // absence: the connection does not end meanwhile
			_ = c.Write(ctx, websocket.MessageText, []byte("{}"))
			<-ctx.Done()
		})
		if got, err := w.Receive(); err != nil || string(got) != "{}" {
			t.Errorf("received %q, %v", got, err)
		}
	})
	t.Run("blocked", func(t *testing.T) {
		t.Parallel()
		w := heartbeatsTo(t, func(c *websocket.Conn) {
			ctx := c.CloseRead(t.Context())
			_ = c.Write(ctx, websocket.MessageText, []byte("1"))
			_ = c.Write(ctx, websocket.MessageText, []byte("2"))
			<-ctx.Done()
		})
		if got, err := w.Receive(); err != nil || string(got) != "1" {
			t.Fatalf("received %q, %v", got, err)
		}
		time.Sleep(testLimit * 3 / 2) // absence: a reader that is busy does not count as silence
		if got, err := w.Receive(); err != nil || string(got) != "2" {
			t.Errorf("received %q, %v", got, err)
		}
	})
}
