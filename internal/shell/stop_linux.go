package shell

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/process"
)

const (
	// stopTick is how often the processes of a command that is being stopped
	// are looked for again: what they fork meanwhile must go too.
	stopTick = 10 * time.Millisecond
	// abortEvery is how often the shell itself is asked to give up.
	abortEvery = 200 * time.Millisecond
	// lastChance is what the shell has after the grace, when its children have
	// been killed, before it is killed itself. Everything is over half a
	// second after the grace.
	lastChance = 300 * time.Millisecond
)

// stopping is how far the stop of a command has come: SIGTERM to its processes
// and a soft abort to the shell, the grace, SIGKILL to its processes, and as
// the last resort SIGKILL to the shell.
type stopping struct {
	begun, done bool
	killed      bool // the grace is over
	aborted     bool // the shell was sent the abort signal
	awaited     bool // the shell waited for a process when it was sent it first
	signalled   process.TermSent
	since       time.Duration // when it began, since boot; a later daemon goes on with it
	graceEnds   time.Time
	lastAbort   time.Time
}

// begin begins the stop, or goes on with that of an earlier daemon.
func (st *stopping) begin(grace time.Duration) {
	now := process.SinceBoot()
	if st.since == 0 {
		st.since = now
	}
	st.begun = true
	st.signalled = process.TermSent{}
	st.graceEnds = time.Now().Add(grace - (now - st.since))
}

// signal is the strongest one that was needed.
func (st *stopping) signal() unix.Signal {
	if st.killed {
		return unix.SIGKILL
	}
	return unix.SIGTERM
}

// stopStep does what is due now. errStuck says that the shell outlived it all.
func (r *running) stopStep() error {
	st := &r.stop
	r.drainReports()
	now := time.Now()
	ended := func() bool { return r.outcomeKnown() || r.proc.Exited() }
	// The shell first: it must know that it is to give up before the death of
	// its child lets it go on to the next line.
	if !ended() && now.Sub(st.lastAbort) >= abortEvery {
		st.awaited = st.awaited || !st.aborted && process.AwaitsChild(r.proc.PID())
		st.aborted, st.lastAbort = true, now
		r.proc.Signal(abortSignal)
	}
	if now.Before(st.graceEnds) {
		left := r.cfg.Tree.Terminate(st.signalled, r.isMember)
		st.done = ended() && len(left) == 0
		return nil
	}
	if !st.killed {
		st.killed = true
		if !ended() {
			r.proc.Signal(abortSignal)
		}
	}
	left := r.cfg.Tree.KillMarked(r.isMember, now.Add(lastChance/2))
	r.drainReports()
	st.done = ended() && len(left) == 0
	if !st.done && now.After(st.graceEnds.Add(lastChance)) {
		return errStuck
	}
	return nil
}

// isMember tells the processes of the command, without the shell and its
// copies.
func (r *running) isMember(pid int, mark uint32) bool {
	return (mark == r.cmd.Mark || mark == process.UnknownMark) && pid != r.proc.PID() &&
		(r.exitCopy == nil || pid != r.exitCopy.proc.PID()) &&
		(r.standby == nil || pid != r.standby.proc.PID())
}
