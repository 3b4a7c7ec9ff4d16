package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// socket is a raw WebSocket client.
type socket struct {
	t testing.TB
	*websocket.Conn
}

func (rig *webRig) socket(token string) *socket {
	rig.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), trltest.Patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+rig.address+"/ws", &websocket.DialOptions{ //nolint:bodyclose // it is the connection
		HTTPClient: rig.client,
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	if err != nil {
		rig.t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	rig.t.Cleanup(func() { ws.CloseNow() })
	return &socket{rig.t, ws}
}

func (s *socket) send(kind websocket.MessageType, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), trltest.Patience)
	defer cancel()
	if err := s.Write(ctx, kind, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *socket) text() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), trltest.Patience) // makes a test that hangs fail where it hangs
	defer cancel()
	kind, text, err := s.Read(ctx)
	if err == nil && kind != websocket.MessageText {
		err = errors.New("message is not text")
	}
	return string(text), err
}

func (s *socket) reply() reply {
	s.t.Helper()
	text, err := s.text()
	if err != nil {
		s.t.Fatal(err)
	}
	return decodeReply(s.t, text)
}

func TestWebSocket(t *testing.T) {
	rig := startHTTP(t, webOptions{})
	s := rig.socket("trl_runner")
	for name, tc := range map[string]struct {
		sent, id, want string
		code           api.Code
	}{
		"a result":       {sent: call("exec.run", `{"session_id":"s","command":"hi"}`), id: "1", want: `"stdout":"hi"`},
		"pretty printed": {sent: "{\n\"jsonrpc\": \"2.0\",\r\n\"id\": \"x\",\n\"method\": \"system.ping\"\n}\n", id: `"x"`, want: `"version"`},
		"an error":       {sent: call("exec.attach", `{"exec_id":"none"}`), id: "1", code: api.CodeExecNotFound},
		"not JSON":       {sent: "nonsense", id: "null", code: api.CodeParseError},
		"two objects":    {sent: "{}\n{}", id: "null", code: api.CodeParseError},
		"a raw newline":  {sent: call("exec.run", "{\"session_id\":\"s\",\"command\":\"a\nb\"}"), id: "null", code: api.CodeParseError},
		"not allowed":    {sent: call("system.ping", `{"x":1}`), id: "1", code: api.CodeInvalidParams},
	} {
		t.Run(name, func(t *testing.T) {
			s.send(websocket.MessageText, tc.sent)
			r := s.reply()
			if string(r.ID) != tc.id || !strings.Contains(string(r.Result), tc.want) || tc.code != "" && !api.IsCode(r.Error, tc.code) {
				t.Errorf("answer %s %s %v", r.ID, r.Result, r.Error)
			}
		})
	}
}

func TestWebSocketHasTheScopeOfItsToken(t *testing.T) {
	rig := startHTTP(t, webOptions{})
	s := rig.socket("trl_reader")
	s.send(websocket.MessageText, call("session.create", "{}"))
	if r := s.reply(); !api.IsCode(r.Error, api.CodeForbidden) || !strings.Contains(r.Error.Hint, "run") {
		t.Errorf("answer %s %v", r.Result, r.Error)
	}
	s.send(websocket.MessageText, call("system.ping", "{}"))
	if r := s.reply(); r.Error != nil {
		t.Error(r.Error)
	}
}

func TestWebSocketStreams(t *testing.T) {
	text := strings.Repeat("output\n", 100)
	rig := startHTTP(t, webOptions{text: text})
	s := rig.socket("trl_runner")
	s.send(websocket.MessageText, call("exec.stream", `{"session_id":"s","command":"x"}`))
	if r := s.reply(); r.Error != nil || !strings.Contains(string(r.Result), "st-e") {
		t.Fatalf("answer %s %v", r.Result, r.Error)
	}
	var got strings.Builder
	for {
		note, err := s.text()
		if err != nil {
			t.Fatal(err)
		}
		var n struct {
			Method string    `json:"method"`
			Params api.Chunk `json:"params"`
		}
		if err := json.Unmarshal([]byte(note), &n); err != nil || n.Method != api.NotifyExecChunk {
			t.Fatalf("%s: %v", note, err)
		}
		if n.Params.Type == api.ChunkExit {
			break
		}
		got.WriteString(n.Params.Data)
	}
	if got.String() != text {
		t.Errorf("got %d bytes of %d", got.Len(), len(text))
	}
}

