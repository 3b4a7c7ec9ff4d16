package session

import (
	"slices"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// housekeep destroys sessions that were idle for too long and forgets what is
// past its retention.
func (p *Pool) housekeep() {
	tick := time.NewTicker(p.cfg.Housekeeping)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-tick.C:
			p.sweep(now)
		}
	}
}

// maxRetained bounds the finished execs of all sessions together. One costs
// about a kilobyte without its output; so ten thousand busy sessions keep ten
// each, and a hundred keep as many as MaxExecs says.
const maxRetained = 100_000

func (p *Pool) sweep(now time.Time) {
	p.history.Wait()
	p.mu.Lock()
	all := slices.Clone(p.order)
	surplus := p.ended - p.cfg.MaxTerminated
	p.mu.Unlock()
	p.keepExecs.Store(int64(max(1, min(p.cfg.MaxExecs, maxRetained/max(1, len(all))))))
	past := map[*Session]bool{}
	for _, s := range all { // oldest first
		ended, over := s.retentionOver(now, p.cfg.SessionRetention)
		if ended && (over || surplus > 0) {
			surplus--
			past[s] = true
			continue
		}
		s.forgetExecs(now.Add(-p.cfg.ExecRetention))
		if s.idleFor(now) {
			p.cfg.Log.Info("session was idle for too long", "session", s.id)
			s.destroy(api.ReasonIdle, false)
		}
	}
	p.forget(past)
}

// forget drops terminated sessions with their execs and their output.
func (p *Pool) forget(past map[*Session]bool) {
	if len(past) == 0 {
		return
	}
	for s := range past {
		s.forgetExecs(time.Time{})
		p.erase(endedKey + s.id)
		p.erase(screenKey + s.id)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order = slices.DeleteFunc(p.order, func(s *Session) bool {
		if past[s] {
			delete(p.sessions, s.id)
			p.ended--
		}
		return past[s]
	})
}

// retentionOver says whether the session is terminated, and for long enough to
// be forgotten.
func (s *Session) retentionOver(now time.Time, keep time.Duration) (ended, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != api.StateTerminated {
		return false, false
	}
	return true, now.Sub(s.terminated.At.Time) > keep
}

// idleFor says whether the session has outlived its idle TTL.
func (s *Session) idleFor(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == api.StateIdle && s.idleTTL > 0 && !s.ending && now.Sub(s.active) > s.idleTTL
}

// forgetExecs drops the finished execs that ended before then; the zero time
// drops all.
func (s *Session) forgetExecs(then time.Time) {
	s.mu.Lock()
	var dropped []*execution
	s.finished = slices.DeleteFunc(s.finished, func(e *execution) bool {
		old := then.IsZero() || e.endedBefore(then)
		if old {
			dropped = append(dropped, e)
		}
		return old
	})
	s.unkey(dropped)
	s.mu.Unlock()
	s.pool.forgetExecs(dropped)
}

// unkey forgets whose the keys of dropped execs were, but not that they were
// used. Under s.mu.
func (s *Session) unkey(dropped []*execution) {
	for _, e := range dropped {
		if e.key != "" {
			delete(s.keys, e.key)
			s.pool.spend(spentKey{s.id, e.key})
		}
	}
}

func (p *Pool) forgetExecs(dropped []*execution) {
	if len(dropped) == 0 {
		return
	}
	p.mu.Lock()
	for _, e := range dropped {
		delete(p.execs, e.id)
	}
	p.mu.Unlock()
	for _, e := range dropped {
		if t := e.session.term; t != nil {
			t.forgets(e)
		}
		e.forget()
		e.journal.Release()
	}
}
