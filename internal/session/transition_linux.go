package session

import (
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/state"
)

// persist writes the session to the ledger. The caller must hold s.mu.
func (s *Session) persist() {
	if s.shared.cfg.Ledger == nil || s.remote != nil && s.terminated == nil || s.unreadable != "" && s.terminated == nil {
		return // a later daemon may be able to read the record as it is
	}
	r := s.persistedState()
	if s.terminated == nil {
		s.shared.ledger.Put(sessionPrefix+s.id, r.encode())
		return
	}
	s.shared.ledger.Put(endedPrefix+s.id, r.encode())
	s.shared.ledger.Erase(sessionPrefix + s.id) // the record above replaces it
}

// persistedState returns what the ledger has of the session. The caller must hold
// s.mu.
func (s *Session) persistedState() *sessionState {
	p := &s.params
	r := &sessionState{
		number: s.number, owner: s.owner, name: p.Name, tags: p.Tags, argv: p.Argv, cwd: p.Cwd, login: p.Login, tty: p.TTY,
		envKeys: s.envKeys, env: s.env, program: s.program,
		created: s.created, timeout: s.timeout, idleTTL: s.idleTTL,
		terminated: s.terminated, unheldSize: s.sizeBeforeLease, key: p.Key, sum: s.sum, gate: s.gate, loggedIn: s.login,
		parent: p.Parent, connected: p.WhileConnected, reconnect: s.reconnect, limits: s.limits, wallEnd: s.wallEnd,
	}
	r.isolation = s.isolation
	if s.remote != nil {
		r.execCount = s.described.ExecCount
	}
	if s.tree != nil { // nil in a remote session
		r.tree = s.tree.Number()
	}
	if s.proc != nil {
		r.pid = s.proc.PID()
	}
	if s.ending {
		r.ending = s.endReason
	}
	if s.term != nil {
		r.terminal = s.term.Slots()
	}
	if h := s.lease; h != nil {
		r.held = &leaseState{
			lease: h.id, holder: h.holder, since: h.since, until: h.until, ttl: h.ttl, answers: h.answers,
		}
	}
	return r
}

// persistTree writes to the ledger which process tree belongs to the session,
// before anything is started in it.
func (s *Session) persistTree() {
	if s.shared.cfg.Ledger != nil {
		r := treeState{s.tree.Number()}
		s.shared.ledger.Put(treePrefix+s.id, state.Encode(r.fields))
	}
}

// transitionTo changes the state of the session by the transition table and tells
// watchers. The caller must hold s.mu.
func (s *Session) transitionTo(next api.State) {
	before := s.state
	s.state = transition(s.state, next)
	e := api.SessionEvent{Type: api.EventState, State: next}
	if s.running != nil && next == api.StateRunning {
		e.ExecID, e.ExecLabel = s.running.ID(), s.running.Label()
	}
	switch {
	case next == api.StateTerminated && before == api.StateCreating:
		return // no client has seen it
	case next == api.StateTerminated:
		e.Type, e.Reason = api.EventDestroyed, s.terminated.Reason
	case before == api.StateCreating:
		e.Type = api.EventCreated
	}
	s.emit(e)
	if e.ExecID != "" {
		s.execStarted(s.running)
	}
}

// execStarted tells watchers that e, the running exec, begins. The caller must hold
// s.mu.
func (s *Session) execStarted(e *exec.Exec) {
	if s.term != nil {
		s.shared.prompts.add(s, e)
	}
	s.emit(api.SessionEvent{Type: api.EventExecStarted, ExecID: e.ID(), ExecLabel: e.Label()})
}

// execOver tells watchers that e, which was the running exec, has ended. The caller
// must hold s.mu.
func (s *Session) execOver(e *exec.Exec) {
	s.shared.prompts.remove(e)
	outcome, code := e.Ending()
	s.emit(api.SessionEvent{Type: api.EventExecEnded, ExecID: e.ID(), ExecLabel: e.Label(), Outcome: outcome, ExitCode: code})
}

// emit adds an event of the session. The caller must hold s.mu.
func (s *Session) emit(e api.SessionEvent) { s.shared.events.add(s.event(e)) }

// event returns an event with what every event of the session has.
func (s *Session) event(e api.SessionEvent) api.SessionEvent {
	e.SessionID, e.Name, e.Tags, e.Owner = s.id, s.params.Name, s.params.Tags, s.owner
	if e.At.IsZero() {
		e.At = api.Time{Time: time.Now()}
	}
	return e
}
