package proxy

import (
	"crypto/tls"
	"io"
	"net/http"
	"testing"
)

// BenchmarkRequest compares requests through the proxy with direct ones: with a new
// connection for each, on one connection, and for a large answer.
func BenchmarkRequest(b *testing.B) {
	s := newSite(b)
	const size = 16 << 20
	large := newLarge(b, size)
	plain, secure := s.plain.Listener.Addr().String(), s.secure.Listener.Addr().String()
	r := newRig(b, []string{secure, plain, large}, nil)
	direct := func() *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots}}
		b.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: patience}
	}
	for _, c := range []struct {
		name, url string
		once      bool // one connection for each request
		bytes     int64
	}{
		{"https new", "https://" + secure + "/hello", true, 0},
		{"https kept", "https://" + secure + "/hello", false, 0},
		{"http new", "http://" + plain + "/hello", true, 0},
		{"http kept", "http://" + plain + "/hello", false, 0},
		{"http large", "http://" + large + "/", true, size},
	} {
		for _, way := range []struct {
			name   string
			client *http.Client
		}{{"direct", direct()}, {"http", r.client(s, "http")}, {"socks", r.client(s, "socks5")}} {
			b.Run(c.name+"/"+way.name, func(b *testing.B) {
				way.client.Transport.(*http.Transport).DisableKeepAlives = c.once
				b.SetBytes(c.bytes)
				for b.Loop() {
					resp, err := way.client.Get(c.url)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
						b.Fatal(resp.Status, err)
					}
					resp.Body.Close()
				}
			})
		}
	}
}

// newLarge serves an answer of n bytes.
func newLarge(b *testing.B, n int) string {
	l := listen(b)
	body := make([]byte, n)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(body) })}
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(l) }()
	b.Cleanup(func() { server.Close(); <-done })
	return l.Addr().String()
}
