package trltest

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy forwards connections between clients and a daemon, and cuts them at
// random: after a number of bytes from the daemon, possibly in the middle of a
// message. It stalls some before, like a network that is about to fail. A test can
// also cut, stall and restore all of them itself.
type Proxy struct {
	listener net.Listener
	network  string // of the daemon
	target   string
	cut      int // average number of bytes after which a connection is cut; 0 means never
	seed     atomic.Uint64

	cuts        atomic.Int64
	stopCutting atomic.Bool // set by StopCutting

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	broken bool          // new connections end at once: Cut or Close was called
	flows  chan struct{} // closed while bytes are forwarded; see Stall

	done   chan struct{} // closed by Close
	closed sync.Once
	wg     sync.WaitGroup
}

// maxStall is how long a connection may stall before it is cut.
const maxStall = 30 * time.Millisecond

// NewProxy listens on a Unix socket (network "unix", address a path) or on TCP,
// and forwards to the daemon at target on the same network. The caller must call
// Close.
func NewProxy(network, address, target string, cut int, seed uint64) (*Proxy, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		listener: l, network: network, target: target, cut: cut, conns: map[net.Conn]struct{}{},
		flows: make(chan struct{}), done: make(chan struct{}),
	}
	close(p.flows)
	p.seed.Store(seed)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the address that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cuts returns how many connections were cut.
func (p *Proxy) Cuts() int64 { return p.cuts.Load() }

// StopCutting makes the proxy cut no further connections.
func (p *Proxy) StopCutting() { p.stopCutting.Store(true) }

// Cut cuts all connections. Until Restore, new ones end as soon as they are made.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	p.cuts.Add(int64(len(p.conns) / 2))
	p.closeAll()
}

// Stall stops forwarding until Restore, in both directions. Connections stay open
// and new ones are accepted, as on a network that loses every packet.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flows:
		p.flows = make(chan struct{})
	default: // it is stalled
	}
}

// Restore ends what Cut and Stall began. What was stalled arrives now.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = false
	select {
	case <-p.flows:
	default:
		close(p.flows)
	}
}

// Close closes all connections and waits for their goroutines. It may be called more
// than once.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.closed.Do(func() { close(p.done) })
	p.mu.Lock()
	p.broken = true // for one that is being accepted
	p.closeAll()
	p.mu.Unlock()
	p.wg.Wait()
}

// closeAll closes all connections. The caller must hold mu.
func (p *Proxy) closeAll() {
	for c := range p.conns {
		_ = c.Close()
	}
}

// awaitFlow waits while the proxy is stalled. It reports false if it was closed.
func (p *Proxy) awaitFlow() bool {
	p.mu.Lock()
	flows := p.flows
	p.mu.Unlock()
	select {
	case <-flows:
		return true
	case <-p.done:
		return false
	}
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial(p.network, p.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		if !p.add(near, far) {
			_, _ = near.Close(), far.Close()
			continue
		}
		rnd := rand.New(rand.NewPCG(p.seed.Add(1), 1))
		p.wg.Go(func() { _, _ = io.Copy(stallable{far, p}, near); p.end(near, far) })
		p.wg.Go(func() { p.forward(near, far, rnd); p.end(near, far) })
	}
}

// add registers a pair of connections. It reports false if the link is cut.
func (p *Proxy) add(near, far net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return false
	}
	p.conns[near], p.conns[far] = struct{}{}, struct{}{}
	return true
}

// stallable is a writer that stalls with its proxy.
type stallable struct {
	w io.Writer
	p *Proxy
}

func (s stallable) Write(b []byte) (int, error) {
	if !s.p.awaitFlow() {
		return 0, net.ErrClosed
	}
	return s.w.Write(b)
}

// end closes a pair of connections. Both directions call it.
func (p *Proxy) end(near, far net.Conn) {
	_, _ = near.Close(), far.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, near)
	delete(p.conns, far)
}

// forward copies what the daemon sends, up to the cut.
func (p *Proxy) forward(near, far net.Conn, rnd *rand.Rand) {
	left := int64(-1)
	if p.cut > 0 {
		left = rnd.Int64N(2 * int64(p.cut))
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := far.Read(buf)
		if !p.awaitFlow() {
			return
		}
		last := left >= 0 && int64(n) >= left && !p.stopCutting.Load()
		if last {
			n = int(left)
		}
		if _, werr := near.Write(buf[:n]); werr != nil || err != nil {
			return
		}
		if last {
			if rnd.IntN(4) == 0 {
				time.Sleep(time.Duration(rnd.Int64N(int64(maxStall))))
			}
			p.cuts.Add(1)
			return
		}
		if left >= 0 {
			left -= int64(n)
		}
	}
}
