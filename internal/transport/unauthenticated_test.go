package transport

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// dialUnauthenticated opens a connection that has sent no token.
func (rig *webRig) dialUnauthenticated(sent string) net.Conn {
	rig.t.Helper()
	nc, err := net.Dial("tcp", rig.address)
	if err != nil {
		rig.t.Fatal(err)
	}
	rig.t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(nc, sent); err != nil {
		rig.t.Fatal(err)
	}
	return nc
}

const (
	askHealth = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	askWrong  = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer trl_wrong\r\n\r\n"
	askRight  = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer trl_reader\r\n\r\n"
)

// answered reads one answer and returns its status.
func answered(t testing.TB, nc net.Conn) int {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return response.StatusCode
}

// closedByServer waits for the server to close the connection.
func closedByServer(t testing.TB, nc net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays open")
	}
}

// Whatever unauthenticated clients do with their connections, a client with a
// token gets in, and authenticated connections stay.
func TestUnauthenticatedLockNoClientOut(t *testing.T) {
	const room = 4
	ca := newAuthority(t)
	certFile, keyFile := ca.issue("server", 40)
	secure, err := TLSConfig(certFile, keyFile, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		sent   string
		answer int
		tls    *tls.Config
	}{
		"idle after /healthz":    {sent: askHealth, answer: 200},
		"idle with a bad token":  {sent: askWrong, answer: 401},
		"no bytes":               {},
		"half a header":          {sent: "GET /healthz HTTP/1.1\r\nHost: loc"},
		"a body that is refused": {sent: "POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n", answer: 401},
		"no handshake":           {tls: secure},
	} {
		t.Run(name, func(t *testing.T) {
			rig := startHTTP(t, webOptions{http: HTTPConfig{TLS: tc.tls}, prepare: func(h *HTTPServer) { h.maxConns = room }})
			rig.client.Transport.(*http.Transport).TLSClientConfig.RootCAs = ca.pool()
			rig.client.Transport.(*http.Transport).DisableKeepAlives = true
			ping := webRequest{method: "POST", path: "/rpc", body: call("system.ping", "{}"), token: "trl_reader"}
			var known net.Conn
			if tc.tls == nil {
				known = rig.dialUnauthenticated(askRight)
				if status := answered(t, known); status != 200 {
					t.Fatalf("status %d", status)
				}
			}
			for range 3 * room {
				nc := rig.dialUnauthenticated(tc.sent)
				if tc.answer != 0 {
					if status := answered(t, nc); status != tc.answer {
						t.Fatalf("an unauthenticated client got status %d", status)
					}
				}
			}
			for range 2 * room {
				if response, body := rig.do(ping); response.StatusCode != 200 {
					t.Errorf("%d %s", response.StatusCode, body)
				}
			}
			if known == nil {
				return
			}
			if _, err := io.WriteString(known, askRight); err != nil || answered(t, known) != 200 {
				t.Errorf("an authenticated connection was closed: %v", err)
			}
		})
	}
}

// The oldest unauthenticated connection is closed first; a connection whose
// token is refused becomes unauthenticated.
func TestOldestUnauthenticatedIsClosed(t *testing.T) {
	rig := startHTTP(t, webOptions{prepare: func(h *HTTPServer) { h.maxConns = 3 }})
	ask := func(nc net.Conn, text string, want int) {
		t.Helper()
		if _, err := io.WriteString(nc, text); err != nil {
			t.Fatal(err)
		}
		if status := answered(t, nc); status != want {
			t.Errorf("status %d, want %d", status, want)
		}
	}
	first, second, third := rig.dialUnauthenticated(""), rig.dialUnauthenticated(""), rig.dialUnauthenticated("")
	ask(first, askRight, 200)
	ask(second, askHealth, 200)
	ask(third, askHealth, 200)
	fourth := rig.dialUnauthenticated("")
	closedByServer(t, second)
	ask(fourth, askRight, 200)
	ask(third, askHealth, 200)
	ask(first, askWrong, 401) // unauthenticated again, and newer than the third
	fifth := rig.dialUnauthenticated("")
	closedByServer(t, third)
	ask(fifth, askRight, 200)
	sixth := rig.dialUnauthenticated("")
	closedByServer(t, first)
	ask(sixth, askRight, 200)
	ask(fourth, askRight, 200)
	ask(fifth, askRight, 200)
}

// An idle connection is closed soon before it has sent a token, and kept for
// long after.
func TestUnauthenticatedAreNotWaitedFor(t *testing.T) {
	rig := startHTTP(t, webOptions{prepare: func(h *HTTPServer) { h.unauthTimeout = 200 * time.Millisecond }})
	known := rig.dialUnauthenticated(askRight)
	if status := answered(t, known); status != 200 {
		t.Errorf("status %d", status)
	}
	for _, sent := range []string{"", askHealth, askWrong, "GET /healthz HT", "POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\n"} {
		closedByServer(t, rig.dialUnauthenticated(sent))
	}
	if _, err := io.WriteString(known, askRight); err != nil || answered(t, known) != 200 {
		t.Errorf("the connection with a token: %v", err)
	}
}

