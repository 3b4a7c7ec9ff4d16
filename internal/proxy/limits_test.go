package proxy

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// short is a limit that a test waits for.
const short = 500 * time.Millisecond

// ended waits until the proxy has closed a connection, and returns what it sent.
func ended(t *testing.T, conn net.Conn) string {
	t.Helper()
	all, err := io.ReadAll(conn)
	if isTimeout(err) {
		t.Fatalf("the connection is still open")
	}
	return string(all)
}

// Each client that stalls is ended by the limit that is meant for it, and meanwhile
// others are served.
func TestStalledClients(t *testing.T) {
	s := newSite(t)
	server := newSink(t)
	for _, c := range []struct {
		name   string
		limits Limits
		stall  func(r *rig) net.Conn
		want   Reason // "" means that nothing was refused
	}{
		{"nothing sent", Limits{Head: short}, func(r *rig) net.Conn { return r.dial() }, ""},
		{"half a head", Limits{Head: short}, func(r *rig) net.Conn {
			conn := r.dial()
			io.WriteString(conn, "GET http://a.example/ HTTP/1.1\r\nHost:")
			return conn
		}, ""},
		{"half of SOCKS", Limits{Head: short}, func(r *rig) net.Conn {
			conn := r.dial()
			io.WriteString(conn, "\x05\x01\x00\x05\x01")
			return conn
		}, ""},
		{"no TLS", Limits{Hello: short}, func(r *rig) net.Conn {
			conn, _ := r.connect("sink.example:443")
			return conn
		}, ReasonHello},
		{"half of TLS", Limits{Hello: short}, func(r *rig) net.Conn {
			conn, _ := r.connect("sink.example:443")
			conn.Write(helloFor(r.t, "sink.example")[:100])
			return conn
		}, ReasonHello},
		{"half of TLS on another port", Limits{Hello: short}, func(r *rig) net.Conn {
			conn, _ := r.connect("sink.example:22")
			conn.Write(helloFor(r.t, "sink.example")[:100])
			return conn
		}, ReasonHello},
		{"idle tunnel", Limits{Idle: short}, func(r *rig) net.Conn {
			conn, _ := r.connect("sink.example:22")
			io.WriteString(conn, "x")
			return conn
		}, ""},
		{"half a body", Limits{Idle: short}, func(r *rig) net.Conn {
			conn := r.dial()
			io.WriteString(conn, "POST http://sink.example/ HTTP/1.1\r\nHost: sink.example\r\nContent-Length: 9\r\n\r\nx")
			return conn
		}, ""},
		{"too old", Limits{Total: short}, func(r *rig) net.Conn {
			conn, _ := r.connect("sink.example:22")
			return conn
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, []string{"sink.example:443", "sink.example:22", "sink.example:80", "plain.example=" + s.plain.Listener.Addr().String()}, func(cfg *Config) { cfg.Limits = c.limits })
			r.names.set("sink.example", []string{publicAddr.String()})
			r.to.Store(server.address)
			conn := c.stall(r)
			if c.limits.Total == 0 {
				trltest.Eventually(t, "another request is served", func() bool { // on a busy machine the limit may hit it
					got, err := fetch(r.client(s, "http"), "http://plain.example:"+portOf(s.plain.Listener.Addr().String())+"/hello")
					return err == nil && strings.HasPrefix(got, "200 ")
				})
			}
			ended(t, conn)
			d := r.denied()
			if c.want == "" && len(d) > 0 || c.want != "" && (len(d) != 1 || d[0].Reason != c.want) {
				t.Errorf("reported %+v, want %q", d, c.want)
			}
		})
	}
}

// A client that does not read stalls its own connection only, in bounded memory.
func TestStalledReader(t *testing.T) {
	s := newSite(t)
	l := listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, bulk(1, 1<<40)) // until the proxy closes it
			}()
		}
	}()
	defer l.Close()
	r := newRig(t, []string{"bulk.example=" + l.Addr().String(), "plain.example=" + s.plain.Listener.Addr().String()}, func(cfg *Config) { cfg.Limits.Idle = time.Second })
	conn, _ := r.connect("bulk.example:" + portOf(l.Addr().String()))
	if got, err := fetch(r.client(s, "http"), "http://plain.example:"+portOf(s.plain.Listener.Addr().String())+"/hello"); err != nil || !strings.HasPrefix(got, "200 ") {
		t.Errorf("another request meanwhile: %q, %v", got, err)
	}
	trltest.Eventually(t, "the stalled connection holds its slot no more", func() bool { return len(r.proxy.slots) == 0 })
	conn.Close()
}

