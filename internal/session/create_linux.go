package session

import (
	"context"
	"slices"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/exec"
)

// Create starts a session and returns when it can be used. If it can't be started,
// nothing is left behind. If its owner has created a session with the same key
// before, that one is returned as it is now.
func (p *Pool) Create(ctx context.Context, params api.SessionCreateParams, owner string) (*api.Session, error) {
	if err := checkKey(params.Key); err != nil {
		return nil, err
	}
	if err := checkLifetime(ctx, &params); err != nil {
		return nil, err
	}
	p.history.await() // new sessions are numbered after all earlier ones
	s, err := p.findOrCreate(ctx, owner, params)
	if err != nil {
		return nil, err
	}
	s.trackConnection(ctx)
	snapshot := s.snapshot()
	return &snapshot, nil
}

// findOrCreate returns the session that was created with the same key, or creates
// one.
func (p *Pool) findOrCreate(ctx context.Context, owner string, params api.SessionCreateParams) (*Session, error) {
	s, err := p.findByKey(ctx, owner, params)
	if err == nil && s == nil {
		s, err = p.create(ctx, owner, params)
	}
	return s, err
}

// findByKey returns the session that its owner created with the same key, once it
// is ready, or nil if there is none.
func (p *Pool) findByKey(ctx context.Context, owner string, params api.SessionCreateParams) (*Session, error) {
	for params.Key != "" {
		p.mu.Lock()
		first, err := p.lookupKey(creationKey(owner, params.Key), sumOf(params))
		p.mu.Unlock()
		if first == nil || err != nil {
			return nil, err
		}
		select {
		case <-first.ready:
		case <-ctx.Done():
			return nil, arrival.ErrCallerLeft(ctx)
		}
		if !first.createFailed {
			return first, nil
		} // else nothing of it is left, and its key is free
	}
	return nil, nil
}

// create creates a session, or returns the one that was created with its key
// meanwhile.
func (p *Pool) create(ctx context.Context, owner string, params api.SessionCreateParams) (*Session, error) {
	s, err := newSession(p.shared, p.numbers.Add(1), params, owner)
	if err != nil {
		return nil, err
	}
	if first, err := p.add(s); err != nil {
		return nil, err
	} else if first != s {
		return p.findOrCreate(ctx, owner, params)
	}
	defer close(s.ready)
	if err := s.start(); err != nil {
		s.createFailed = true
		p.removeFailed(s)
		return nil, err
	}
	return p.created(s)
}

// created is called when a session has started. The session may have ended since, as
// that of a short command does: it is returned nevertheless.
func (p *Pool) created(s *Session) (*Session, error) {
	p.sessionsTotal.Add(1)
	if s.destroyedInCreation {
		return nil, errDestroyedInCreation().With("session_id", s.id)
	}
	p.cfg.Log.Info("session created", "event", "session_created", "session", s.id, "owner", s.owner, "pid", s.currentPID())
	return s, nil
}

// lookupKey returns the session that was created with a key, or nil if there is
// none. The caller must hold mu.
func (p *Pool) lookupKey(key usedKey, sum uint32) (*Session, error) {
	first := p.keys[key]
	switch {
	case first != nil && first.sum != sum:
		return nil, exec.ErrOtherParams()
	case first == nil && p.usedKeys.has(key):
		return nil, api.Errorf(api.CodeSessionNotFound, "a session was created with this key, and is no longer kept").
			WithHint("send another key to create a new session")
	}
	return first, nil
}

// add adds s to the pool's sessions, or returns the one that was created with its
// key.
func (p *Pool) add(s *Session) (first *Session, err error) {
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
	if err := p.checkParent(s); err != nil {
		return nil, err
	}
	p.live++
	p.addSession(s)
	p.addChild(s)
	p.updateExecQuota()
	if s.idleTTL > 0 {
		p.requestSweep()
	}
	return s, nil
}

// errIfFull returns an error if no session can be added. The caller must hold mu.
func (p *Pool) errIfFull() error {
	if p.closing {
		return errShuttingDown()
	}
	if p.live >= p.cfg.MaxSessions {
		return api.Errorf(api.CodeMaxSessions, "the pool is full: %d sessions are alive", p.live).
			With("max_sessions", p.cfg.MaxSessions).
			WithHint("destroy a session that is no longer needed (session.list shows them), or raise max_sessions")
	}
	return nil
}

// checkParent returns an error if the parent of a new session can't be one. The
// caller must hold p.mu, so that a parent which ends knows all its children.
func (p *Pool) checkParent(s *Session) error {
	id := s.params.Parent
	if id == "" {
		return nil
	}
	parent := p.sessions[id]
	if parent == nil {
		return api.AsError(errNoSession()).With("field", "parent")
	}
	parent.mu.Lock()
	defer parent.mu.Unlock()
	switch {
	case parent.ending || parent.state == api.StateTerminated:
		return parent.errTerminated().With("field", "parent")
	case parent.state == api.StateCreating:
		return parent.errCreating().With("field", "parent")
	}
	return nil
}

// removeFailed removes a session that could not be started.
func (p *Pool) removeFailed(s *Session) {
	p.mu.Lock()
	delete(p.sessions, s.id)
	delete(p.keys, s.key())
	p.removeChild(s)
	if i := slices.Index(p.order, s); i >= 0 {
		p.order = slices.Delete(p.order, i, i+1)
	}
	p.updateExecQuota()
	p.live--
	p.mu.Unlock()
}

// List returns the sessions that match, oldest first.
func (p *Pool) List(ctx context.Context, params api.SessionListParams) (*api.SessionListResult, error) {
	switch params.State {
	case "", api.StateCreating, api.StateIdle, api.StateRunning, api.StateTerminated:
	default:
		return nil, api.Errorf(api.CodeInvalidParams, "state is not a session state").With("field", "state").
			WithHint("use creating, idle, running or terminated")
	}
	p.history.await()
	p.mu.Lock()
	all := slices.Clone(p.order)
	p.mu.Unlock()
	refresh(ctx, all)
	out := &api.SessionListResult{Sessions: make([]api.Session, 0, len(all))}
	for _, s := range all {
		if params.Tag != "" && !slices.Contains(s.params.Tags, params.Tag) ||
			params.Runtime != "" && params.Runtime != api.RuntimeHost {
			continue
		}
		state := s.currentState()
		if params.State != "" && params.State != state || params.Alive && state == api.StateTerminated {
			continue
		}
		out.Sessions = append(out.Sessions, s.snapshot())
	}
	return out, nil
}

// Info returns a session and what runs in it. It answers for a terminated session
// until its retention ends.
func (p *Pool) Info(_ context.Context, params api.SessionParams) (*api.SessionInfo, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	return s.info(), nil
}

// Destroy ends a session and returns when its process tree is verified empty.
func (p *Pool) Destroy(ctx context.Context, params api.SessionDestroyParams) (*api.SessionDestroyResult, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	if err := s.errIfTerminated(); err != nil {
		return nil, err
	}
	done := s.destroy(api.ReasonDestroyed, params.Force)
	select {
	case <-done:
	case <-ctx.Done():
		return nil, api.Errorf(api.CodeInternal, "the caller stopped waiting: %w", ctx.Err())
	}
	return &api.SessionDestroyResult{SessionID: s.id, State: api.StateTerminated, Survivors: s.survivors}, nil
}
