package place

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

const (
	// attemptTimeout bounds one attempt to connect: the program may have to be
	// delivered over a slow line.
	attemptTimeout = 60 * time.Second

	// After a failed attempt further calls are refused for a while, so that a place
	// that is away costs callers no time and the network no load. Streams wait for
	// it too, so it is short: what is back is used again within it.
	minBackoff = 500 * time.Millisecond
	maxBackoff = 5 * time.Second

	// streamBackoff is the same for a further connection to a place that can be
	// reached: it probably allows no more, and streams can share one.
	streamBackoff = 30 * time.Second

	// steadyAfter is how long a connection must have lasted for its loss not to
	// count as a failed attempt, so that a place that accepts every connection and
	// then drops it causes few.
	steadyAfter = time.Second

	// idleLimit is after how long without use a connection is closed.
	idleLimit = 5 * time.Minute
	// madeIdleLimit is the same for a place that was made for its sessions, and ends
	// some time after the last session and connection.
	madeIdleLimit = time.Minute

	// Connections for streams besides the one for calls. SSH servers allow ten
	// sessions over one connection by default.
	exclusiveStreams = 2
	maxStreams       = exclusiveStreams + 1 // all other streams share the last one
)

// link is one connection of a place, which is made when it is needed. The
// registry's mu guards it.
type link struct {
	conn    *peer.Conn // nil: none
	attempt *attempt   // under way; nil: none
	users   int        // streams that use it
	opened  time.Time
	used    time.Time
	retryAt time.Time // of a stream's link that could not be opened
}

// attempt is an attempt to connect, which its callers share.
type attempt struct {
	done chan struct{}
	conn *peer.Conn // this and the following: valid when done is closed
	err  error      // *refusal
}

func (l *link) live() bool { return l.conn != nil && !l.conn.Ended() }

// Conn returns the connection for calls. It connects if necessary; callers share the
// attempt, and ctx bounds only the wait for it.
func (p *Place) Conn(ctx context.Context) (*peer.Conn, error) { return p.await(ctx, &p.calls, false) }

// await returns the connection of a link. now ignores the backoff.
func (p *Place) await(ctx context.Context, l *link, now bool) (*peer.Conn, error) {
	p.reg.mu.Lock()
	conn, a, err := p.join(l, now)
	p.reg.mu.Unlock()
	if err != nil || conn != nil {
		return conn, err
	}
	select {
	case <-a.done:
		if because(a.err, ended) {
			why, _ := errors.AsType[*refusal](a.err)
			return nil, notFound(p.runtime, why.message).WithHint("%s", why.hint)
		}
		if because(a.err, noLimits) {
			why, _ := errors.AsType[*refusal](a.err)
			return nil, api.Errorf(api.CodeLimitsUnavailable, "%s: %s", p.runtime, why.message).With("limits", why.limits).WithHint("%s", why.hint)
		}
		if a.err != nil {
			return nil, p.unavailable(a.err)
		}
		return a.conn, nil
	case <-ctx.Done():
		waited := p.unavailable(&refusal{reason: silent, message: "it was still connecting when the call's time was over"})
		waited.Cause = ctx.Err()
		return nil, waited
	}
}

// join returns the link's connection, or the attempt to make it, which it starts if
// there is none. Caller must hold mu.
func (p *Place) join(l *link, now bool) (*peer.Conn, *attempt, error) {
	switch {
	case p.reg.closed:
		return nil, nil, api.Errorf(api.CodeShuttingDown, "the daemon is shutting down")
	case p.removed:
		return nil, nil, notFound(p.runtime, "the place was removed").WithHint("run `trl place add`, or call place.add, to use it again")
	case l.live():
		l.used = p.reg.now()
		return l.conn, nil, nil
	case l.attempt == nil:
		if l == &p.calls && !now && p.reg.now().Before(p.retryAt) {
			return nil, nil, p.refuse(p.failure)
		}
		a := &attempt{done: make(chan struct{})}
		l.attempt = a
		p.reg.running.Go(func() { p.run(l, a) })
		p.update()
	}
	return nil, l.attempt, nil
}

