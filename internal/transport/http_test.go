package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestRPCOverHTTP(t *testing.T) {
	rig := startHTTP(t, webOptions{})
	for name, tc := range map[string]struct {
		body, want string
		code       api.Code
	}{
		"a result":       {body: call("exec.run", `{"session_id":"s","command":"hi"}`), want: `"stdout":"hi"`},
		"pretty printed": {body: "\n{\n \"jsonrpc\": \"2.0\",\r\n \"id\": 1,\n \"method\": \"system.ping\"\n}\n", want: `"version":"test"`},
		"a stream":       {body: call("exec.stream", `{"session_id":"s","command":"hi"}`), want: `"exec_id":"e-1"`},
		"an error":       {body: call("exec.attach", `{"exec_id":"none"}`), code: api.CodeExecNotFound},
		"no such method": {body: call("nothing", `{}`), code: api.CodeMethodNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			response, body := rig.do(webRequest{method: "POST", path: "/rpc", body: tc.body, token: "trl_runner", contentType: "application/json; charset=utf-8"})
			if response.StatusCode != 200 || response.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%d %v", response.StatusCode, response.Header)
			}
			r := decodeReply(t, body)
			if string(r.ID) != "1" || !strings.Contains(string(r.Result), tc.want) || tc.code != "" && !api.IsCode(r.Error, tc.code) {
				t.Errorf("answer %s", body)
			}
		})
	}
}

