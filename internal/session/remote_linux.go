package session

import (
	"context"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/shell"
)

// RemoteState is what a later process needs to list a remote session again.
type RemoteState struct {
	Number int64 // in the order of creation
	Owner  string
	Key    string
	Sum    uint32      // checksum of the params, if it has a key
	Last   api.Session // as it was last known
}

// CreateRemote is Create for a session that start runs elsewhere. start returns it
// as it is when it can be used; if it fails, nothing is left behind.
func (p *Pool) CreateRemote(ctx context.Context, params api.SessionCreateParams, owner string,
	start func(RemoteState) (Remote, api.Session, error), listed func(*Listed),
) (*api.Session, error) {
	if err := checkKey(params.Key); err != nil {
		return nil, err
	}
	if err := checkLifetime(ctx, &params); err != nil {
		return nil, err
	}
	if err := checkNames(params.Name, params.Tags); err != nil {
		return nil, err
	}
	p.history.await() // new sessions are numbered after all earlier ones
	for {
		s, err := p.findByKey(ctx, owner, params)
		if err == nil && s == nil {
			s = p.newRemote(RemoteState{Number: p.numbers.Add(1), Owner: owner, Key: params.Key})
			if params.Key != "" {
				s.sum = sumOf(params)
			}
			var first *Session
			if first, err = p.reserve(s); err == nil && first != s {
				continue // another call with the same key was faster
			}
			if err == nil {
				err = p.startRemote(s, start, listed)
			}
		}
		if err != nil {
			return nil, err
		}
		snapshot := s.snapshot()
		return &snapshot, nil
	}
}

func (p *Pool) newRemote(r RemoteState) *Session {
	return &Session{
		shared: p.shared, id: r.Last.SessionID, number: r.Number, owner: r.Owner, sum: r.Sum, params: api.SessionCreateParams{Key: r.Key},
		state: api.StateCreating, cancelCreation: func() {},
		destroyed: make(chan struct{}), forceKill: make(chan struct{}), ready: make(chan struct{}),
	}
}

// reserve takes the key and the place of a session among the live ones, before its
// id is known, or returns the one that was created with its key.
func (p *Pool) reserve(s *Session) (first *Session, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.params.Key != "" {
		if first, err := p.lookupKey(s.key(), s.sum); first != nil || err != nil {
			return first, err
		}
	}
	if err := p.errIfFull(); err != nil {
		return nil, err
	}
	p.live++
	if s.params.Key != "" {
		p.keys[s.key()] = s
	}
	return s, nil
}

// startRemote starts a session that was reserved, and lists it.
func (p *Pool) startRemote(s *Session, start func(RemoteState) (Remote, api.Session, error), listed func(*Listed)) error {
	defer close(s.ready)
	remote, desc, err := start(RemoteState{Number: s.number, Owner: s.owner, Key: s.params.Key, Sum: s.sum})
	if err != nil {
		s.createFailed = true
		p.mu.Lock()
		delete(p.keys, s.key())
		p.live--
		p.mu.Unlock()
		return err
	}
	p.list(s, remote, desc)
	p.sessionsTotal.Add(1)
	p.cfg.Log.Info("session created", "event", "session_created", "session", s.id, "owner", s.owner, "confined", true)
	listed(&Listed{s})
	p.events.add(s.event(api.SessionEvent{Type: api.EventCreated, State: desc.State}))
	return nil
}

// list adds a session that was reserved to the list.
func (p *Pool) list(s *Session, remote Remote, desc api.Session) {
	s.id, s.remote, s.created, s.active = desc.SessionID, remote, desc.CreatedAt.Time, desc.LastActivityAt.Time
	s.params.Name, s.params.Tags, s.params.TTY, s.params.Argv = desc.Name, desc.Tags, desc.TTY, desc.Argv
	s.params.WhileConnected, s.program, s.envKeys = desc.WhileConnected, shell.Program{Path: desc.Shell}, desc.EnvKeys
	s.timeout = time.Duration(desc.TimeoutMS) * time.Millisecond
	s.limits, s.isolation = desc.Limits, desc.Isolation
	s.described, s.state = desc, desc.State
	p.mu.Lock()
	p.addSession(s)
	p.updateExecQuota()
	p.mu.Unlock()
}

// AdoptRemote lists a live remote session of an earlier process. It returns nil if
// the session has ended. Call it before Adopt.
func (p *Pool) AdoptRemote(r RemoteState, remote Remote) *Listed {
	if _, ended := p.cfg.Ledger.Get(endedPrefix + r.Last.SessionID); ended {
		return nil
	}
	s := p.newRemote(r)
	close(s.ready)
	p.numbers.Store(max(p.numbers.Load(), r.Number))
	p.mu.Lock()
	p.live++
	p.mu.Unlock()
	p.list(s, remote, r.Last)
	return &Listed{s}
}
