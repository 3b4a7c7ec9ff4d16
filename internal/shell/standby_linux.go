package shell

import "time"

// standbyTime is how long a shell may take to fork a standby; a command that comes
// meanwhile waits for it.
const standbyTime = 500 * time.Millisecond

// scheduleStandby has a standby taken: now if the budget allows it or there is none,
// else in the next pause.
func (s *Shell) scheduleStandby() {
	if s.budget.take(time.Now()) || s.standby == nil {
		s.askStandby()
		if s.pendingStandby != nil {
			s.driver.begin(s.collectStandby)
		}
		return
	}
	s.scheduleIdle()
}

// takeStandby is called in a pause.
func (s *Shell) takeStandby() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.promoting != promotionNone {
		return
	}
	if s.adopted {
		s.settleAdopted()
		s.awaitStandby()
	}
	if s.pendingStandby != nil || s.proc.Exited() || s.standby != nil && s.standby.id == s.lastID {
		return
	}
	s.askStandby()
	s.awaitStandby()
}

// collectStandby adopts the standby that was asked for, unless a command has done so
// already.
func (s *Shell) collectStandby() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.awaitStandby()
	}
}

// askStandby asks the shell to fork one. Processes of the driver carry the mark 0, so
// that they do not count as a command's.
func (s *Shell) askStandby() {
	if s.pendingStandby != nil || s.proc.Exited() {
		return
	}
	d, f := s.driver, s.family
	c, err := d.copyPool.Take()
	if err != nil {
		d.log.Warn("no standby", "error", err)
		return
	}
	if err := s.cfg.Tree.Mark(s.proc, 0); err != nil {
		d.copyPool.Put(c)
		return
	}
	s.pendingStandby, s.standbyAskedAt = c, time.Now()
	s.save()
	if err := s.ctl.send(f.standby(c.wake.path, c.traps.path, d.bootScripts[f.standbyScript].path)); err != nil {
		s.pendingRelease.dropCopyFDs(c)
		s.pendingStandby = nil
		s.save()
	}
}

// awaitStandby waits for the report of the standby that was asked for.
func (s *Shell) awaitStandby() {
	if s.pendingStandby == nil {
		return
	}
	limit := time.NewTimer(standbyTime)
	defer limit.Stop()
	done := s.proc.Done()
	for s.pendingStandby != nil {
		select {
		case rep := <-s.inbox.reports:
			s.handleReport(rep, nil)
		case <-done:
			done = nil
			limit.Reset(standbyTime / 10) // its report is in the pipe, or never comes
		case <-s.abandoned:
			return
		case <-limit.C:
			// The report may still arrive. The copyFDs stay reserved until then: a
			// descriptor whose path the shell knows must not become another session's.
			s.driver.log.Debug("shell is slow to fork a standby")
			return
		}
	}
}

// settlePendingStandby finds out what became of a standby whose shell is dead: the
// copy may be alive nevertheless. What it left unfinished is killed before the
// copyFDs, whose paths it knows, are released.
func (s *Shell) settlePendingStandby() {
	s.awaitStandby()
	if s.pendingStandby == nil {
		return
	}
	s.killStrays()
	s.pendingRelease.dropCopyFDs(s.pendingStandby)
	s.pendingStandby = nil
}

// settleAdopted brings a shell that was adopted while idle to where it would be: it
// may have been asked for a standby, or not yet. An older daemon may have left it an
// abort that came too late for its command.
func (s *Shell) settleAdopted() {
	s.adopted = false
	s.handlePending()
	answered := false
	switch {
	case s.proc.Exited():
	case s.family.undoIsHarmless:
		answered = s.forgetAborts(bootTime) == nil
	case s.pendingStandby != nil:
		answered = s.awaitReady(bootTime) == nil
	}
	if answered && s.pendingStandby != nil { // it has read everything before
		s.settlePendingStandby()
		s.save()
	}
	if s.standby == nil && s.exitStatus == nil {
		s.askStandby()
	}
}

// killStrays kills processes of the driver that no field of the shell refers to.
func (s *Shell) killStrays() {
	known := map[int]bool{}
	for _, c := range []*sleepingCopy{s.exitCopy, s.standby} {
		if c != nil {
			known[c.proc.PID()] = true
		}
	}
	if s.proc != nil {
		known[s.proc.PID()] = true
	}
	if s.cfg.Terminal != nil {
		known[s.cfg.Terminal.PID()] = true
	}
	s.cfg.Tree.KillMarked(func(pid int, mark uint32) bool { return mark == 0 && !known[pid] }, time.Now().Add(standbyTime))
}
