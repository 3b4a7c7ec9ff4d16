package session

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/process"
)

// killTimeout bounds how long a killed tree may take to be gone. SIGKILL takes
// microseconds; a process in uninterruptible sleep can delay it, and is then
// reported as a survivor.
const killTimeout = 10 * time.Second

// destroy ends the session, once, and returns a channel that is closed when its
// tree is verified empty. force, in a later call too, skips the grace.
func (s *Session) destroy(why string, force bool) <-chan struct{} {
	if s.remote != nil {
		return s.endRemote(why, force)
	}
	s.mu.Lock()
	// A session that is being created ends when it is created: see started.
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
		s.shared.spawn(func() { s.end(why, nil) })
	}
	return s.destroyed
}

// started takes the session from creating to its first state. If destroy was called
// meanwhile, the session ends now.
func (s *Session) started(first api.State) {
	s.mu.Lock()
	s.cancelCreation() // releases the context
	s.transitionTo(first)
	s.active = time.Now()
	s.startWall()
	s.persist()
	why := s.endReason
	s.destroyedInCreation = s.ending
	s.mu.Unlock()
	if s.destroyedInCreation {
		s.shared.spawn(func() { s.end(why, nil) })
	}
}

// startWall ends the session when its time is over. The caller must hold s.mu.
func (s *Session) startWall() {
	if s.wallEnd == 0 || s.ending {
		return
	}
	s.wall = time.AfterFunc(s.wallEnd-process.SinceBoot(), func() { s.destroy(api.ReasonWall, false) })
}

// cleanUpFailedStart ends a session that could not be started.
func (s *Session) cleanUpFailedStart() {
	s.tree.Kill(time.Now().Add(killTimeout))
	if s.term != nil {
		s.term.Close()
	}
	s.shared.ledger.Erase(treePrefix + s.id)
	s.cancelCreation()
	s.survivors = []api.Process{}
	s.mu.Lock()
	s.transitionTo(api.StateTerminated)
	s.mu.Unlock()
	close(s.destroyed)
}

// eraseLive erases what the ledger has of live sessions only.
func (s *Session) eraseLive() {
	s.shared.ledger.Erase(shellPrefix + s.id)
	s.shared.ledger.Erase(treePrefix + s.id)
	for _, key := range s.leftKeys {
		s.shared.ledger.Erase(key)
	}
}

// end takes the session down. It is called once. status is that of a direct command
// which ended by itself, else nil.
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
			s.shared.cfg.Log.Warn("cannot close shell", "session", s.id, "error", err)
		}
	}
	if s.term != nil {
		s.term.Close()
	}
	s.awaitExec()
	s.survivors = make([]api.Process, 0, len(left))
	for _, in := range left {
		s.survivors = append(s.survivors, api.Process{PID: in.PID, PPID: in.PPID, AgeMS: in.Age.Milliseconds(), RSSBytes: in.RSS, Command: in.Command})
	}
	s.survivors = append(s.survivors, s.awaitChildren(children)...)
	s.mu.Lock()
	s.connections.drop()
	if s.wall != nil {
		s.wall.Stop()
	}
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
	s.shared.registry.sessionEnded(s)
	if o := s.shared.cfg.Observer; o != nil {
		o.SessionEnded(len(left))
	}
	s.shared.cfg.Log.Info("session ended", "event", "session_ended", "session", s.id, "owner", s.owner, "reason", why, "survivors", len(left))
	close(s.destroyed)
}

// stopTimeout is how much longer than the grace stopping a command may take. Half
// of it is enough; what can take longer is to recover the shell, which is not
// needed any more: the leader of a terminal that a command has frozen can't help
// with it.
const stopTimeout = time.Second

// cancelAll cancels the queued execs and stops the running one, with its grace
// unless the session is force-killed.
func (s *Session) cancelAll() {
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	running := s.running
	s.mu.Unlock()
	for _, e := range queue {
		e.CancelQueued()
		e.Admit()
	}
	if running == nil {
		return
	}
	running.Cancel()
	limit := time.NewTimer(s.shared.cfg.Grace + stopTimeout)
	defer limit.Stop()
	select {
	case <-running.Done():
	case <-s.forceKill:
	case <-limit.C:
	}
}

// terminateProcesses sends SIGTERM to every process of the session and waits for
// them for the grace.
func (s *Session) terminateProcesses() {
	select {
	case <-s.forceKill:
		return
	default:
	}
	asked := process.TermSent{}
	deadline := time.NewTimer(s.shared.cfg.Grace)
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

// shouldTerminate reports whether a process is sent SIGTERM. It kills the driver's
// sleeping copies of the shell itself. An interactive shell, which ash has to be,
// ignores SIGTERM and is sent SIGHUP.
//
// The leader of a terminal is spared: without it the terminal would hang up, and
// SIGHUP would end the others before their grace is over.
func (s *Session) shouldTerminate(pid int, mark uint32, asked bool) bool {
	if s.term != nil && s.term.Leads(pid) {
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

// awaitExec waits for the goroutines of the running exec, whose processes are dead
// by now.
func (s *Session) awaitExec() {
	s.mu.Lock()
	running := s.running
	finished := slices.Clone(s.finished)
	s.mu.Unlock()
	if running != nil {
		<-running.Done()
		finished = append(finished, running)
	}
	for _, e := range finished {
		e.CloseOutput()
	}
}

// endChildren starts to end the sessions that end with this one. No more can be
// created.
func (s *Session) endChildren() []*Session {
	children := s.shared.registry.childrenOf(s.id)
	for _, c := range children {
		c.destroy(api.ReasonParent, false)
	}
	return children
}

// awaitChildren waits until the children have ended and returns their survivors.
func (s *Session) awaitChildren(children []*Session) (survivors []api.Process) {
	for _, c := range children {
		select {
		case <-c.destroyed:
		case <-s.forceKill:
			<-c.destroy(api.ReasonParent, true)
		}
		survivors = append(survivors, c.survivors...)
	}
	return survivors
}
