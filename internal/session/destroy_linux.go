package session

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/process"
)

// killTime bounds how long a killed tree may take to be gone. SIGKILL needs
// microseconds; a process in uninterruptible sleep can hold it up, and is then
// named as a survivor.
const killTimeout = 10 * time.Second

// destroy ends the session, once, and returns the channel that is closed when
// its tree is verified empty. force, also in a later call, cuts the grace.
func (s *Session) destroy(why string, force bool) <-chan struct{} {
	s.mu.Lock()
	// A session that is being created ends itself when it is: see started.
	first := !s.ending && (s.state == api.StateIdle || s.state == api.StateRunning)
	if !s.ending {
		s.ending, s.endReason = true, why
		if s.state == api.StateIdle || s.state == api.StateRunning {
			s.persist()
		}
	}
	if force && !s.forceKilled {
		s.forceKilled = true
		close(s.forceKill)
	}
	creating := s.state == api.StateCreating
	s.mu.Unlock()
	if creating {
		s.cancelCreation()
	}
	if first {
		s.pool.spawn(func() { s.end(why, nil) })
	}
	return s.destroyed
}

// started takes the session from creating to its first state. A destroy that
// came meanwhile is done now.
func (s *Session) started(first api.State) {
	s.mu.Lock()
	s.cancelCreation() // nothing is left to cut
	s.transitionTo(first)
	s.active = time.Now()
	s.persist()
	why, ending := s.endReason, s.ending
	s.mu.Unlock()
	if ending {
		s.pool.spawn(func() { s.end(why, nil) })
	}
}

// neverStarted ends a session that could not be started.
func (s *Session) cleanUpFailedStart() {
	s.tree.Kill(time.Now().Add(killTimeout))
	if s.term != nil {
		s.term.close()
	}
	s.pool.erase(treePrefix + s.id)
	s.cancelCreation()
	s.survivors = []api.Process{}
	s.mu.Lock()
	s.transitionTo(api.StateTerminated)
	s.mu.Unlock()
	close(s.destroyed)
}

// eraseLive takes out of the ledger what is kept of a living session alone.
func (s *Session) eraseLive() {
	s.pool.erase(shellPrefix + s.id)
	s.pool.erase(treePrefix + s.id)
	for _, key := range s.leftKeys {
		s.pool.erase(key)
	}
}

// end takes the session down. It runs once. status is that of a direct
// command which ended by itself.
func (s *Session) end(why string, status *process.Status) {
	children := s.endChildren()
	s.cancelAll()
	s.terminateProcesses()
	if s.shell != nil {
		s.shell.Abandon()
	}
	left := s.tree.Kill(time.Now().Add(killTimeout))
	if s.shell != nil {
		if err := s.shell.Close(); err != nil {
			s.pool.cfg.Log.Warn("close a shell", "session", s.id, "error", err)
		}
	}
	if s.term != nil {
		s.term.close()
	}
	s.awaitExec()
	s.survivors = make([]api.Process, 0, len(left))
	for _, in := range left {
		s.survivors = append(s.survivors, api.Process{PID: in.PID, PPID: in.PPID, AgeMS: in.Age.Milliseconds(), RSSBytes: in.RSS, Command: in.Command})
	}
	s.survivors = append(s.survivors, s.awaitChildren(children)...)
	s.mu.Lock()
	s.dropConnections()
	s.terminated = &api.Terminated{At: api.Time{Time: time.Now()}, Reason: why}
	if status != nil {
		s.terminated.ExitCode = &status.Code
		s.terminated.Signal = process.SignalName(status.Signal)
	}
	s.env = nil
	if s.lease != nil {
		s.endLease()
	}
	s.transitionTo(api.StateTerminated)
	s.persist()
	s.mu.Unlock()
	s.eraseLive()
	s.pool.mu.Lock()
	s.pool.removeChild(s)
	s.pool.live--
	s.pool.terminated++
	if s.pool.terminated > s.pool.cfg.MaxTerminated {
		s.pool.requestSweep()
	}
	s.pool.mu.Unlock()
	if o := s.pool.cfg.Observer; o != nil {
		o.SessionEnded(len(left))
	}
	s.pool.cfg.Log.Info("session ended", "event", "session_ended", "session", s.id, "owner", s.owner, "reason", why, "survivors", len(left))
	close(s.destroyed)
}

// stopTime is what the stop of a command has after the grace. It needs half of
// it; what then may take longer is to mend the shell, which nobody needs now: the
// leader of a terminal that a command has frozen can't help with it.
const stopTimeout = time.Second

// cancelAll refuses the execs that wait, and stops the one that runs: with its
// grace, unless there is a hurry.
func (s *Session) cancelAll() {
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	running := s.running
	s.mu.Unlock()
	for _, e := range queue {
		e.cancelQueued()
		close(e.mayBegin)
	}
	if running == nil {
		return
	}
	running.stop(causeCancel)
	limit := time.NewTimer(s.pool.cfg.Grace + stopTimeout)
	defer limit.Stop()
	select {
	case <-running.done:
	case <-s.forceKill:
	case <-limit.C:
	}
}

// askToLeave sends SIGTERM to every process of the session and gives them the
// grace to go.
func (s *Session) terminateProcesses() {
	select {
	case <-s.forceKill:
		return
	default:
	}
	asked := process.TermSent{}
	deadline := time.NewTimer(s.pool.cfg.Grace)
	defer deadline.Stop()
	for wait := 200 * time.Microsecond; ; wait = min(wait*2, 20*time.Millisecond) {
		if len(s.tree.Terminate(asked, func(pid int, mark uint32) bool { return s.shouldTerminate(pid, mark, asked.Has(pid)) })) == 0 {
			return
		}
		pause := time.NewTimer(wait) // there is no event for "the tree is empty"
		select {
		case <-pause.C:
		case <-s.forceKill:
			pause.Stop()
			return
		case <-deadline.C:
			pause.Stop()
			return
		}
	}
}

// mayLeave tells the processes that are asked to go from the driver's sleeping
// copies of the shell, which just have to go. An interactive shell, as ash must
// be, ignores SIGTERM and goes by SIGHUP.
//
// The leader of a terminal stays: with it the terminal would go, and SIGHUP
// would take from the others the time they have.
func (s *Session) shouldTerminate(pid int, mark uint32, asked bool) bool {
	if s.term != nil && s.term.leads(pid) {
		return false
	}
	if s.shell == nil || asked {
		return true
	}
	shell, standby := s.shell.PID()
	switch {
	case pid == shell:
		s.tree.Signal(pid, unix.SIGHUP)
	case pid == standby || mark == 0:
		s.tree.Signal(pid, unix.SIGKILL)
	}
	return true
}

// awaitExec waits for the goroutines of the running exec, whose processes are
// dead by now.
func (s *Session) awaitExec() {
	s.mu.Lock()
	running := s.running
	finished := slices.Clone(s.finished)
	s.mu.Unlock()
	if running != nil {
		<-running.done
		finished = append(finished, running)
	}
	for _, e := range finished {
		e.closeOutput()
	}
}
