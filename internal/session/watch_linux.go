package session

import (
	"context"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// maxEvents is how many events are kept for watchers that lag: each of ten
// thousand sessions can come or go while one is being told of another. They
// are about a megabyte.
const maxEvents = 8192

// events is what has lately happened to sessions. As with output, watchers
// pull: one that does not take its events delays nobody, and is told how many
// it missed.
type events struct {
	mu     sync.Mutex
	ring   []api.SessionEvent // event n is at n % maxEvents
	next   int64              // the number of the next event
	wake   chan struct{}      // closed by the next event; nil: nobody waits
	closed bool
}

// add may be called with any lock of the package held.
func (ev *events) add(e api.SessionEvent) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if len(ev.ring) < maxEvents {
		ev.ring = append(ev.ring, e)
	} else {
		ev.ring[ev.next%maxEvents] = e
	}
	ev.next++
	ev.broadcast()
}

// close ends the watching, after what there is.
func (ev *events) close() {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	ev.closed = true
	ev.broadcast()
}

func (ev *events) broadcast() {
	if ev.wake != nil {
		close(ev.wake)
		ev.wake = nil
	}
}

func (ev *events) now() int64 {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	return ev.next
}

// from returns event n or the one after it that is still kept, and its number.
// If there is none yet it returns what to wait for; nil: there will be none.
func (ev *events) from(n int64) (e api.SessionEvent, number int64, wake <-chan struct{}) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if n < ev.next {
		number = max(n, ev.next-maxEvents)
		return ev.ring[number%maxEvents], number, nil
	}
	if ev.closed {
		return e, -1, nil
	}
	if ev.wake == nil {
		ev.wake = make(chan struct{})
	}
	return e, -1, ev.wake
}

// Watch tells what happens to one session, or to all, from now on. The watch
// of one session ends with it.
func (p *Pool) Watch(ctx context.Context, params api.SessionWatchParams) (*api.SessionWatchResult, api.Feed, error) {
	at := p.events.now() // before the look: a session that ends now is told, or refused
	follow := func() (leave func()) { return func() {} }
	if params.SessionID != "" {
		s, err := p.session(params.SessionID)
		if err != nil {
			return nil, nil, err
		}
		if err := s.errIfTerminated(); err != nil {
			return nil, nil, err
		}
		s.trackConnection(ctx)
		follow = s.addReader
	}
	id := newID("st-")
	feed := func(ctx context.Context, send func(api.Notification) error) error {
		leave := follow()
		defer leave()
		return p.events.feed(ctx, id, params.SessionID, at, send)
	}
	return &api.SessionWatchResult{StreamID: id}, feed, nil
}

func (ev *events) feed(ctx context.Context, id, session string, at int64, send func(api.Notification) error) error {
	for {
		e, number, wake := ev.from(at)
		if number < 0 {
			if wake == nil {
				return nil
			}
			select {
			case <-wake:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if number > at {
			gap := &api.SessionEvent{StreamID: id, Type: api.EventGap, At: e.At, Missed: number - at}
			if err := send(gap); err != nil {
				return err
			}
		}
		at = number + 1
		if session != "" && e.SessionID != session {
			continue
		}
		e.StreamID = id
		if err := send(&e); err != nil {
			return err
		}
		if session != "" && e.Type == api.EventDestroyed {
			return nil
		}
	}
}

// become moves the session to its next state, by the transition table, and
// tells the watchers. Under s.mu.
func (s *Session) transitionTo(next api.State) {
	before := s.state
	s.state = transition(s.state, next)
	e := api.SessionEvent{Type: api.EventState, State: next}
	if s.running != nil && next == api.StateRunning {
		e.ExecID = s.running.id
	}
	switch {
	case next == api.StateTerminated && before == api.StateCreating:
		return // it never was one
	case next == api.StateTerminated:
		e.Type, e.Reason = api.EventDestroyed, s.terminated.Reason
	case before == api.StateCreating:
		e.Type = api.EventCreated
	}
	s.emit(e)
}

// tell adds an event of the session's. Under s.mu.
func (s *Session) emit(e api.SessionEvent) {
	e.SessionID, e.Name, e.Tags, e.Owner, e.At = s.id, s.params.Name, s.params.Tags, s.owner, api.Time{Time: time.Now()}
	s.pool.events.add(e)
}