// A long answer is sent in pieces, but is still one message.
func TestWebSocketLongAnswer(t *testing.T) {
	long := strings.Repeat("x", 3*writePieceBytes)
	rig := startHTTP(t, webOptions{run: func(context.Context, api.ExecRunParams) (*api.ExecResult, error) {
		return &api.ExecResult{Stdout: long}, nil
	}})
	s := rig.socket("trl_runner")
	for range 2 {
		s.send(websocket.MessageText, call("exec.run", `{"session_id":"s","command":"x"}`))
		var result api.ExecResult
		if err := json.Unmarshal(s.reply().Result, &result); err != nil || result.Stdout != long {
			t.Errorf("%d bytes, %v", len(result.Stdout), err)
		}
	}
}

func TestWebSocketRequestsAreConcurrent(t *testing.T) {
	g := newGate()
	rig := startHTTP(t, webOptions{run: g.run})
	s := rig.socket("trl_runner")
	const n = 50
	for i := range n {
		s.send(websocket.MessageText, strings.TrimSpace(runLine(i, "x")))
	}
	for range n {
		<-g.begun
	}
	close(g.open)
	seen := map[string]bool{}
	for range n {
		seen[string(s.reply().ID)] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d were answered", len(seen), n)
	}
}

func TestWebSocketTooLong(t *testing.T) {
	const limit = 2 << 10
	rig := startHTTP(t, webOptions{config: Config{MaxRequestBytes: limit}})
	s := rig.socket("trl_runner")
	s.send(websocket.MessageText, call("exec.run", `{"session_id":"s","command":"`+strings.Repeat("x", 100*limit)+`"}`))
	if r := s.reply(); string(r.ID) != "1" || !api.IsCode(r.Error, api.CodeInvalidRequest) {
		t.Errorf("answer %s %v", r.ID, r.Error)
	}
	s.send(websocket.MessageText, call("system.ping", "{}"))
	if r := s.reply(); r.Error != nil {
		t.Errorf("afterwards: %v", r.Error)
	}
}

func TestWebSocketTakesTextOnly(t *testing.T) {
	rig := startHTTP(t, webOptions{})
	s := rig.socket("trl_runner")
	s.send(websocket.MessageBinary, call("system.ping", "{}"))
	if text, err := s.text(); websocket.CloseStatus(err) != websocket.StatusUnsupportedData {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestWebSocketHangUpCancels(t *testing.T) {
	for name, leave := range map[string]func(*socket){
		"closed": func(s *socket) { s.Close(websocket.StatusNormalClosure, "") },
		"cut":    func(s *socket) { s.CloseNow() },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			rig := startHTTP(t, webOptions{run: g.run})
			s := rig.socket("trl_runner")
			s.send(websocket.MessageText, call("exec.run", `{"session_id":"s","command":"mine"}`))
			<-g.begun
			leave(s)
			if got := <-g.cancelled; got != "mine" {
				t.Errorf("cancelled %q", got)
			}
		})
	}
}

func TestRevokedTokenEndsItsWebSocket(t *testing.T) {
	g := newGate()
	rig := startHTTP(t, webOptions{run: g.run})
	s := rig.socket("trl_runner")
	s.send(websocket.MessageText, call("exec.attach", `{"exec_id":"e-quiet"}`))
	if r := s.reply(); r.Error != nil {
		t.Fatal(r.Error)
	}
	s.send(websocket.MessageText, call("exec.run", `{"session_id":"s","command":"mine"}`))
	<-g.begun
	writeTokens(t, rig.tokens, "trl_runner")
	if text, err := s.text(); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("got %q, %v", text, err)
	}
	// Including the requests in flight.
	if got := <-g.cancelled; got != "mine" {
		t.Errorf("cancelled %q", got)
	}
	rig.server.srv.running.Wait()
}

func TestWebSocketRequestsCount(t *testing.T) {
	g := newGate()
	// The connection counts as one request, and so does each request in it.
	rig := startHTTP(t, webOptions{limits: access.Limits{Concurrent: 2}, run: g.run})
	s := rig.socket("trl_runner")
	s.send(websocket.MessageText, call("exec.run", `{"session_id":"s","command":"x"}`))
	<-g.begun
	s.send(websocket.MessageText, `{"jsonrpc":"2.0","id":2,"method":"system.ping"}`)
	if r := s.reply(); string(r.ID) != "2" || !api.IsCode(r.Error, api.CodeRuntimeUnavailable) || r.Error.Details["retry_after_ms"] == nil {
		t.Errorf("answer %s %v", r.ID, r.Error)
	}
	close(g.open)
	if r := s.reply(); string(r.ID) != "1" || r.Error != nil {
		t.Errorf("answer %s %v", r.ID, r.Error)
	}
}

