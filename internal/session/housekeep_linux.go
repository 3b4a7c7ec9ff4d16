package session

import (
	"slices"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// housekeep destroys sessions that were idle for too long and forgets what is
// past its retention. It sleeps until the next of them is due, and then for as
// long as Housekeeping at the least.
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

// sweepSooner has the housekeeping look again: something may be due before it
// would.
func (p *Pool) requestSweep() {
	select {
	case p.sweepRequests <- struct{}{}:
	default: // it is about to
	}
}

// maxRetained bounds the finished execs of all sessions together. One costs
// about a kilobyte without its output; so ten thousand busy sessions keep ten
// each, and a hundred keep as many as MaxExecs says.
const maxRetained = 100_000

// sweep does what is due, and returns when something may be due next. What is
// added to the pool later may be due sooner; see sweepSooner.
func (p *Pool) sweep(now time.Time) (next time.Time) {
	p.history.awaitUnhurried()
	p.mu.Lock()
	all := slices.Clone(p.order)
	surplus := p.terminated - p.cfg.MaxTerminated
	p.mu.Unlock()
	// What ends from now on is kept for as long.
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

// shareExecs sets how many finished execs each session keeps. The caller must
// hold mu.
func (p *Pool) updateExecQuota() {
	p.execQuota.Store(int64(max(1, min(p.cfg.MaxExecs, maxRetained/max(1, len(p.order))))))
}

// nextDue is when something of the session may be due that has not ended since
// now.
func (s *Session) nextDue(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := now.Add(s.pool.cfg.ExecRetention)
	sooner := func(at time.Time) {
		if at.Before(due) {
			due = at
		}
	}
	for _, e := range s.finished {
		if ended := e.endedAt(); !ended.IsZero() {
			sooner(ended.Add(s.pool.cfg.ExecRetention))
		}
	}
	switch {
	case s.state == api.StateTerminated:
		sooner(s.terminated.At.Add(s.pool.cfg.SessionRetention))
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
			p.erase(k.ledgerKey())
		}
		if s.params.Key != "" {
			p.rememberKey(s.key())
		}
		p.erase(endedPrefix + s.id)
		p.erase(screenPrefix + s.id)
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
	since := s.idleSince()
	return !since.IsZero() && s.idleTTL > 0 && !s.ending && now.Sub(since) > s.idleTTL
}

// forgetExecs drops the finished execs that ended before then; the zero time
// drops all.
func (s *Session) forgetExecs(then time.Time) {
	s.mu.Lock()
	var dropped []*Exec
	s.finished = slices.DeleteFunc(s.finished, func(e *Exec) bool {
		old := then.IsZero() || e.endedBefore(then)
		if old {
			dropped = append(dropped, e)
		}
		return old
	})
	if then.IsZero() { // with the session: nobody can ask for its keys any more
		s.keys = nil
	} else {
		s.releaseKeys(dropped)
	}
	s.mu.Unlock()
	s.pool.forgetExecs(dropped)
}

// unkey forgets whose the keys of dropped execs were, but not that they were
// used. Under s.mu.
func (s *Session) releaseKeys(dropped []*Exec) {
	for _, e := range dropped {
		if e.key != "" {
			delete(s.keys, e.key)
			s.pool.rememberKey(usedKey{s.id, e.key})
		}
	}
}

func (p *Pool) forgetExecs(dropped []*Exec) {
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
			t.beforeForget(e)
		}
		e.forget()
		e.journal.Release()
	}
}
