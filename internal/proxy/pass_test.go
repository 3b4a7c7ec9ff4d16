package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// site is a real server, with TLS and without.
type site struct {
	plain, secure *httptest.Server
	roots         *x509.CertPool
}

func newSite(t testing.TB) *site {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s %s %s", r.Host, r.URL.RawQuery, r.Header.Get("X-Kept"))
	})
	mux.HandleFunc("/sum", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		fmt.Fprintf(w, "%d %x %v", n, sum.Sum(nil), err)
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) { r.Header.Write(w) })
	mux.HandleFunc("/nothing", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "one\n")
		http.NewResponseController(w).Flush()
		<-r.Context().Done() // the client has read one, and leaves
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://evil.example/", http.StatusFound)
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "short")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	s := &site{plain: httptest.NewServer(mux), secure: httptest.NewTLSServer(mux)}
	t.Cleanup(func() { s.plain.Close(); s.secure.Close() })
	s.roots = x509.NewCertPool()
	s.roots.AddCert(s.secure.Certificate())
	return s
}

// client returns a client that uses the proxy.
func (r *rig) client(s *site, scheme string) *http.Client {
	transport := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: scheme, Host: r.addr}),
		TLSClientConfig: &tls.Config{RootCAs: s.roots},
	}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func fetch(c *http.Client, url string) (string, error) {
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, text), err
}

// The certificate of httptest is for example.com, names below it, and 127.0.0.1.
func TestAllowed(t *testing.T) {
	s := newSite(t)
	plain, secure := s.plain.Listener.Addr().String(), s.secure.Listener.Addr().String()
	pinned := "pinned.example.com=" + secure
	for _, c := range []struct{ name, scheme, allow, url, to, want string }{
		{"https", "http", "example.com:443", "https://example.com/hello?a=1", secure, "200 hello example.com a=1 "},
		{"https in upper case", "http", "EXAMPLE.com:443", "https://Example.COM/hello", secure, "200 hello Example.COM  "},
		{"https below a wildcard", "http", "*.example.com:443", "https://www.example.com/hello", secure, "200 hello www.example.com  "},
		{"https, pinned", "http", pinned, "https://pinned.example.com:" + portOf(secure) + "/hello", "", "200 hello pinned.example.com:" + portOf(secure) + "  "},
		{"https, by address", "http", secure, "https://" + secure + "/hello", "", "200 hello " + secure + "  "},
		{"https by SOCKS", "socks5", "example.com:443", "https://example.com/hello", secure, "200 hello example.com  "},
		{"SOCKS by address", "socks5", plain, "http://" + plain + "/hello", "", "200 hello " + plain + "  "},
		{"http", "http", "example.com:80", "http://example.com/hello?b=%2F", plain, "200 hello example.com b=%2F "},
		{"http with its port", "http", "example.com:80", "http://example.com:80/hello", plain, "200 hello example.com:80  "},
		{"http to another port", "http", "example.com:8080", "http://example.com:8080/hello", plain, "200 hello example.com:8080  "},
		{"http by SOCKS", "socks5h", "example.com:80", "http://example.com/hello", plain, "200 hello example.com  "},
		{"last dot", "http", "example.com:80", "http://example.com./hello", plain, "200 hello example.com.  "},
		{"last dot in the list", "http", "example.com.:80", "http://example.com/hello", plain, "200 hello example.com  "},
		{"no content", "http", "example.com:80", "http://example.com/nothing", plain, "204 "},
		{"no server", "http", "gone.example:80", "http://gone.example/", plain, "502 TRL allows gone.example:80, but there is no connection: the name gone.example can't be resolved.\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, []string{c.allow}, nil)
			r.names.set("example.com", []string{publicAddr.String()})
			r.names.set("www.example.com", []string{publicAddr.String()})
			r.to.Store(c.to)
			client := r.client(s, c.scheme)
			for range 2 { // the second one may use the same connection
				if got, err := fetch(client, c.url); got != c.want || err != nil {
					t.Errorf("%q, %v, want %q", got, err, c.want)
				}
			}
			if d := r.denied(); len(d) > 0 {
				t.Errorf("denied %+v", d)
			}
		})
	}
}

