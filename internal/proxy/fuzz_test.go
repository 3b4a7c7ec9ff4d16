package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// replay is a connection that has received some bytes and receives no more.
type replay struct {
	net.Conn
	in *bytes.Reader
}

func (r replay) Read(p []byte) (int, error)       { return r.in.Read(p) }
func (replay) Write(p []byte) (int, error)        { return len(p), nil }
func (replay) Close() error                       { return nil }
func (replay) SetDeadline(time.Time) error        { return nil }
func (replay) SetReadDeadline(_ time.Time) error  { return nil }
func (replay) SetWriteDeadline(_ time.Time) error { return nil }

// FuzzFirstBytes gives any first bytes to the parsers. What they accept they must
// read as net/http and crypto/tls do, however it is cut into pieces.
func FuzzFirstBytes(f *testing.F) {
	f.Add([]byte(connectTo("a.example:443")), uint8(3))
	f.Add([]byte(get("http://a.example/", "a.example")), uint8(1))
	f.Add([]byte(post("Transfer-Encoding: chunked\r\n")), uint8(200))
	f.Add(helloFor(f, "a.example"), uint8(7))
	f.Add(inRecords(helloFor(f, "a.example"), 40), uint8(255))
	f.Add(withExtension(helloFor(f, ""), sniOf("a.example", "b.example")), uint8(0))
	f.Fuzz(func(t *testing.T, input []byte, step uint8) {
		fuzzHead(t, input, int(step)+1)
		fuzzHello(t, input, int(step)+1)
	})
}

func fuzzHead(t *testing.T, input []byte, step int) {
	whole, wholeErr := headEnd(input, 0)
	end, seen := 0, 0
	var err error
	for seen < len(input) && end == 0 && err == nil {
		next := min(seen+step, len(input))
		end, err = headEnd(input[:next], seen)
		seen = next
	}
	if end != whole || !errors.Is(err, wholeErr) {
		t.Fatalf("in pieces: %d, %v; whole: %d, %v", end, err, whole, wholeErr)
	}
	if end == 0 {
		return
	}
	hd, err := parseHead(input[:end])
	if err != nil {
		return
	}
	r, to, why := asked(hd)
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(input)))
	if err != nil || why != nil {
		return
	}
	if req.Method != hd.method || checkPlain(req, hd, to, r.port) != nil && req.Method != http.MethodConnect {
		return
	}
	if read, port, err := parseAuthority(req.URL.Host, portHTTP); err != nil || read != to || port != r.port {
		t.Fatalf("%q: asked for %v %d, net/http reads %q", hd.target, to, r.port, req.URL.Host)
	}
	if req.ContentLength < 0 && len(hd.coding) != 1 || req.ContentLength > 0 && len(hd.length) != 1 {
		t.Fatalf("net/http reads a body of %d bytes that was not seen", req.ContentLength)
	}
}

func fuzzHello(t *testing.T, input []byte, step int) {
	var h hello
	complete := false
	for rest := input; len(rest) > 0 && !complete; {
		n := min(step, len(rest))
		var err error
		if complete, err = h.add(rest[:n]); err != nil {
			return
		}
		rest = rest[n:]
	}
	if !complete {
		return
	}
	name, err := h.serverName()
	if err != nil {
		return
	}
	errSeen := errors.New("seen")
	read, called := "", false
	server := tls.Server(replay{in: bytes.NewReader(input)}, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		read, called = info.ServerName, true
		return nil, errSeen
	}})
	if err := server.Handshake(); err == nil || errors.Is(err, io.ErrNoProgress) {
		t.Fatalf("crypto/tls: %v", err)
	}
	if called && !strings.EqualFold(strings.TrimSuffix(name, "."), strings.TrimSuffix(read, ".")) {
		t.Fatalf("SNI is %q, crypto/tls reads %q", name, read)
	}
}
