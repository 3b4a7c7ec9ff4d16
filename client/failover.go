package client

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/terminal-runtime/trl/api"
)

// failoverTransport is the transport of a client with more than one address. It
// uses one at a time, and switches to the next when that cannot be reached.
type failoverTransport struct {
	connect []func(context.Context) (daemonTransport, error)

	mu         sync.Mutex
	index      int             // of the address in use
	active     daemonTransport // nil: not connected yet, or lost
	connecting chan struct{}   // closed when the current connection attempt ends; nil: none in progress
	closed     bool
}

func dialFailover(ctx context.Context, addr string, opts Options) (daemonTransport, error) {
	s := &failoverTransport{}
	for _, a := range append([]string{addr}, opts.Also...) {
		if strings.HasPrefix(a, "stdio:") {
			return nil, errors.New("address " + a + ": a stdio daemon cannot be one of several addresses")
		}
		s.connect = append(s.connect, func(ctx context.Context) (daemonTransport, error) { return dial(ctx, a, opts) })
	}
	_, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// current returns the transport in use. If there is none, one caller connects to
// the first address that answers, without holding mu, and the others wait for it
// as long as their own contexts allow.
func (s *failoverTransport) current(ctx context.Context) (daemonTransport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed {
			return nil, ErrClosed
		}
		if s.active != nil {
			return s.active, nil
		}
		if s.connecting == nil {
			return s.connectLocked(ctx)
		}
		other := s.connecting
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// connectLocked tries each address once. Caller must hold mu, which is released
// while an address is tried.
func (s *failoverTransport) connectLocked(ctx context.Context) (daemonTransport, error) {
	done := make(chan struct{})
	s.connecting = done
	defer func() {
		s.connecting = nil
		close(done)
	}()
	var all error
	for range s.connect {
		connect := s.connect[s.index]
		s.mu.Unlock()
		c, err := connect(ctx)
		s.mu.Lock()
		if s.closed {
			if err == nil {
				c.close()
			}
			return nil, ErrClosed
		}
		if err == nil {
			s.active = c
			return c, nil
		}
		all = errors.Join(all, err)
		s.index = (s.index + 1) % len(s.connect)
	}
	return nil, all
}

// with calls do with the transport in use. If that is lost, later calls use the
// next one.
func (s *failoverTransport) with(ctx context.Context, do func(daemonTransport) error) error {
	c, err := s.current(ctx)
	if err != nil {
		return err
	}
	if err = do(c); lost(err) && retryAfter(err) == 0 {
		s.advance(c)
	}
	return err
}

// advance switches to the next address, unless another call already has.
func (s *failoverTransport) advance(c daemonTransport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active == c {
		s.active, s.index = nil, (s.index+1)%len(s.connect)
		c.close()
	}
}

func (s *failoverTransport) call(ctx context.Context, method string, params, result any) error {
	return s.with(ctx, func(c daemonTransport) error { return c.call(ctx, method, params, result) })
}

func (s *failoverTransport) stream(ctx context.Context, p api.ExecStreamParams) (id string, f *feed[api.Chunk], err error) {
	err = s.with(ctx, func(c daemonTransport) (err error) {
		id, f, err = c.stream(ctx, p)
		return err
	})
	return id, f, err
}

func (s *failoverTransport) attach(ctx context.Context, execID string, from int64) (f *feed[api.Chunk], err error) {
	err = s.with(ctx, func(c daemonTransport) (err error) {
		f, err = c.attach(ctx, execID, from)
		return err
	})
	return f, err
}

func (s *failoverTransport) watch(ctx context.Context, p api.SessionWatchParams) (f *feed[api.SessionEvent], err error) {
	err = s.with(ctx, func(c daemonTransport) (err error) {
		f, err = c.watch(ctx, p)
		return err
	})
	return f, err
}

func (s *failoverTransport) canRedial() bool { return true }

func (s *failoverTransport) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.active != nil {
		s.active.close()
	}
}
