package session

import (
	"context"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
)

// Watch sends the events of one session, or of all, from now on. The watch of one
// session ends with it.
func (p *Pool) Watch(ctx context.Context, params api.SessionWatchParams) (*api.SessionWatchResult, notify.Feed, error) {
	at := p.events.now() // before the check: the end of a session is sent, or refused
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
	feed := func(ctx context.Context, send func(notify.Notification) error) error {
		leave := follow()
		defer leave()
		return p.events.feed(ctx, id, params.SessionID, at, send)
	}
	return &api.SessionWatchResult{StreamID: id}, feed, nil
}

func (ev *events) feed(ctx context.Context, id, session string, at int64, send func(notify.Notification) error) error {
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
