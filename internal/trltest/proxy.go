package trltest

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy stands between clients and a daemon, and cuts their connections at
// random: after so many bytes of the daemon's, wherever that is in a message.
// Some it stalls before, as a network does that is about to fail.
type Proxy struct {
	listener net.Listener
	network  string // of the daemon
	target   string
	cut      int // bytes after which a connection is cut, on average; 0: never
	seed     atomic.Uint64

	cuts        atomic.Int64
	stopCutting atomic.Bool // cut no more

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

// maxStall is how long a connection may be held before it is cut.
const maxStall = 30 * time.Millisecond

// NewProxy listens on a Unix socket (network "unix", address a path) or on TCP,
// and forwards to the daemon at target on the same network. Close ends it.
func NewProxy(network, address, target string, cut int, seed uint64) (*Proxy, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, network: network, target: target, cut: cut, conns: map[net.Conn]struct{}{}}
	p.seed.Store(seed)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cuts is how many connections were cut.
func (p *Proxy) Cuts() int64 { return p.cuts.Load() }

// Rest lets every connection live from now on.
func (p *Proxy) StopCutting() { p.stopCutting.Store(true) }

// Close ends all connections and waits until nothing is left of them.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
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
		p.mu.Lock()
		p.conns[near], p.conns[far] = struct{}{}, struct{}{}
		p.mu.Unlock()
		rnd := rand.New(rand.NewPCG(p.seed.Add(1), 1))
		p.wg.Go(func() { _, _ = io.Copy(far, near); p.end(near, far) })
		p.wg.Go(func() { p.forward(near, far, rnd); p.end(near, far) })
	}
}

// end closes a pair. It is called from both directions.
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