// A request with an ambiguous end is refused, wherever in a connection it is,
// and nothing after it is served.
func TestDoubtfulFramingIsRefused(t *testing.T) {
	rig := startHTTP(t, webOptions{})
	const (
		post    = "POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer trl_reader\r\nContent-Type: application/json\r\n"
		ping    = `{"jsonrpc":"2.0","id":1,"method":"system.ping"}`
		chunked = "Transfer-Encoding: chunked\r\n"
		both    = "Content-Length: 4\r\n" + chunked
		behind  = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	)
	whole := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", post, len(ping), ping)
	inChunks := fmt.Sprintf("%s%s\r\n%x\r\n%s\r\n0\r\n\r\n", post, chunked, len(ping), ping)
	for name, tc := range map[string]struct {
		sent string
		want []int
	}{
		"length, then encoding":    {post + both + "\r\n0\r\n\r\n" + behind, []int{400}},
		"encoding, then length":    {post + chunked + "Content-Length: 4\r\n\r\n0\r\n\r\n" + behind, []int{400}},
		"in other letters":         {post + "content-LENGTH:4\r\nX: y\r\ntransfer-encodinG:chunked\r\n\r\n0\r\n\r\n" + behind, []int{400}},
		"lines that end in LF":     {strings.ReplaceAll(post+both+"\r\n0\r\n\r\n"+behind, "\r", ""), []int{400}},
		"HTTP/1.0":                 {strings.Replace(post, "1.1", "1.0", 1) + both + "\r\n0\r\n\r\n" + behind, []int{400}},
		"another encoding":         {post + "Content-Length: 4\r\nTransfer-Encoding: gzip\r\n\r\n0000" + behind, []int{400}},
		"a folded header":          {post + "X: y\r\n Content-Length: 4\r\n" + chunked + "\r\n0\r\n\r\n" + behind, []int{400}},
		"after another":            {askHealth + post + both + "\r\n0\r\n\r\n" + behind, []int{200, 400}},
		"after a body":             {whole + post + both + "\r\n0\r\n\r\n" + behind, []int{200, 400}},
		"after a body and a blank": {whole + "\r\n" + post + both + "\r\n0\r\n\r\n" + behind, []int{200, 400}},
		"names in a body":          {fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s%s", post, 2*len(both)+len(ping), strings.Repeat(" ", 2*len(both)), ping) + behind, []int{200, 200}},
		"one after the other":      {whole + whole + behind, []int{200, 200, 200}},
		"an encoding alone":        {inChunks, []int{200}},
		"nothing behind chunks":    {whole + inChunks + behind, []int{200, 200}},
		"nothing behind HTTP/1.0":  {"OPTIONS * HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n" + chunked + "\r\n" + behind, []int{401}},
		"two equal lengths":        {strings.Replace(whole, "\r\n\r\n", fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(ping)), 1) + behind, []int{200, 200}},
	} {
		t.Run(name, func(t *testing.T) {
			got := rig.raw(tc.sent)
			var statuses []int
			for _, answer := range strings.Split(got, "HTTP/1.")[1:] {
				var minor, status int
				if _, err := fmt.Sscanf(answer, "%d %d", &minor, &status); err != nil {
					t.Fatalf("%q: %v", answer, err)
				}
				statuses = append(statuses, status)
			}
			if diff := cmp.Diff(tc.want, statuses); diff != "" {
				t.Errorf("statuses (-want +got):\n%s%q", diff, got)
			}
		})
	}
}

// FuzzFraming compares where requests begin with what net/http finds in the
// same bytes, and checks that it does not matter how they are split.
func FuzzFraming(f *testing.F) {
	for _, seed := range []string{
		askHealth + askHealth, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + askHealth,
		"POST / HTTP/1.1\nHost: a\nContent-Length:03 \nContent-Length: 03\n\nabc\r\n" + askHealth,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nA: b\r\n c\r\nContent-Length: 1\r\n\r\nx",
	} {
		f.Add([]byte(seed), uint8(1))
	}
	f.Fuzz(func(t *testing.T, sent []byte, cut uint8) {
		whole, pieces := bytes.Clone(sent), bytes.Clone(sent)
		var one, many framing
		one.filter(whole)
		for rest := pieces; len(rest) > 0; {
			n := min(1+int(cut), len(rest))
			many.filter(rest[:n])
			rest = rest[n:]
		}
		if !bytes.Equal(whole, pieces) || one != many {
			t.Fatalf("%q: %q and %+v, in pieces %q and %+v", sent, whole, one, pieces, many)
		}
		in := bytes.NewReader(whole)
		r := bufio.NewReader(in)
		for {
			begun := len(whole) - in.Len() - r.Buffered()
			q, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			read := len(whole) - in.Len() - r.Buffered()
			var f framing
			f.filter(bytes.Clone(sent[begun:read]))
			if q.TransferEncoding != nil {
				if f.state != afterFraming {
					t.Errorf("%q: %+v", sent[begun:read], f)
				}
				return
			}
			if q.ContentLength > 0 && (f.state != inBody || f.length != q.ContentLength) || q.ContentLength == 0 && f.state != beforeRequest && f.state != afterFraming {
				t.Errorf("%q: %+v, and a body of %d", sent[begun:read], f, q.ContentLength)
			}
			if n, _ := io.Copy(io.Discard, q.Body); n != q.ContentLength {
				return
			}
		}
	})
}

func TestMetricsAreNotForTags(t *testing.T) {
	rig := startHTTP(t, webOptions{})
	response, body := rig.do(webRequest{method: "GET", path: "/metrics", token: "trl_red"})
	if response.StatusCode != 403 || strings.Contains(body, "trl_sessions") {
		t.Errorf("%d %s", response.StatusCode, body)
	}
	checkRefusal(t, response, body)
}
