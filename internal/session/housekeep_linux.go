package session

import (
	"slices"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
)

// housekeep destroys sessions that were idle for too long and forgets what is past
// its retention. It sleeps until something is due, but at least for
// cfg.Housekeeping.
func (p *Pool) housekeep() {
	due := time.Now().Add(p.cfg.Housekeeping)
	timer := time.NewTimer(p.cfg.Housekeeping)
	defer timer.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-p.sweepRequests:
			if at := time.Now().Add(p.cfg.Housekeeping); at.Before(due) {
				due = at
				timer.Reset(p.cfg.Housekeeping)
			}
		case <-timer.C:
			now := time.Now()
			pause := max(p.sweep(now).Sub(now), p.cfg.Housekeeping)
			due = now.Add(pause)
			timer.Reset(pause)
		}
	}
}

// sweep does what is due, and returns when something may be due next. What is added
// to the pool later may be due sooner; see requestSweep.
func (p *Pool) sweep(now time.Time) (next time.Time) {
	p.history.awaitUnhurried()
	p.mu.Lock()
	all := slices.Clone(p.order)
	surplus := p.terminated - p.cfg.MaxTerminated
	p.mu.Unlock()
	// What ends from now on is retained at least that long.
	next = now.Add(min(p.cfg.SessionRetention, p.cfg.ExecRetention))
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
		if due := s.nextDue(now); due.Before(next) {
			next = due
		}
	}
	p.forget(past)
	return next
}

// nextDue returns when something of the session may be due, if nothing of it ends
// before.
func (s *Session) nextDue(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := now.Add(s.shared.cfg.ExecRetention)
	sooner := func(at time.Time) {
		if at.Before(due) {
			due = at
		}
	}
	for _, e := range s.finished {
		if ended := e.EndedAt(); !ended.IsZero() {
			sooner(ended.Add(s.shared.cfg.ExecRetention))
		}
	}
	switch {
	case s.state == api.StateTerminated:
		sooner(s.terminated.At.Add(s.shared.cfg.SessionRetention))
	case s.idleTTL > 0 && !s.idleSince().IsZero():
		sooner(s.idleSince().Add(s.idleTTL))
	case s.idleTTL > 0: // it is not idle before now
		sooner(now.Add(s.idleTTL))
	}
	return due
}

// forget drops terminated sessions with their execs and their output.
func (p *Pool) forget(past map[*Session]bool) {
	if len(past) == 0 {
		return
	}
	for s := range past {
		s.forgetExecs(time.Time{})
		for _, k := range p.usedKeys.drop(s.id) {
			p.ledger.Erase(k.ledgerKey())
		}
		if s.params.Key != "" {
			p.rememberKey(s.key())
		}
		p.ledger.Erase(endedPrefix + s.id)
		p.ledger.Erase(screenPrefix + s.id)
		if p.cfg.Forgotten != nil {
			p.cfg.Forgotten(s.id)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order = slices.DeleteFunc(p.order, func(s *Session) bool {
		if past[s] {
			delete(p.sessions, s.id)
			delete(p.keys, s.key())
			p.terminated--
		}
		return past[s]
	})
	p.updateExecQuota()
}

// retentionOver reports whether the session is terminated, and whether that was
// long enough ago to forget it.
func (s *Session) retentionOver(now time.Time, keep time.Duration) (ended, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != api.StateTerminated {
		return false, false
	}
	return true, now.Sub(s.terminated.At.Time) > keep
}

// idleFor reports whether the session has been idle for longer than its TTL.
func (s *Session) idleFor(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.idleSince()
	return !since.IsZero() && s.idleTTL > 0 && !s.ending && now.Sub(since) > s.idleTTL
}

// forgetExecs drops the finished execs that ended before then; the zero time drops
// all.
func (s *Session) forgetExecs(then time.Time) {
	s.mu.Lock()
	var dropped []*exec.Exec
	s.finished = slices.DeleteFunc(s.finished, func(e *exec.Exec) bool {
		old := then.IsZero() || e.EndedBefore(then)
		if old {
			dropped = append(dropped, e)
		}
		return old
	})
	if then.IsZero() { // with the session: its keys can't be used any more
		s.keys = nil
	} else {
		s.releaseKeys(dropped)
	}
	s.mu.Unlock()
	s.dropExecs(dropped)
}