// A shutdown lets pending requests be answered, and sends a close reason.
func TestWebSocketDrains(t *testing.T) {
	g := newGate()
	rig := startHTTP(t, webOptions{run: g.run})
	s := rig.socket("trl_runner")
	s.send(websocket.MessageText, call("exec.run", `{"session_id":"s","command":"x"}`))
	<-g.begun
	done := make(chan error, 1)
	go func() { done <- rig.server.srv.Shutdown(context.Background()) }()
	trltest.Eventually(t, "the server is closing", rig.server.srv.isClosing)
	close(g.open)
	if r := s.reply(); string(r.ID) != "1" || r.Error != nil {
		t.Errorf("answer %s %v", r.ID, r.Error)
	}
	if text, err := s.text(); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("got %q, %v", text, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A live peer answers pings, even while it sends nothing.
func TestPingFindsOutWhoIsThere(t *testing.T) {
	links := make(chan *wsLink, 2)
	rig := startHTTP(t, webOptions{prepare: func(h *HTTPServer) { h.onLink = func(l *wsLink) { links <- l } }})
	s := rig.socket("trl_runner")
	here := <-links
	awaitReading(t, here)
	read := make(chan error, 1)
	go func() { // a client answers pings while it reads
		_, err := s.text()
		read <- err
	}()
	if !here.alive(t.Context()) {
		t.Error("a live peer was taken for gone")
	}
	s.CloseNow()
	<-read

	rig.socket("trl_runner") // never reads
	silent := <-links
	awaitReading(t, silent)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if silent.alive(ctx) {
		t.Error("an unresponsive peer was taken for alive")
	}
}

// The write deadline of an answer must not apply to a later ping.
func TestPingAfterAnAnswer(t *testing.T) {
	links := make(chan *wsLink, 1)
	const limit = 300 * time.Millisecond
	rig := startHTTP(t, webOptions{
		config:  Config{WriteTimeout: limit},
		prepare: func(h *HTTPServer) { h.onLink = func(l *wsLink) { links <- l } },
	})
	s := rig.socket("trl_runner")
	s.send(websocket.MessageText, call("system.ping", "{}"))
	s.reply()
	here := <-links
	awaitReading(t, here)
	time.Sleep(2 * limit) // absence: the deadline of the answer no longer applies
	read := make(chan error, 1)
	go func() {
		_, err := s.text()
		read <- err
	}()
	if !here.alive(t.Context()) {
		t.Error("a quiet peer was taken for gone")
	}
	s.CloseNow()
	<-read
}

func awaitReading(t *testing.T, l *wsLink) {
	t.Helper()
	trltest.Eventually(t, "the link is read", l.messages.reading.Load)
}

// FuzzWebSocket sends an arbitrary message. It is answered by at most one JSON
// object, and the connection still works or is closed with a reason.
func FuzzWebSocket(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", "[]", call("system.ping", "{}"), call("exec.run", "[]"), `{"jsonrpc":"2.0","method":"system.ping"}`,
		"\n\n", "{\"id\":\"\xff\"}", `{"id":{}}`, strings.Repeat("[", 1000), call("stream.close", `{"stream_id":"st-e"}`),
	} {
		f.Add([]byte(seed), false)
	}
	f.Add([]byte("{}"), true)
	rig := startHTTP(f, webOptions{config: Config{MaxRequestBytes: 1 << 10}})
	f.Fuzz(func(t *testing.T, sent []byte, binary bool) {
		mine := *rig
		mine.t = t
		s := mine.socket("trl_reader")
		kind := websocket.MessageText
		if binary {
			kind = websocket.MessageBinary
		}
		s.send(kind, string(sent))
		const marker = "the one that came after"
		ctx, cancel := context.WithTimeout(t.Context(), trltest.Patience)
		defer cancel()
		_ = s.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%q,"method":"system.ping"}`, marker))
		for {
			text, err := s.text()
			if err != nil {
				if binary && websocket.CloseStatus(err) == websocket.StatusUnsupportedData {
					return
				}
				t.Fatalf("%q: %v", sent, err)
			}
			if !json.Valid([]byte(text)) {
				t.Fatalf("%q is answered with %q", sent, text)
			}
			if strings.Contains(text, marker) {
				return
			}
		}
	})
}
