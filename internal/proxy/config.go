package proxy

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Limits bound what one proxy can use. The zero value of a field means the default.
type Limits struct {
	// Connections is how many connections are served at the same time. The default
	// is 256: a package manager opens up to 50, and 256 hold at most 16 MiB of buffers.
	Connections int
	// Head is the time for the head of a request, or for the SOCKS handshake; it is
	// also how long a connection may wait between two requests. Default: 30 s.
	Head time.Duration
	// Hello is the time for the first TLS message of a tunnel. Default: 15 s.
	Hello time.Duration
	// Lookup is the time for looking up a name. Default: 10 s.
	Lookup time.Duration
	// Dial is the time for all attempts to connect. Default: 30 s.
	Dial time.Duration
	// Idle ends a connection on which no byte has passed in either direction.
	// Default: 15 min, for servers that compute before they answer.
	Idle time.Duration
	// Total ends a connection however busy it is. Default: 24 h.
	Total time.Duration
}

func (l *Limits) setDefaults() {
	if l.Connections == 0 {
		l.Connections = 256
	}
	for _, field := range []struct {
		limit *time.Duration
		value time.Duration
	}{
		{&l.Head, 30 * time.Second},
		{&l.Hello, 15 * time.Second},
		{&l.Lookup, 10 * time.Second},
		{&l.Dial, 30 * time.Second},
		{&l.Idle, 15 * time.Minute},
		{&l.Total, 24 * time.Hour},
	} {
		if *field.limit == 0 {
			*field.limit = field.value
		}
	}
}

const (
	// maxHead is the longest head of a request: tokens and cookies come in heads of
	// some KiB, and each connection that waits for one holds a buffer of this size.
	maxHead = 32 << 10
	// maxAnswerHead is the longest head of an answer. Servers send longer heads.
	maxAnswerHead = 256 << 10
	// chunk is the size of the buffer of one direction of a connection.
	chunk = 32 << 10
)

// Resolver looks up names. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config is the configuration of a proxy.
type Config struct {
	Allow *List // nil allows nothing
	// Dial connects to an address that has been checked. nil means TCP.
	Dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Resolver is asked for each connection to a name, once. nil means that of the
	// system.
	Resolver Resolver
	// Denied receives each denial, within a bounded rate, from the connection that
	// it concerns: it must return soon and be safe for concurrent use. nil means
	// that denials are only answered.
	Denied func(Denial)
	// Every receives each denial, without a bound of their rate, before it is answered.
	// As for Denied, but nil means that nothing is called.
	Every  func(Denial)
	Log    *slog.Logger // nil means no log
	Limits Limits

	own func() ([]net.Addr, error) // addresses of this machine; nil: those of its interfaces
}

// Proxy serves the connections of one session. It is safe for concurrent use and
// must be closed.
type Proxy struct {
	cfg     Config
	ctx     context.Context // ends with Close
	end     context.CancelFunc
	slots   chan struct{} // one element for each connection
	denials denials

	mu      sync.Mutex // guards closed and the first Add to serving
	closed  bool
	serving sync.WaitGroup
}

// New returns a proxy that serves nothing yet.
func New(cfg Config) *Proxy {
	cfg.Limits.setDefaults()
	if cfg.Dial == nil {
		dialer := &net.Dialer{}
		cfg.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", to.String())
		}
	}
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.own == nil {
		cfg.own = net.InterfaceAddrs
	}
	p := &Proxy{cfg: cfg, slots: make(chan struct{}, cfg.Limits.Connections)}
	p.denials.report, p.denials.every = cfg.Denied, cfg.Every
	p.ctx, p.end = context.WithCancel(context.Background())
	return p
}

// Close ends every connection and every Serve, and waits for them.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	p.serving.Wait()
}
