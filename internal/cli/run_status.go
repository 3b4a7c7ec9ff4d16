package cli

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/units"
)

// commandStatus returns the exit status for a command's result.
func commandStatus(e *api.ExecResult) int {
	code := -1
	switch {
	case e.ExitCode != nil:
		code = *e.ExitCode
	case e.Signal != "":
		code = statusSignal + int(unix.SignalNum(e.Signal))
	}
	switch {
	case e.TimedOut:
		return statusTimedOut
	case e.Cancelled && code <= 0:
		// A cancelled command that claims success was still not allowed to
		// finish.
		return statusSignal + int(syscall.SIGTERM)
	case code < 0:
		return statusRunFailed // its shell is gone, and the status is unknown
	}
	return code
}

// printRemarks prints to stderr what the command's output does not show.
func (r *runInvocation) printRemarks(e *api.ExecResult) {
	_, ours := r.signalled()
	remarks(e, remarkOptions{
		ownSession: r.ownSession, cancelledByUser: ours, verbose: r.options.verbose || isTerminal(r.app.stderr), limits: r.limits,
	}, r.app.remark)
}

// remark prints a remark about a command.
func (a *app) remark(text string) { fmt.Fprintf(a.stderr, "trl: %s\n", text) }

// remarkOptions selects the remarks about a command.
type remarkOptions struct {
	ownSession      bool // its session ends with it
	cancelledByUser bool // the user cancelled it, so don't mention it
	verbose         bool // include remarks that are not about failures

	limits *api.LimitsInForce // of its session; nil: none, or unknown
}

// remarks calls tell with what the output of a command does not show. Failures
// are always reported; the rest only if to.verbose is set.
func remarks(e *api.ExecResult, to remarkOptions, tell func(string)) {
	say := func(format string, args ...any) { tell(fmt.Sprintf(format, args...)) }
	switch {
	case e.TimedOut:
		say("the command timed out after %s", units.Milliseconds(e.DurationMS))
	case e.Cancelled && !to.cancelledByUser && !slices.Contains(e.LimitHit, api.LimitWall):
		say("the command was cancelled")
	case e.Outcome == api.OutcomeShellDied:
		say("the command's shell died")
	}
	limitRemarks(e, to.limits, to.verbose, say)
	if !to.verbose {
		return
	}
	if len(e.Survivors) > 0 && to.ownSession {
		say("it left processes, which end with its session: %s", processNames(e.Survivors))
	} else if len(e.Survivors) > 0 {
		say("it left processes running: %s", processNames(e.Survivors))
	}
	if e.RolledBack && !to.ownSession {
		since := "at its start"
		if e.RolledBackTo != "" {
			since = "after " + visible(e.RolledBackTo)
		}
		say("the shell's state was lost; it is back to what it was %s", since)
	}
}

// maxProcessNames is how many processes one line names.
const maxProcessNames = 5

// processNames lists processes in one line.
func processNames(processes []api.Process) string {
	var named []string
	for i, p := range processes {
		if i == maxProcessNames {
			named = append(named, fmt.Sprintf("and %d more", len(processes)-i))
			break
		}
		named = append(named, fmt.Sprintf("%d %s", p.PID, visible(p.Command)))
	}
	return strings.Join(named, ", ")
}