// run carries out an attempt. Only one of a place does so at a time: the first may
// have to deliver the program.
func (p *Place) run(l *link, a *attempt) {
	ctx, cancel := context.WithTimeout(p.reg.ctx, attemptTimeout)
	defer cancel()
	r := p.reg
	r.mu.Lock()
	known := p.noted
	r.mu.Unlock()
	var hello *api.Hello
	var info *api.SystemInfo
	select {
	case p.turn <- struct{}{}:
		a.conn, hello, info, a.err = p.connect(ctx, l == &p.calls && p.cell == nil)
		<-p.turn
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	a.err = asRefusal(a.err)
	if because(a.err, ended) {
		r.mu.Lock()
		p.forget()
		r.mu.Unlock()
	}
	switch {
	case p.cell != nil: // the daemon has its own record of it
	case because(a.err, ended), a.err == nil && !known:
		r.save() // before the place is used: it must not be lost
	case a.err == nil:
		defer r.save() // it has only said something new about itself
	}
	p.conclude(l, a, hello, info)
}

// conclude ends an attempt: its callers get the connection or the error.
func (p *Place) conclude(l *link, a *attempt, hello *api.Hello, info *api.SystemInfo) {
	r := p.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(a.done)
	l.attempt = nil
	if a.err == nil && (r.closed || p.removed) {
		a.conn.Close()
		a.err = &refusal{reason: refused, message: "the place was closed"}
	}
	if a.err != nil {
		a.conn = nil
		p.failed(l, a.err)
		return
	}
	l.conn, l.opened, l.used = a.conn, r.now(), r.now()
	r.running.Go(func() { p.watch(l, a.conn) })
	p.armIdle()
	if l == &p.calls {
		p.reached(hello, info)
	}
}

// failed records a failed attempt. Caller must hold mu.
func (p *Place) failed(l *link, err error) {
	now := p.reg.now()
	if l != &p.calls {
		l.retryAt = now.Add(streamBackoff)
		return
	}
	p.failures++
	p.retryAt = now.Add(backoff(p.failures))
	if p.down.IsZero() {
		p.down = now
	}
	p.failure, _ = errors.AsType[*refusal](err)
	if p.failures == 1 && !p.reg.closed && p.cell == nil {
		p.reg.cfg.Log.Warn("cannot reach a place", "event", "place_unreachable", "runtime", p.runtime, "name", p.name,
			"reason", string(p.failure.reason), "error", p.failure.message)
	}
	p.update()
}

// reached records that the connection for calls is there. Caller must hold mu.
func (p *Place) reached(hello *api.Hello, info *api.SystemInfo) {
	p.failure, p.retryAt, p.down = nil, time.Time{}, time.Time{}
	if info != nil {
		p.shells, p.limits, p.isolates = info.Shells, info.Limits, info.Isolates
	}
	if p.cell == nil {
		p.reg.cfg.Log.Info("connected to a place", "event", "place_connected", "runtime", p.runtime, "name", p.name, "version", hello.Version)
	}
	p.update()
}

// watch waits for the end of a connection.
func (p *Place) watch(l *link, conn *peer.Conn) {
	<-conn.Done()
	r := p.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.conn != conn {
		return // we have closed it
	}
	l.conn = nil
	if l != &p.calls {
		return
	}
	now := r.now()
	p.down = now
	if now.Sub(l.opened) >= steadyAfter {
		p.failures = 0
	} else if p.failures++; p.failures > 1 { // the first loss costs callers no wait
		p.retryAt = now.Add(backoff(p.failures))
		p.failure = &refusal{reason: unreachable, message: conn.Err().Error()}
	}
	if p.cell == nil {
		r.cfg.Log.Warn("lost the connection to a place", "event", "place_lost", "runtime", p.runtime, "name", p.name, "error", conn.Err())
	}
	p.update()
}

// backoff returns how long to wait after so many failures: twice as long each time,
// and up to a quarter less, so that the callers of several places do not come at
// once.
func backoff(failures int) time.Duration {
	d := maxBackoff
	if failures < 8 {
		d = min(maxBackoff, minBackoff<<(failures-1))
	}
	return d - rand.N(d/4)
}

// OpenStream returns a connection for one stream. If exclusive is true, no other
// stream uses it, so its subscriber may block. The caller must call release.
func (p *Place) OpenStream(ctx context.Context) (conn *peer.Conn, exclusive bool, release func(), err error) {
	if conn, err = p.Conn(ctx); err != nil {
		return nil, false, nil, err
	}
	l, exclusive, release := p.reserve()
	if l == &p.calls {
		return conn, false, release, nil
	}
	if stream, err := p.await(ctx, l, false); err == nil {
		return stream, exclusive, release, nil
	} else if ctx.Err() != nil {
		release()
		return nil, false, nil, err
	}
	// The place accepts no more connections: the stream shares that of the calls.
	release()
	p.reg.mu.Lock()
	defer p.reg.mu.Unlock()
	return conn, false, p.use(&p.calls), nil
}

// reserve picks the link for a stream.
func (p *Place) reserve() (l *link, exclusive bool, release func()) {
	p.reg.mu.Lock()
	for i := range p.streams {
		l, exclusive = &p.streams[i], i < exclusiveStreams
		if l.users == 0 {
			break
		}
	}
	if !l.live() && p.reg.now().Before(l.retryAt) {
		l, exclusive = &p.calls, false
	}
	release = p.use(l)
	p.reg.mu.Unlock()
	return l, exclusive, release
}

// use counts a stream on a link until the function it returns is called. Caller must
// hold mu.
func (p *Place) use(l *link) (release func()) {
	l.users++
	return sync.OnceFunc(func() {
		p.reg.mu.Lock()
		defer p.reg.mu.Unlock()
		l.users--
		l.used = p.reg.now()
	})
}

// armIdle makes sure that unused connections are closed. Caller must hold mu.
func (p *Place) armIdle() {
	if p.idle == nil {
		p.idle = time.AfterFunc(p.idleLimit(), p.closeIdle)
	}
}

// idleLimit returns after how long without use a connection of the place is closed.
func (p *Place) idleLimit() time.Duration {
	if _, made := p.transport.(maker); made {
		return madeIdleLimit
	}
	return idleLimit
}

// closeIdle closes the connections that are not in use any more.
func (p *Place) closeIdle() {
	r := p.reg
	r.mu.Lock()
	p.idle = nil
	inUse := false
	for l := range p.links() {
		if l.conn != nil && (l.users > 0 || l.conn.Busy()) {
			l.used, inUse = r.now(), true
		}
	}
	if inUse {
		p.calls.used = r.now() // a place that is watched stays connected
	}
	left := false
	for l := range p.links() {
		switch {
		case l.conn == nil:
		case r.now().Sub(l.used) < p.idleLimit():
			left = true
		default:
			p.drop(l)
		}
	}
	if left {
		p.armIdle()
	}
	p.update()
	r.mu.Unlock()
	if !left {
		p.release()
	}
}

// drop closes the connection of a link. Caller must hold mu.
func (p *Place) drop(l *link) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		p.reg.running.Go(conn.Close) // it may wait for the network
	}
}

// release closes the transport, unless it is in use again.
func (p *Place) release() {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	p.reg.mu.Lock()
	inUse := false
	for l := range p.links() {
		inUse = inUse || l.conn != nil
	}
	p.reg.mu.Unlock()
	if !inUse {
		p.transport.close()
	}
}

// links returns all links of the place.
func (p *Place) links() func(yield func(*link) bool) {
	return func(yield func(*link) bool) {
		if !yield(&p.calls) {
			return
		}
		for i := range p.streams {
			if !yield(&p.streams[i]) {
				return
			}
		}
	}
}