// A name is looked up once for each connection, and the connection goes to what was
// checked. A later look-up with another answer is checked as well.
func TestRebinding(t *testing.T) {
	s := newSite(t)
	r := newRig(t, []string{"rebind.example:80"}, nil)
	r.names.set("rebind.example", []string{publicAddr.String()}, []string{"127.0.0.1"})
	r.to.Store(s.plain.Listener.Addr().String())
	client := r.client(s, "http")
	if got, err := fetch(client, "http://rebind.example/hello"); !strings.HasPrefix(got, "200 ") || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if n := r.names.lookUps("rebind.example"); n != 1 {
		t.Errorf("looked up %d times, want 1", n)
	}
	if got, err := fetch(client, "http://rebind.example/hello"); !strings.Contains(got, "403") || err != nil {
		t.Errorf("after rebinding: %q, %v", got, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if want := netip.AddrPortFrom(publicAddr, 80); len(r.dialled) != 1 || r.dialled[0] != want {
		t.Errorf("dialled %v, want %v once", r.dialled, want)
	}
}

func TestRedirect(t *testing.T) {
	s := newSite(t)
	r := newRig(t, []string{"a.example:80"}, nil)
	r.names.set("a.example", []string{publicAddr.String()})
	r.names.set("evil.example", []string{publicAddr.String()})
	r.to.Store(s.plain.Listener.Addr().String())
	got, err := fetch(r.client(s, "http"), "http://a.example/away")
	if err != nil || !strings.HasPrefix(got, "403 ") {
		t.Errorf("%q, %v", got, err)
	}
	if d := r.denied(); len(d) != 1 || d[0].Host != "evil.example" || d[0].Reason != ReasonNotListed {
		t.Errorf("denied %+v", d)
	}
}

// Each request of a connection is checked, also those sent ahead.
func TestPipeline(t *testing.T) {
	s := newSite(t)
	r := newRig(t, []string{"a.example:80"}, nil)
	r.names.set("a.example", []string{publicAddr.String()})
	r.to.Store(s.plain.Listener.Addr().String())
	conn := r.dial()
	io.WriteString(conn, "POST http://a.example/sum HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"+
		"HEAD http://a.example/hello HTTP/1.1\r\nHost: a.example\r\n\r\n"+
		get("http://a.example/hello", "a.example")+get("http://evil.example/", "evil.example")+get("http://a.example/hello", "a.example"))
	in := bufio.NewReader(conn)
	var statuses []int
	for _, method := range []string{"POST", "HEAD", "GET", "GET"} {
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		statuses = append(statuses, resp.StatusCode)
	}
	if got := fmt.Sprint(statuses); got != "[200 200 200 403]" {
		t.Errorf("answered %s", got)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("the connection goes on after a denial: %v", err)
	}
}

func TestHopByHop(t *testing.T) {
	s := newSite(t)
	r := newRig(t, []string{"a.example:80"}, nil)
	r.names.set("a.example", []string{publicAddr.String()})
	r.to.Store(s.plain.Listener.Addr().String())
	conn := r.dial()
	io.WriteString(conn, "GET http://a.example/headers HTTP/1.1\r\nHost: a.example\r\nConnection: x-gone, Upgrade, HTTP2-Settings\r\nX-Gone: 1\r\n"+
		"Upgrade: h2c\r\nHTTP2-Settings: x\r\nProxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nX-Kept: 1\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	if want := "Connection: close\r\nX-Kept: 1\r\n"; string(got) != want || err != nil {
		t.Errorf("the server got %q, %v, want %q", got, err, want)
	}
}

// An answer that comes in pieces is passed on in pieces.
func TestStream(t *testing.T) {
	s := newSite(t)
	r := newRig(t, []string{"a.example:80"}, nil)
	r.names.set("a.example", []string{publicAddr.String()})
	r.to.Store(s.plain.Listener.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a.example/stream", http.NoBody)
	resp, err := r.client(s, "http").Do(req)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if line != "one\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	resp.Body.Close()
	r.proxy.Close()
}

// What the server has cut off does not look complete.
func TestCutAnswer(t *testing.T) {
	s := newSite(t)
	r := newRig(t, []string{"a.example:80"}, nil)
	r.names.set("a.example", []string{publicAddr.String()})
	r.to.Store(s.plain.Listener.Addr().String())
	if got, err := fetch(r.client(s, "http"), "http://a.example/cut"); err == nil {
		t.Errorf("%q without an error", got)
	}
}

// bulk returns n bytes that are the same for the same seed.
func bulk(seed uint64, n int64) io.Reader {
	var key [32]byte
	key[0] = byte(seed)
	return io.LimitReader(rand.NewChaCha8(key), n)
}

func sumOf(from io.Reader) (string, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, from)
	return fmt.Sprintf("%d %x", n, sum.Sum(nil)), err
}

func TestLongPosts(t *testing.T) {
	s := newSite(t)
	r := newRig(t, []string{"example.com:80", "example.com:443"}, nil)
	r.names.set("example.com", []string{publicAddr.String()})
	const size = 8 << 20
	want, _ := sumOf(bulk(1, size))
	for _, c := range []struct {
		name, url, to string
		length        int64
		expect        bool
	}{
		{"https, chunked", "https://example.com/sum", s.secure.Listener.Addr().String(), -1, false},
		{"http, chunked", "http://example.com/sum", s.plain.Listener.Addr().String(), -1, false},
		{"http, with a length", "http://example.com/sum", s.plain.Listener.Addr().String(), size, false},
		{"http, asks first", "http://example.com/sum", s.plain.Listener.Addr().String(), size, true},
	} {
		r.to.Store(c.to)
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url, io.NopCloser(bulk(1, size)))
		req.ContentLength = c.length
		if c.expect {
			req.Header.Set("Expect", "100-continue")
		}
		resp, err := r.client(s, "http").Do(req)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != want+" <nil>" || err != nil {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, want)
		}
	}
}

