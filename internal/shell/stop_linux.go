package shell

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/process"
)

const (
	// stopTick is how often the driver looks for processes of a command that is
	// being stopped: what they fork meanwhile must be stopped too.
	stopTick = 10 * time.Millisecond
	// abortEvery is how often the shell itself is sent the abort signal.
	abortEvery = 200 * time.Millisecond
	// lastChance is what the shell has after the grace, when its children have
	// been killed, before it is killed itself. Everything is over half a
	// second after the grace.
	lastChance = 300 * time.Millisecond
	// abortSignal is SIGSTKFLT: Linux never raises it itself, and all shells can
	// trap it by number.
	abortSignal = unix.Signal(16)
)

// stopping is how far the stop of a command has come: SIGTERM to its processes
// and a soft abort to the shell, the grace, SIGKILL to its processes, and as
// the last resort SIGKILL to the shell.
type stopping struct {
	begun, done bool
	killed      bool // the grace is over
	aborted     bool // the shell was sent the abort signal
	awaited     bool // the shell waited for a process when it was sent the first one
	signalled   process.TermSent
	since       time.Duration // when it began, since boot; a later daemon continues it
	graceEnds   time.Time
	lastAbort   time.Time
	spared      bool      // the last step has spared what may be the exit copy
	sparedSince time.Time // when one did so first
}

// begin begins the stop, or continues that of an earlier daemon.
func (st *stopping) begin(grace time.Duration) {
	now := process.SinceBoot()
	if st.since == 0 {
		st.since = now
	}
	st.begun = true
	st.signalled = process.TermSent{}
	st.graceEnds = time.Now().Add(grace - (now - st.since))
}

// signal returns the strongest signal that was needed.
func (st *stopping) signal() unix.Signal {
	if st.killed {
		return unix.SIGKILL
	}
	return unix.SIGTERM
}
