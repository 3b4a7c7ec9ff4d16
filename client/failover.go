package client

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/terminal-runtime/trl/api"
)

// several is the carrier of a client with more than one address. It uses one at a
// time, and goes on to the next when that can't be reached.
type failoverTransport struct {
	connect []func(context.Context) (daemonTransport, error)

	mu     sync.Mutex
	index  int             // which of them is in use
	active daemonTransport // nil: none yet, or it was lost
	closed bool
}

func dialFailover(ctx context.Context, addr string, opts Options) (daemonTransport, error) {
	s := &failoverTransport{}
	for _, a := range append([]string{addr}, opts.Also...) {
		if strings.HasPrefix(a, "stdio:") {
			return nil, errors.New("address " + a + ": a daemon that is started for the client can't be one of several")
		}
		s.connect = append(s.connect, func(ctx context.Context) (daemonTransport, error) { return dial(ctx, a, opts) })
	}
	_, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// current returns the carrier in use, and connects to the first address that
// answers if there is none.
func (s *failoverTransport) current(ctx context.Context) (daemonTransport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.active != nil {
		return s.active, nil
	}
	var all error
	for range s.connect {
		c, err := s.connect[s.index](ctx)
		if err == nil {
			s.active = c
			return c, nil
		}
		all = errors.Join(all, err)
		s.index = (s.index + 1) % len(s.connect)
	}
	return nil, all
}

// with does something with the carrier in use. If that is lost, the next is used
// from then on.
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

// leave goes on to the next address, unless another call has.
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
