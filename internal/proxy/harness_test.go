package proxy

import (
	"bufio"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// publicAddr stands for a public server: the harness connects it to a server of the
// test on loopback.
var publicAddr = netip.MustParseAddr("93.184.216.34")

// rig is a proxy with everything around it.
type rig struct {
	t     testing.TB
	proxy *Proxy
	addr  string // of the proxy
	names *nameServer
	to    atomic.Value // string: what publicAddr is connected to

	mu      sync.Mutex // guards the fields below
	denials []Denial
	dialled []netip.AddrPort
}

func newRig(t testing.TB, allow []string, change func(*Config)) *rig {
	t.Helper()
	list, err := Parse(allow)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, names: newNameServer(t)}
	cfg := Config{
		Allow: list,
		Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", r.names.conn.LocalAddr().String())
		}},
		Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			r.mu.Lock()
			r.dialled = append(r.dialled, to)
			r.mu.Unlock()
			where := to.String()
			if to.Addr() == publicAddr {
				var ok bool
				if where, ok = r.to.Load().(string); !ok {
					return nil, errors.New("the test has no server")
				}
			} else if !to.Addr().IsLoopback() {
				return nil, errors.New("the test connects to loopback only")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", where)
		},
		Denied: func(d Denial) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.denials = append(r.denials, d)
		},
	}
	if change != nil {
		change(&cfg)
	}
	r.proxy = New(cfg)
	l := listen(t)
	r.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.proxy.Serve(t.Context(), l) }()
	t.Cleanup(func() {
		r.proxy.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return r
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func portOf(address string) string { _, port, _ := net.SplitHostPort(address); return port }

// dial connects to the proxy.
func (r *rig) dial() *net.TCPConn {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn)
}

// connect opens a tunnel.
func (r *rig) connect(to string) (*net.TCPConn, *bufio.Reader) {
	r.t.Helper()
	conn := r.dial()
	io.WriteString(conn, "CONNECT "+to+" HTTP/1.1\r\nHost: "+to+"\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("CONNECT %s: %v, %v", to, resp, err)
	}
	return conn, in
}

func (r *rig) denied() []Denial {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Denial(nil), r.denials...)
}

// sink is a server that counts what it gets, and greets with a line if it has one.
type sink struct {
	address string
	bytes   atomic.Int64
}

func newSink(t testing.TB) *sink {
	l := listen(t)
	s := &sink{address: l.Addr().String()}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(patience))
				n, _ := io.Copy(io.Discard, conn)
				s.bytes.Add(n)
			})
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	return s
}

// nameServer answers DNS questions over UDP.
type nameServer struct {
	conn net.PacketConn

	mu    sync.Mutex // guards the fields below
	hosts map[string][][]string
	asked map[string]int // A questions by name
}

func newNameServer(t testing.TB) *nameServer {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, hosts: map[string][][]string{}, asked: map[string]int{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := s.answer(buf[:n]); reply != nil {
				conn.WriteTo(reply, from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return s
}

// set gives a name its addresses; each further list is the answer to a later look-up.
func (s *nameServer) set(name string, answers ...[]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[name] = answers
}

func (s *nameServer) lookUps(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name]
}

func (s *nameServer) answer(question []byte) []byte {
	if len(question) < 17 {
		return nil
	}
	at, labels := 12, []string{}
	for at < len(question) && question[at] != 0 {
		end := at + 1 + int(question[at])
		if end >= len(question) {
			return nil
		}
		labels = append(labels, string(question[at+1:end]))
		at = end
	}
	if at+5 > len(question) {
		return nil
	}
	kind := binary.BigEndian.Uint16(question[at+1:])
	name := strings.ToLower(strings.Join(labels, "."))
	s.mu.Lock()
	defer s.mu.Unlock()
	answers, known := s.hosts[name]
	reply := append([]byte{question[0], question[1], 0x85, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question[12:at+5]...)
	if !known {
		reply[3] |= 3 // no such name
		return reply
	}
	turn := min(s.asked[name], len(answers)-1)
	if kind == 1 {
		s.asked[name]++
	}
	for _, text := range answers[turn] {
		addr := netip.MustParseAddr(text)
		if addr.Is4() != (kind == 1) || addr.Is6() != (kind == 28) {
			continue
		}
		reply[7]++
		reply = append(reply, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(addr.BitLen()/8))
		reply = append(reply, addr.AsSlice()...)
	}
	return reply
}

// clientHello returns the first flight of a real TLS client.
func clientHello(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tls.Client(near, config).Handshake() // fails when far is closed
		near.Close()
	}()
	far.SetReadDeadline(time.Now().Add(patience))
	head := make([]byte, recordHeader)
	if _, err := io.ReadFull(far, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(far, body); err != nil {
		t.Fatal(err)
	}
	far.Close()
	<-done
	return append(head, body...)
}

func helloFor(t testing.TB, name string) []byte {
	return clientHello(t, &tls.Config{ServerName: name, InsecureSkipVerify: true}) //nolint:gosec // only its first message is used
}

// echHello returns a hello whose real name is encrypted; outer is in the clear.
func echHello(t testing.TB, inner, outer string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	config := []byte{7, 0, 0x20, 0, 32} // id, KEM, key
	config = append(config, key.PublicKey().Bytes()...)
	config = append(config, 0, 4, 0, 1, 0, 1, 32, byte(len(outer))) // suites, longest name
	config = append(append(config, outer...), 0, 0)
	list := append([]byte{0xfe, 0x0d, 0, byte(len(config))}, config...)
	list = append([]byte{0, byte(len(list))}, list...)
	return clientHello(t, &tls.Config{ServerName: inner, EncryptedClientHelloConfigList: list, MinVersion: tls.VersionTLS13})
}

// inRecords splits the message of a hello over records of n bytes.
func inRecords(hello []byte, n int) []byte {
	var out []byte
	for rest := hello[recordHeader:]; len(rest) > 0; {
		size := min(n, len(rest))
		out = append(out, hello[0], hello[1], hello[2], byte(size>>8), byte(size))
		out = append(out, rest[:size]...)
		rest = rest[size:]
	}
	return out
}