func TestConnectionLimit(t *testing.T) {
	s := newSite(t)
	plain := s.plain.Listener.Addr().String()
	r := newRig(t, []string{"plain.example=" + plain}, func(cfg *Config) { cfg.Limits.Connections = 2 })
	var held []*net.TCPConn
	for range 2 {
		conn, _ := r.connect("plain.example:" + portOf(plain))
		held = append(held, conn)
	}
	if got := ended(t, r.dial()); !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "(limit)") {
		t.Errorf("answered %q", got)
	}
	if d := r.denied(); len(d) != 1 || d[0].Reason != ReasonLimit {
		t.Errorf("reported %+v", d)
	}
	held[0].Close()
	trltest.Eventually(t, "the slot is free", func() bool { return len(r.proxy.slots) == 1 })
	r.connect("plain.example:" + portOf(plain))
}

func TestCloseEndsAll(t *testing.T) {
	server := newSink(t)
	r := newRig(t, []string{"sink.example=" + server.address}, nil)
	silent := r.dial()
	tunnel, _ := r.connect("sink.example:" + portOf(server.address))
	waiting := r.dial()
	io.WriteString(waiting, get("http://sink.example:"+portOf(server.address)+"/", "sink.example:"+portOf(server.address)))
	trltest.Eventually(t, "all are served", func() bool { return len(r.proxy.slots) == 3 })
	r.proxy.Close()
	r.proxy.Close() // again
	for _, conn := range []net.Conn{silent, tunnel, waiting} {
		ended(t, conn)
	}
	if _, err := net.Dial("tcp", r.addr); err == nil {
		t.Error("the listener is still open")
	}
	l := listen(t)
	if err := r.proxy.Serve(t.Context(), l); err != nil {
		t.Errorf("Serve after Close: %v", err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("Serve after Close left its listener open")
	}
}

// The listener of a cell may be a Unix socket too.
func TestUnixListener(t *testing.T) {
	r := newRig(t, nil, nil)
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.proxy.Serve(t.Context(), l) }()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, connectTo("a.example:443"))
	if got := ended(t, conn); !strings.HasPrefix(got, "HTTP/1.1 403 ") {
		t.Errorf("answered %q", got)
	}
	r.proxy.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A session in a loop does not fill the events; what is left out is counted.
func TestDenialsAreBounded(t *testing.T) {
	var got []Denial
	d := denials{report: func(d Denial) { got = append(got, d) }}
	const many = 10 * denialBurst
	for range many {
		d.add(Denial{Reason: ReasonNotListed})
	}
	if len(got) < denialBurst || len(got) > 2*denialBurst {
		t.Errorf("%d of %d reported, want about %d", len(got), many, denialBurst)
	}
	before := len(got)
	d.refilled = d.refilled.Add(-time.Hour)
	d.add(Denial{Reason: ReasonNotListed})
	counted := len(got)
	for _, d := range got {
		counted += d.Suppressed
	}
	if len(got) != before+1 || counted != many+1 {
		t.Errorf("%d reported or counted, want %d", counted, many+1)
	}
}

// A panic ends one connection, not the daemon.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, []string{"a.example:443"}, func(cfg *Config) {
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		cfg.own = func() ([]net.Addr, error) { panic("on purpose") }
	})
	r.names.set("a.example", []string{publicAddr.String()})
	conn := r.dial()
	io.WriteString(conn, connectTo("a.example:443"))
	if got := ended(t, conn); got != "" {
		t.Errorf("answered %q", got)
	}
	r.proxy.Close()
	if !strings.Contains(log.String(), "event=proxy_panic") {
		t.Errorf("logged %q", log.String())
	}
}

// A TLS client is not left without a reason.
func TestAlert(t *testing.T) {
	server := newSink(t)
	r := newRig(t, []string{"sink.example=" + server.address}, nil)
	conn, _ := r.connect("sink.example:" + portOf(server.address))
	err := tls.Client(conn, &tls.Config{ServerName: "evil.example"}).HandshakeContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("the client reports %v", err)
	}
}