// A server that answers before it has read a body is heard.
func TestEarlyAnswer(t *testing.T) {
	s := newSite(t)
	r := newRig(t, []string{"a.example:80"}, nil)
	r.names.set("a.example", []string{publicAddr.String()})
	r.to.Store(s.plain.Listener.Addr().String())
	conn := r.dial()
	io.WriteString(conn, "POST http://a.example/large HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000000\r\n\r\nonly this")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
		t.Errorf("%v, %v", resp, err)
	}
}

// 100 MiB in both directions at once, byte for byte, and each end of a direction.
func TestBulkAndHalfClose(t *testing.T) {
	const size = 100 << 20
	l := listen(t)
	received := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		done := make(chan struct{})
		go func() {
			defer close(done)
			io.Copy(conn, bulk(2, size))
		}()
		sum, _ := sumOf(conn) // ends when the client ends its direction
		<-done
		fmt.Fprint(conn, "the end") // after the client's end
		received <- sum
	}()
	r := newRig(t, []string{"bulk.example=" + l.Addr().String()}, nil)
	conn, in := r.connect("bulk.example:" + portOf(l.Addr().String()))
	go func() {
		io.Copy(conn, bulk(1, size))
		conn.CloseWrite()
	}()
	got, err := sumOf(in)
	want, _ := sumOf(io.MultiReader(bulk(2, size), strings.NewReader("the end")))
	if got != want || err != nil {
		t.Errorf("the client got %s, %v, want %s", got, err, want)
	}
	want, _ = sumOf(bulk(1, size))
	if got := <-received; got != want {
		t.Errorf("the server got %s, want %s", got, want)
	}
	l.Close()
}

// The first message may come in any pieces; what a server says first is passed on.
func TestFirstBytesInPieces(t *testing.T) {
	hello := helloFor(t, "a.example")
	for _, c := range []struct {
		name, to string
		send     []byte
		step     int
	}{
		{"small records", "a.example:443", inRecords(hello, 7), 1 << 20},
		{"small segments", "a.example:443", hello, 1},
		{"small records in small segments", "a.example:443", inRecords(hello, 50), 11},
		{"with early data", "a.example:443", append(bytes.Clone(hello), 23, 3, 3, 0, 1, 0), 1 << 20},
		{"upper case", "a.example:443", helloFor(t, "A.Example"), 1 << 20},
		{"unused extension of an encrypted hello", "a.example:443", withExtension(hello, []byte{0xfe, 0x0d, 0, 2, 0, 0}), 1 << 20},
		{"not TLS elsewhere", "a.example:22", []byte("SSH-2.0-x\r\n"), 1},
		{"nearly TLS elsewhere", "a.example:22", []byte("\x16\x04..."), 1},
		{"one byte elsewhere", "a.example:22", []byte("\x16"), 1},
		{"nothing elsewhere", "a.example:22", nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := listen(t)
			got := make(chan []byte, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(patience))
				io.WriteString(conn, "ready\n")
				all, _ := io.ReadAll(conn)
				got <- all
			}()
			defer l.Close()
			r := newRig(t, []string{"a.example:443", "a.example:22"}, nil)
			r.names.set("a.example", []string{publicAddr.String()})
			r.to.Store(l.Addr().String())
			conn, in := r.connect(c.to)
			if line, err := in.ReadString('\n'); line != "ready\n" || err != nil {
				t.Fatalf("%q, %v", line, err)
			}
			for rest := c.send; len(rest) > 0; {
				n := min(c.step, len(rest))
				conn.Write(rest[:n])
				rest = rest[n:]
			}
			conn.CloseWrite()
			if got := <-got; !bytes.Equal(got, c.send) {
				t.Errorf("the server got %d bytes, want %d", len(got), len(c.send))
			}
		})
	}
}

