package shell

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/process"
)

// wait handles reports until the command is over: its status was reported, or
// its shell is exiting, dead or stuck. errStuck means that it must be killed.
func (r *running) wait() error {
	s := r.shell
	watch := &s.wedgeWatch
	s.driver.clock.start(watch, clockTick)
	defer s.driver.clock.stop(watch)
	stop := r.cmd.Stop
	died := s.proc.Done()
	var tick, again <-chan time.Time
	beginStop := func() error {
		stop = nil
		tick = time.Tick(stopTick)
		r.stop.begin(s.cfg.Grace)
		s.save()
		return r.stopStep()
	}
	if r.cmd.CaughtUp != nil {
		if r.flushReports(); !r.over() {
			r.cmd.CaughtUp()
		}
	}
	if r.wasStopped {
		if err := beginStop(); err != nil {
			return err
		}
	}
	for !r.over() {
		select {
		case rep := <-s.inbox.reports:
			s.handleReport(rep, r)
		case <-died:
			died = nil
			r.flushReports()
			if !r.stop.begun {
				return nil
			} // else its processes are still to be stopped
		case <-s.abandoned:
			return ErrClosed
		case <-stop:
			if err := beginStop(); err != nil {
				return err
			}
		case sig := <-r.cmd.Keys:
			if r.abortByKey(sig); r.keySignal != 0 {
				again = time.Tick(abortEvery)
			}
		case <-again:
			r.abortByKey(r.keySignal)
		case <-tick:
			if err := r.stopStep(); err != nil {
				return err
			}
		case <-watch.due:
			if r.wedge.every == 0 { // the first look
				r.wedge.every, r.wedge.since = wedgeFirst, time.Now()
				r.lineSent()
				if r.cmd.StillRunning != nil {
					r.cmd.StillRunning()
				}
			} else if stuck := r.checkWedge(); stuck {
				return errStuck
			}
			s.driver.clock.set(watch, r.wedge.every)
		}
	}
	select {
	case r.keySignal = <-r.cmd.Keys: // the command ended before the key was announced
	default:
	}
	return nil
}

// lineSent saves that the line was written. A short command is over before, and a
// restart that finds it in doubt asks the shell.
func (r *running) lineSent() {
	if r.stage == stageSending && r.doubtSeq == 0 && !r.isProbe {
		r.stage = stageSent
		r.shell.save()
	}
}

// over reports whether there is nothing more to wait for. A command that is being
// stopped is over only when its processes are gone too.
func (r *running) over() bool {
	if !r.stop.begun {
		return r.outcomeKnown()
	}
	return r.stop.done
}

// abortByKey aborts a command that has no process, only the shell itself. wait
// repeats it until the command has ended: a trap that runs may keep another from
// running.
func (r *running) abortByKey(sig unix.Signal) {
	s := r.shell
	if len(s.cfg.Tree.Marked(r.cmd.Mark, s.proc.PID())) == 0 {
		r.keySignal = sig
		s.save() // a later daemon must undo what the abort does to the shell
		s.proc.Signal(abortSignal)
	}
}

// stopStep does what is due now. errStuck means that the shell outlived all of it.
func (r *running) stopStep() error {
	s, st := r.shell, &r.stop
	r.drainReports()
	now := time.Now()
	ended := func() bool { return r.outcomeKnown() || s.proc.Exited() }
	// The shell first: its abort must be pending before the death of its child
	// lets it continue with the next line.
	if !ended() && now.Sub(st.lastAbort) >= abortEvery {
		st.awaited = st.awaited || !st.aborted && process.AwaitsChild(s.proc.PID())
		st.aborted, st.lastAbort = true, now
		s.proc.Signal(abortSignal)
	}
	st.spared = false
	if now.Before(st.graceEnds) {
		left := s.cfg.Tree.Terminate(st.signalled, r.isTarget)
		st.done = ended() && len(left) == 0 && !st.spared
		return nil
	}
	if !st.killed {
		st.killed = true
		if !ended() {
			s.proc.Signal(abortSignal)
		}
	}
	left := s.cfg.Tree.KillMarked(r.isTarget, now.Add(lastChance/2))
	r.drainReports()
	st.done = ended() && len(left) == 0 && !st.spared
	if !st.done && !st.spared && now.After(st.graceEnds.Add(lastChance)) {
		return errStuck
	}
	return nil
}

// isMember reports whether a process belongs to the command. The shell and its copies
// do not.
func (r *running) isMember(pid int, mark uint32) bool {
	s := r.shell
	return (mark == r.cmd.Mark || mark == process.UnknownMark) && pid != s.proc.PID() &&
		(s.exitCopy == nil || pid != s.exitCopy.proc.PID()) &&
		(s.standby == nil || pid != s.standby.proc.PID())
}

// isTarget reports whether a stop signals a process. It spares what may be the exit
// copy, until the shell has left it or could have.
func (r *running) isTarget(pid int, mark uint32) bool {
	if !r.isMember(pid, mark) {
		return false
	}
	if !r.mayBeExitCopy(pid) {
		return true
	}
	st := &r.stop
	if st.sparedSince.IsZero() {
		st.sparedSince = time.Now()
	}
	if time.Since(st.sparedSince) >= exitCopyTime {
		return true
	}
	st.spared = true
	return false
}

// mayBeExitCopy reports whether a process may be the exit copy of a shell that exits,
// or belong to its fork: until the copy has reported, it is like any subshell of the
// command. The shell reports that it exits before it forks, so that report was written
// before the process was found.
func (r *running) mayBeExitCopy(pid int) bool {
	s := r.shell
	if r.copyFDs == nil || !process.Forked(pid) {
		return false
	}
	s.driver.router.awaitDelivery()
	return s.exitStatus != nil || s.inbox.exiting.Load()
}

// checkWedge looks once. The second time in a row that the shell looks wedged, it
// sends the emergency line, which reports with nothing that a function can replace;
// after two more it reports that the shell is stuck.
func (r *running) checkWedge() (stuck bool) {
	s, w := r.shell, &r.wedge
	if r.outcomeKnown() || !s.ctl.isAwaitedBy(s.proc.PID()) {
		w.seen = 0
		w.every = w.pause()
		return false
	}
	w.seen++
	w.every = wedgeFirst
	if w.seen%2 == 0 {
		// The next step changes the shell. A shell that waits has written its
		// report, if it can: on a busy machine that may still be on its way.
		if r.flushReports(); r.outcomeKnown() {
			return false
		}
	}
	if w.seen == 2 && !w.emergency {
		l := &controlLine{seq: r.reportSeq, token: s.token, status: s.driver.router.statusW.path}
		if line := s.family.emergencyLine(l); line != "" {
			w.emergency = true
			s.save()
			_ = s.ctl.send(line)
			return false
		}
	}
	return w.seen >= 4
}
