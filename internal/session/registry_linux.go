package session

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
)

// Pool owns all sessions.
//
// Lock order: Session.sizeMu, Pool.mu, then Session.mu, then the locks of the
// terminal, then those of execs. The locks of shared are taken last. None is held
// across a system call that can block, nor while a shell runs.
type Pool struct {
	*shared

	mu         sync.Mutex
	closing    bool
	sessions   map[string]*Session   // live and terminated, by id
	order      []*Session            // the same, oldest first
	keys       map[usedKey]*Session  // those that were created with a key
	live       int                   // creating, idle or running
	terminated int                   // retained after their end
	children   map[string][]*Session // by live parent, the sessions that end with it
	history    history               // of sessions that ended before this process took over

	sessionsTotal atomic.Int64
	numbers       atomic.Int64  // of sessions, in the order of creation
	stop          chan struct{} // ends the housekeeping
}

// session finds a session, live or terminated. One that is missing may have ended
// before this process took over.
func (p *Pool) session(id string) (*Session, error) {
	look := func() *Session {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.sessions[id]
	}
	s := look()
	if s == nil {
		p.history.await()
		s = look()
	}
	if s == nil {
		return nil, errNoSession()
	}
	if s.remote != nil && s.currentState() != api.StateTerminated {
		// Its calls do not come here, unless it is just being removed.
		return nil, api.Errorf(api.CodeRuntimeUnavailable, "the confined session is ending").With("session_id", id).
			WithHint("repeat the call")
	}
	return s, nil
}

func errNoSession() *api.Error {
	return api.Errorf(api.CodeSessionNotFound, "no session with this id").
		WithHint("session.list shows the sessions; session.create makes a new one")
}

// exec finds an exec of any session. One that is missing may belong to a session
// that ended before this process took over.
func (p *Pool) exec(id string) (*Session, *exec.Exec, error) {
	ref, ok := p.execs.get(id)
	if !ok {
		p.history.await()
		ref, ok = p.execs.get(id)
	}
	if !ok {
		return nil, nil, api.Errorf(api.CodeExecNotFound, "no exec with this id; it may have expired").
			WithHint("exec.list shows a session's execs")
	}
	return ref.session, ref.exec, nil
}

// addSession adds a session to the list. The caller must hold mu.
func (p *Pool) addSession(s *Session) {
	p.sessions[s.id] = s
	p.order = append(p.order, s)
	if s.params.Key != "" {
		p.keys[s.key()] = s
	}
}

// addChild adds a session to those that end with its parent. The caller must hold
// p.mu.
func (p *Pool) addChild(s *Session) {
	if id := s.params.Parent; id != "" {
		p.children[id] = append(p.children[id], s)
	}
}

// removeChild removes an ended session from its parent's. The caller must hold
// p.mu.
func (p *Pool) removeChild(s *Session) {
	id := s.params.Parent
	if id == "" {
		return
	}
	left := slices.DeleteFunc(p.children[id], func(c *Session) bool { return c == s })
	if len(left) == 0 {
		delete(p.children, id)
	} else {
		p.children[id] = left
	}
}

// childrenOf implements registry.
func (p *Pool) childrenOf(id string) []*Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.children[id])
}

// sessionEnded implements registry.
func (p *Pool) sessionEnded(s *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeChild(s)
	p.live--
	p.terminated++
	if p.terminated > p.cfg.MaxTerminated {
		p.requestSweep()
	}
}

// maxRetained bounds the finished execs of all sessions together. One takes about a
// kilobyte without its output; so ten thousand busy sessions retain ten each, and a
// hundred retain MaxExecs.
const maxRetained = 100_000

// updateExecQuota sets how many finished execs each session retains. The caller
// must hold mu.
func (p *Pool) updateExecQuota() {
	p.execQuota.Store(int64(max(1, min(p.cfg.MaxExecs, maxRetained/max(1, len(p.order))))))
}
