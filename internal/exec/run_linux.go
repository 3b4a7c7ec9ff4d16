package exec

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
)

// Run runs the command in a shell, and returns when it is over and its output is in
// the journal. run is the Run or Resume method of the shell.
func (e *Exec) Run(run func(shell.Command) (shell.Result, error)) (shell.Result, error) {
	c := e.command
	c.ID, c.Mark, c.Stop = e.id, e.mark, e.stopped
	if e.stdin != nil {
		c.Stdin = e.stdin.path()
	}
	e.StartInput()
	c.Keys = e.keys
	if e.stdout != nil {
		c.Stdout = e.stdout.path()
	}
	if e.merged() {
		c.Stderr = c.Stdout
	} else if e.stderr != nil {
		c.Stderr = e.stderr.path()
	}
	if e.streaming {
		e.PumpOutput()
	} else {
		c.StillRunning = e.PumpOutput
	}
	disarm := func() {}
	if arm := func() { disarm = e.StartTimeouts() }; e.resumed {
		c.CaughtUp = arm // a command that ended while no daemon ran has not timed out
	} else {
		arm()
	}
	res, err := run(c)
	disarm()
	e.DrainOutput()
	e.CloseInput()
	return res, err
}

// FinishInShell makes the result of a command in a shell final. err means that
// everything in the session was killed.
func (e *Exec) FinishInShell(res shell.Result, err error, cwd string, survivors []api.Process, reached *Reached) {
	e.finish(func(r *api.ExecResult) {
		if err != nil {
			code := 128 + int(unix.SIGKILL)
			r.Outcome, r.ExitCode, r.Signal = api.OutcomeShellDied, &code, process.SignalName(unix.SIGKILL)
		} else {
			FillShellResult(r, res)
			r.Cwd, r.Survivors, r.InputUnread = cwd, survivors, e.unreadInput()
		}
		reached.fill(r)
	})
}

// FinishDirect makes the result of a direct command final.
func (e *Exec) FinishDirect(st process.Status, reached *Reached) {
	e.finish(func(r *api.ExecResult) {
		r.ExitCode = &st.Code
		r.Signal = process.SignalName(st.Signal)
		// Not its memory: the kernel includes that of the helper it was started by.
		r.Usage = &api.Usage{CPUMS: st.CPU.Milliseconds()}
		r.Outcome = api.OutcomeExited
		if st.Signal != 0 {
			r.Outcome = api.OutcomeSignaled
		}
		reached.fill(r)
	})
}

// FillShellResult sets how a command ended from what the shell driver reports.
func FillShellResult(r *api.ExecResult, res shell.Result) {
	code := res.Code
	r.ExitCode = &code
	r.Signal = process.SignalName(res.Signal)
	r.RolledBack, r.RolledBackTo = res.RolledBack, res.RolledBackTo
	switch res.Ending {
	case shell.ShellExited:
		r.Outcome = api.OutcomeShellExited
	case shell.ShellDied:
		r.Outcome = api.OutcomeShellDied
	default:
		r.Outcome = api.OutcomeExited
		if sig := unix.Signal(code - 128); code > 128 && code <= 128+64 && unix.SignalName(sig) != "" {
			// This is how a shell reports a child that was ended by a signal.
			r.Outcome, r.Signal = api.OutcomeSignaled, process.SignalName(sig)
		}
	}
}

// StartTimeouts starts the timers that may stop the command. disarm stops them.
func (e *Exec) StartTimeouts() (disarm func()) {
	var timers []*time.Timer
	if e.timeout > 0 {
		// If an earlier daemon began it, less of the time is left, or none.
		left := e.timeout - time.Since(e.began)
		if e.resumed && left <= 0 {
			e.env.cfg.Log.Warn("timeout expired while no daemon was running", "exec", e.id)
		}
		timers = append(timers, time.AfterFunc(left, func() { e.stop(causeTimeout) }))
	}
	if e.idleTimeout > 0 {
		var t *time.Timer
		var armed sync.Mutex // AfterFunc may fire before t is assigned
		armed.Lock()
		t = time.AfterFunc(e.idleTimeout, func() {
			armed.Lock()
			defer armed.Unlock()
			quiet := time.Since(time.Unix(0, e.lastByte.Load()))
			if quiet >= e.idleTimeout {
				e.stop(causeTimeout)
			} else {
				t.Reset(e.idleTimeout - quiet)
			}
		})
		armed.Unlock()
		timers = append(timers, t)
	}
	return func() {
		for _, t := range timers {
			t.Stop()
		}
	}
}