// What is sent together with CONNECT is checked as well.
func TestBytesAhead(t *testing.T) {
	for _, name := range []string{"a.example", "evil.example"} {
		server := newSink(t)
		r := newRig(t, []string{"a.example:443"}, nil)
		r.names.set("a.example", []string{publicAddr.String()})
		r.to.Store(server.address)
		conn := r.dial()
		hello := helloFor(t, name)
		conn.Write(append([]byte(connectTo("a.example:443")), hello...))
		conn.CloseWrite()
		io.Copy(io.Discard, conn)
		r.proxy.Close()
		want := int64(0)
		if name == "a.example" {
			want = int64(len(hello))
		}
		trltest.Eventually(t, fmt.Sprintf("the server has got %d bytes", want), func() bool { return server.bytes.Load() == want })
		if got := len(r.denied()); (got == 0) != (want > 0) {
			t.Errorf("%s: %d denials", name, got)
		}
	}
}

// An IPv6 address is reached if the list has it.
func TestIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 here")
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "six\n")
			conn.Close()
		}
	}()
	r := newRig(t, []string{l.Addr().String()}, nil)
	_, in := r.connect(l.Addr().String())
	if line, err := in.ReadString('\n'); line != "six\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
}

func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl here")
	}
	s := newSite(t)
	secure := s.secure.Listener.Addr().String()
	plain := s.plain.Listener.Addr().String()
	r := newRig(t, []string{"pinned.example.com=" + secure, "plain.example.com=" + plain}, nil)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	secureURL, plainURL := "https://pinned.example.com:"+portOf(secure), "http://plain.example.com:"+portOf(plain)
	for _, c := range []struct {
		name, scheme, url string
		want              string
		code              int
	}{
		{"https by the environment", "", secureURL + "/hello", "hello pinned.example.com:" + portOf(secure) + "  ", 0},
		{"http by the environment", "", plainURL + "/hello", "hello plain.example.com:" + portOf(plain) + "  ", 0},
		{"https", "http", secureURL + "/hello", "hello pinned.example.com:" + portOf(secure) + "  ", 0},
		{"https by SOCKS", "socks5h", secureURL + "/hello", "hello pinned.example.com:" + portOf(secure) + "  ", 0},
		{"http", "http", plainURL + "/hello", "hello plain.example.com:" + portOf(plain) + "  ", 0},
		{"http by SOCKS", "socks5h", plainURL + "/hello", "hello plain.example.com:" + portOf(plain) + "  ", 0},
		{"denied", "http", "https://evil.example/", "", 56},
		{"denied by SOCKS", "socks5h", "https://evil.example/", "", 97},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, curl, "-sS", "--cacert", roots, c.url)
			if c.scheme != "" {
				cmd.Args = append(cmd.Args, "--proxy", c.scheme+"://"+r.addr)
			}
			cmd.Env = append(Environ(r.addr), "PATH="+os.Getenv("PATH"))
			var complaint strings.Builder
			cmd.Stderr = &complaint
			out, err := cmd.Output()
			code := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				code = exit.ExitCode()
			}
			if string(out) != c.want || code != c.code {
				t.Errorf("%q, exit %d, %s, want %q and %d", out, code, complaint.String(), c.want, c.code)
			}
		})
	}
}
