package session

import (
	"context"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// Listed is a remote session as the pool lists it.
type Listed struct{ session *Session }

// Update records the session as it is now.
func (l *Listed) Update(desc api.Session) {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != api.StateTerminated && desc.State != api.StateTerminated {
		s.described, s.state, s.active = desc, desc.State, desc.LastActivityAt.Time
	}
}

// Event passes an event of the session on to watchers. The end of the session is
// reported by Ended.
func (l *Listed) Event(e api.SessionEvent) {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == api.StateTerminated {
		return
	}
	if e.Type == api.EventState {
		s.state = e.State
		s.described.State, s.described.ExecID, s.described.ExecLabel = e.State, e.ExecID, e.ExecLabel
	}
	e.StreamID = ""
	s.emit(e)
}

// Ended records that the session has ended. It is retained as any other. Only the
// first call counts.
func (l *Listed) Ended(last api.Session) {
	s := l.session
	s.mu.Lock()
	if s.state == api.StateTerminated {
		s.mu.Unlock()
		return
	}
	last.State, last.PID, last.Cwd, last.Held, last.Ending = api.StateTerminated, 0, "", nil, false
	if last.Terminated == nil {
		last.Terminated = &api.Terminated{At: api.Time{Time: time.Now()}, Reason: api.ReasonLost}
	}
	s.described, s.terminated, s.ending = last, last.Terminated, true
	s.transitionTo(api.StateTerminated)
	s.persist()
	s.mu.Unlock()
	s.shared.registry.sessionEnded(s)
	s.shared.requestSweep()
	if o := s.shared.cfg.Observer; o != nil {
		o.SessionEnded(0)
	}
	s.shared.cfg.Log.Info("session ended", "event", "session_ended", "session", s.id, "owner", s.owner, "reason", last.Terminated.Reason, "survivors", 0)
	close(s.destroyed)
}

// endRemote ends a remote session, once.
func (s *Session) endRemote(why string, force bool) <-chan struct{} {
	s.mu.Lock()
	first := !s.ending
	s.ending, s.described.Ending = true, s.state != api.StateTerminated
	if force && !s.forceKilled {
		s.forceKilled = true
		close(s.forceKill)
	}
	s.mu.Unlock()
	if first {
		s.shared.spawn(func() { s.remote.End(why, s.forceKill) })
	}
	return s.destroyed
}

// refreshing is how many remote sessions are asked at once: the TRL of each takes a
// fraction of a millisecond, and there are fewer processors than this.
const refreshing = 16

// refresh asks for the remote sessions whose description may have changed.
func refresh(ctx context.Context, all []*Session) {
	var asked sync.WaitGroup
	slots := make(chan struct{}, refreshing)
	for _, s := range all {
		if s.remote == nil || s.currentState() == api.StateTerminated {
			continue
		}
		if desc, known := s.remote.Known(); known {
			(&Listed{s}).Update(desc)
			continue
		}
		asked.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			(&Listed{s}).Update(s.remote.Describe(ctx))
		})
	}
	asked.Wait()
}