func TestTooLargeOverHTTP(t *testing.T) {
	const limit = 2 << 10
	rig := startHTTP(t, webOptions{config: Config{MaxRequestBytes: limit}})
	long := call("exec.run", `{"session_id":"s","command":"`+strings.Repeat("x", limit)+`"}`)
	fits := call("exec.run", `{"session_id":"s","command":""}`)
	fits += strings.Repeat(" ", limit-len(fits))
	announced, body := rig.do(webRequest{method: "POST", path: "/rpc", body: long, token: "trl_runner"})
	if r := decodeReply(t, body); announced.StatusCode != 413 || !api.IsCode(r.Error, api.CodeInvalidRequest) || r.Error.Details["max_request_bytes"] != 2048. {
		t.Errorf("%d %s", announced.StatusCode, body)
	}
	// The same without a Content-Length.
	r, err := http.NewRequestWithContext(t.Context(), "POST", rig.url+"/rpc", io.MultiReader(strings.NewReader(long)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer trl_runner")
	r.Header.Set("Content-Type", "application/json")
	response, err := rig.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if q := decodeReply(t, string(text)); response.StatusCode != 413 || string(q.ID) != "1" {
		t.Errorf("%d %s", response.StatusCode, text)
	}
	if response, body := rig.do(webRequest{method: "POST", path: "/rpc", body: fits, token: "trl_runner"}); response.StatusCode != 200 {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}

func TestRateOfOneToken(t *testing.T) {
	rig := startHTTP(t, webOptions{limits: access.Limits{Rate: 1}})
	ping := webRequest{method: "POST", path: "/rpc", body: call("system.ping", "{}"), token: "trl_reader"}
	var refused *http.Response
	var text string
	for range 20 { // a slow machine may let several through
		if response, body := rig.do(ping); response.StatusCode == 429 {
			refused, text = response, body
			break
		}
	}
	if refused == nil {
		t.Fatal("20 concurrent requests passed at a limit of one per second")
	}
	r := decodeReply(t, text)
	ms, ok := r.Error.Details["retry_after_ms"].(float64)
	if !api.IsCode(r.Error, api.CodeRuntimeUnavailable) || !ok || ms < 1 || ms > 1000 || refused.Header.Get("Retry-After") != "1" {
		t.Errorf("%v %s", refused.Header, text)
	}
	ping.token = "trl_admin"
	if response, body := rig.do(ping); response.StatusCode != 200 {
		t.Errorf("another token: %d %s", response.StatusCode, body)
	}
	if response, _ := rig.do(webRequest{method: "GET", path: "/healthz"}); response.StatusCode != 200 {
		t.Errorf("healthz: %d", response.StatusCode)
	}
}

func TestRequestsAtOnceOfOneToken(t *testing.T) {
	g := newGate()
	rig := startHTTP(t, webOptions{limits: access.Limits{Concurrent: 1}, run: g.run})
	run := webRequest{method: "POST", path: "/rpc", body: call("exec.run", `{"session_id":"s","command":"x"}`), token: "trl_runner"}
	first := make(chan int, 1)
	go func() {
		response, _ := rig.do(run)
		first <- response.StatusCode
	}()
	<-g.begun
	if response, body := rig.do(run); response.StatusCode != 429 || response.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", response.StatusCode, body)
	}
	close(g.open)
	if status := <-first; status != 200 {
		t.Errorf("the first: %d", status)
	}
	if response, body := rig.do(run); response.StatusCode != 200 {
		t.Errorf("afterwards: %d %s", response.StatusCode, body)
	}
}

func TestDisconnectCancelsOverHTTP(t *testing.T) {
	g := newGate()
	rig := startHTTP(t, webOptions{run: g.run})
	ctx, cancel := context.WithCancel(t.Context())
	body := strings.NewReader(call("exec.run", `{"session_id":"s","command":"mine"}`))
	r, err := http.NewRequestWithContext(ctx, "POST", rig.url+"/rpc", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer trl_runner")
	r.Header.Set("Content-Type", "application/json")
	go func() {
		if response, err := rig.client.Do(r); err == nil {
			response.Body.Close()
		}
	}()
	<-g.begun
	cancel()
	if got := <-g.cancelled; got != "mine" {
		t.Errorf("cancelled %q", got)
	}
}

// raw sends bytes over a new connection and returns the answer until the
// connection is closed.
func (rig *webRig) raw(text string) string {
	rig.t.Helper()
	nc, err := net.Dial("tcp", rig.address)
	if err != nil {
		rig.t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(trltest.Patience))
	if _, err := io.WriteString(nc, text); err != nil {
		rig.t.Fatal(err)
	}
	answer, err := io.ReadAll(nc)
	if err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		rig.t.Fatalf("after %q: %v", answer, err)
	}
	return string(answer)
}

func TestSlowAndOversizedRequestsEnd(t *testing.T) {
	const soon = 200 * time.Millisecond
	// Only the timeouts under test are short: a busy machine must not hit the others.
	impatient := func(header, body time.Duration) *webRig {
		return startHTTP(t, webOptions{prepare: func(h *HTTPServer) {
			h.bodyTime = body
			h.http.ReadHeaderTimeout = header
			h.http.IdleTimeout = soon
		}})
	}
	forHeaders, forBodies := impatient(soon, trltest.Patience), impatient(trltest.Patience, soon)
	for name, tc := range map[string]struct{ sent, want string }{
		"nothing":           {"", ""},
		"half a header":     {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ", ""},
		"half a body":       {"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer trl_admin\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", "HTTP/1.1 408 "},
		"a body, no token":  {"POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", "HTTP/1.1 401 "},
		"a body, no host":   {"POST /rpc HTTP/1.1\r\nHost: evil\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", "HTTP/1.1 421 "},
		"a long header":     {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 2*maxHeaderBytes) + "\r\n\r\n", "HTTP/1.1 431 "},
		"no Host":           {"GET /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		"two Hosts":         {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", "HTTP/1.1 400 "},
		"HTTP/1.0, no Host": {"GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.0 421 "},
		"another in target": {"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 421 "},
		"an empty Origin":   {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: \r\nConnection: close\r\n\r\n", "HTTP/1.1 403 "},
	} {
		t.Run(name, func(t *testing.T) {
			rig := forBodies
			if tc.want == "" {
				rig = forHeaders
			}
			got := rig.raw(tc.sent)
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("got %.200q, want %q", got, tc.want)
			}
		})
	}
}

// The body timeout applies to the body only, not to the call.
func TestLongCallOutlivesTheBodyTimeout(t *testing.T) {
	g := newGate()
	rig := startHTTP(t, webOptions{run: g.run, prepare: func(h *HTTPServer) { h.bodyTime = 50 * time.Millisecond }})
	go func() {
		<-g.begun
		time.Sleep(200 * time.Millisecond) // absence: the call is not cut off
		close(g.open)
	}()
	response, body := rig.do(webRequest{method: "POST", path: "/rpc", body: call("exec.run", `{"session_id":"s","command":"x"}`), token: "trl_runner"})
	if response.StatusCode != 200 || !strings.Contains(body, `"stdout":"x"`) {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}

func TestOpenConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bounded := newHTTPListener(l, nil, 1, unauthenticatedTimeout)
	dialTCP := func() net.Conn {
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return nc
	}
	dialTCP()
	dialTCP()
	first, err := bounded.Accept()
	if err != nil {
		t.Fatal(err)
	}
	first.(*httpConn).setAuthenticated(true) // otherwise it would be closed to make room
	second := make(chan net.Conn, 1)
	go func() {
		nc, _ := bounded.Accept()
		second <- nc
	}()
	select {
	case <-second:
		t.Error("there was no room")
	case <-time.After(50 * time.Millisecond):
	}
	first.Close()
	first.Close() // frees one slot, not two
	nc := <-second
	if nc == nil {
		t.Fatal("the second was not accepted")
	}
	nc.(*httpConn).setAuthenticated(true)
	third := make(chan error, 1)
	go func() {
		_, err := bounded.Accept()
		third <- err
	}()
	bounded.Close()
	if err := <-third; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	nc.Close()
}

// FuzzHTTP sends arbitrary bytes to a server. The answer is always HTTP, and
// the next request is answered.
func FuzzHTTP(f *testing.F) {
	for _, seed := range []string{
		"", "\r\n\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer trl_runner\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
		"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		"GET /v1/execs/e-1/stream HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: -1\r\n\r\n",
		"POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x00\x05hello",
	} {
		f.Add([]byte(seed))
	}
	rig := startHTTP(f, webOptions{}) // requests end at the end of the input, not by a timeout
	f.Fuzz(func(t *testing.T, sent []byte) {
		nc, err := net.Dial("tcp", rig.address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(2 * trltest.Patience))
		_, _ = nc.Write(sent)
		_ = nc.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(nc)
		if len(answer) > 0 && !bytes.HasPrefix(answer, []byte("HTTP/1.")) {
			t.Errorf("%q was answered with %q", sent, answer)
		}
		// With such short timeouts the server may also cut off a client that is only slow.
		trltest.Undisturbed(t, func() error {
			response, err := rig.client.Get(rig.url + "/healthz")
			if err != nil {
				return fmt.Errorf("after %q: %w", sent, err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("after %q: %s", sent, response.Status)
			}
			return nil
		})
	})
}

// A person who opens the address in a browser reads what it is, and no JSON.
func TestBrowserGetsAnExplanation(t *testing.T) {
	rig := startHTTP(t, webOptions{})
	for name, tc := range map[string]struct{ sent, want string }{
		"a browser":        {"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html,*/*\r\n", "This is a TRL daemon"},
		"a program":        {"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n", `"code":"UNAUTHORIZED"`},
		"a browser, below": {"GET /rpc HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n", `"code":"UNAUTHORIZED"`},
	} {
		got := rig.raw(tc.sent + "Connection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 401 ") || !strings.Contains(got, tc.want) || !strings.Contains(got, "trl token create") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
