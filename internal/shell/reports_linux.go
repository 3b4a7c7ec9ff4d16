package shell

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/process"
)

// exitCopyTime is how long an exiting shell may take to leave its exit copy.
const exitCopyTime = 3 * time.Second

// drainReports handles the reports that have arrived already.
func (r *running) drainReports() {
	for {
		select {
		case rep := <-r.shell.inbox.reports:
			r.shell.handleReport(rep, r)
		default:
			return
		}
	}
}

// flushReports handles the reports that were written before now.
func (r *running) flushReports() {
	r.shell.driver.router.awaitDelivery()
	r.drainReports()
}

// ack marks a report as handled.
func (s *Shell) ack(rep report) {
	s.acked = max(s.acked, rep.at)
	s.unacked++
}

// handleReport acts on one report. r is nil when no command runs.
func (s *Shell) handleReport(rep report, r *running) {
	s.ack(rep)
	switch rep.kind {
	case reportDone, reportCalledExit:
		if r != nil && rep.a == r.reportSeq && !r.reported {
			r.reported, r.code, r.calledExit = true, rep.b, rep.kind == reportCalledExit
		}
		return // the end of the command saves it
	case reportExit:
		code := rep.a
		s.exitStatus = &code
	case reportExitCopy:
		if r != nil && r.copyFDs != nil && s.exitCopy == nil {
			s.exitCopy = s.adoptCopy(rep, r.copyFDs, r.cmd.ID)
			r.copyFDs = nil
		}
	case reportStandby:
		if s.pendingStandby != nil {
			s.standbyTaken(s.adoptCopy(rep, s.pendingStandby, s.lastID))
		}
	case reportReady: // of doubtSeq, or late: the wait for it has timed out
		if r != nil && r.doubtSeq != 0 && rep.a == r.doubtSeq && !r.reported && s.exitStatus == nil {
			r.lineLost = true
		}
		return
	}
	s.save()
}

// handlePending handles the reports that have arrived while no command runs.
func (s *Shell) handlePending() {
	for len(s.inbox.reports) > 0 {
		s.handleReport(<-s.inbox.reports, nil)
	}
}

// handleIdleReports handles those that arrive while the shell is idle.
func (s *Shell) handleIdleReports() {
	if !s.mu.TryLock() {
		return // the goroutine that holds it handles them
	}
	defer s.mu.Unlock()
	if s.closed || s.current != nil && s.current.stage != stageOver {
		return // they are about the command, and Resume is about to handle them
	}
	s.handlePending()
	s.save()
}

// adoptCopy takes over a copy that has reported: it is freed from the subshell that
// forked it, and tracked. It returns nil if the copy is gone already.
func (s *Shell) adoptCopy(rep report, c *copyFDs, id string) *sleepingCopy {
	s.pendingRelease.dropCopyFDs(c) // the copy holds what it needs
	if outer := rep.b; outer > 1 && outer != s.cfg.Tree.Parent() && outer != s.proc.PID() {
		// Everything around an exit copy carries the command's mark, and would count
		// as left running by the command.
		var siblings []int
		if rep.kind == reportExitCopy {
			siblings = slices.DeleteFunc(process.Children(outer), func(pid int) bool { return pid == rep.a })
		}
		if s.cfg.Tree.Signal(outer, unix.SIGKILL) { // only if it is in the tree
			process.AwaitExit(siblings, exitCopyTime)
		}
	}
	p, err := s.cfg.Tree.Adopt(rep.a)
	if err != nil {
		s.driver.log.Debug("copy of a shell exited before it was adopted", "error", err)
		return nil
	}
	return &sleepingCopy{proc: p, traps: c.readTraps(), id: id}
}

// standbyTries is how many copies in a row may fail before the shell is left
// without one until its next command.
const standbyTries = 3

// standbyTaken replaces the older standby. nil means that the copy could not be
// adopted, as happens on a machine that stalls: another is taken in the next pause.
func (s *Shell) standbyTaken(c *sleepingCopy) {
	s.pendingStandby = nil
	if !s.standbyAskedAt.IsZero() { // else an earlier daemon has asked
		s.budget.recordCost(time.Since(s.standbyAskedAt))
	}
	if c == nil {
		if s.failedCopies++; s.failedCopies <= standbyTries {
			s.scheduleIdle()
		}
		return
	}
	s.failedCopies = 0
	if s.standby != nil {
		s.standby.proc.Signal(unix.SIGKILL)
	}
	s.setStandby(c)
}
