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
type several struct {
	connect []func(context.Context) (carrier, error)

	mu     sync.Mutex
	now    int     // which of them is in use
	in     carrier // nil: none yet, or it was lost
	closed bool
}

func dialSeveral(ctx context.Context, addr string, opts Options) (carrier, error) {
	s := &several{}
	for _, a := range append([]string{addr}, opts.Also...) {
		if strings.HasPrefix(a, "stdio:") {
			return nil, errors.New("address " + a + ": a daemon that is started for the client can't be one of several")
		}
		s.connect = append(s.connect, func(ctx context.Context) (carrier, error) { return dial(ctx, a, opts) })
	}
	_, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// current returns the carrier in use, and connects to the first address that
// answers if there is none.
func (s *several) current(ctx context.Context) (carrier, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.in != nil {
		return s.in, nil
	}
	var all error
	for range s.connect {
		c, err := s.connect[s.now](ctx)
		if err == nil {
			s.in = c
			return c, nil
		}
		all = errors.Join(all, err)
		s.now = (s.now + 1) % len(s.connect)
	}
	return nil, all
}

// with does something with the carrier in use. If that is lost, the next is used
// from then on.
func (s *several) with(ctx context.Context, do func(carrier) error) error {
	c, err := s.current(ctx)
	if err != nil {
		return err
	}
	if err = do(c); lost(err) && putOff(err) == 0 {
		s.leave(c)
	}
	return err
}

// leave goes on to the next address, unless another call has.
func (s *several) leave(c carrier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in == c {
		s.in, s.now = nil, (s.now+1)%len(s.connect)
		c.close()
	}
}

func (s *several) call(ctx context.Context, method string, params, result any) error {
	return s.with(ctx, func(c carrier) error { return c.call(ctx, method, params, result) })
}

func (s *several) stream(ctx context.Context, p api.ExecStreamParams) (id string, f *feed[api.Chunk], err error) {
	err = s.with(ctx, func(c carrier) (err error) {
		id, f, err = c.stream(ctx, p)
		return err
	})
	return id, f, err
}

func (s *several) attach(ctx context.Context, execID string, from int64) (f *feed[api.Chunk], err error) {
	err = s.with(ctx, func(c carrier) (err error) {
		f, err = c.attach(ctx, execID, from)
		return err
	})
	return f, err
}

func (s *several) watch(ctx context.Context, p api.SessionWatchParams) (f *feed[api.SessionEvent], err error) {
	err = s.with(ctx, func(c carrier) (err error) {
		f, err = c.watch(ctx, p)
		return err
	})
	return f, err
}

func (s *several) redials() bool { return true }

func (s *several) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.in != nil {
		s.in.close()
	}
}
