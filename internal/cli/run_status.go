package cli

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
)

// commandStatus is the exit status for how a command ended.
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
		// A command that was told to end and then claims success was still
		// not let finish.
		return statusSignal + int(syscall.SIGTERM)
	case code < 0:
		return statusRunFailed // its shell is gone, and nobody knows
	}
	return code
}

// remark says on stderr what the command's own output can't.
func (r *runInvocation) printRemarks(e *api.ExecResult) {
	_, ours := r.signalled()
	remarks(e, remarkOptions{
		ownSession: r.ownSession, cancelledByUser: ours, verbose: r.options.verbose || isTerminal(r.app.stderr),
	}, func(text string) { fmt.Fprintf(r.app.stderr, "trl: %s\n", text) })
}

// remarked is what is known to who reads remarks about a command.
type remarkOptions struct {
	ownSession      bool // its session is ended with it
	cancelledByUser bool // that it was cancelled: they did it
	verbose         bool // they want to know also what is only worth knowing
}

// remarks tells what the output of a command can't. What went wrong is always
// told; what is only worth knowing is for a person who looks.
func remarks(e *api.ExecResult, to remarkOptions, tell func(string)) {
	say := func(format string, args ...any) { tell(fmt.Sprintf(format, args...)) }
	switch {
	case e.TimedOut:
		say("the command timed out after %s", formatMilliseconds(e.DurationMS))
	case e.Cancelled && !to.cancelledByUser:
		say("the command was cancelled")
	case e.Outcome == api.OutcomeShellDied:
		say("the shell died under the command")
	case e.Outcome == api.OutcomeOOMKilled:
		say("the command was killed because memory ran out")
	}
	if !to.verbose {
		return
	}
	if len(e.Survivors) > 0 && to.ownSession {
		say("it left processes, which are ended with it: %s", processNames(e.Survivors))
	} else if len(e.Survivors) > 0 {
		say("it left processes running: %s", processNames(e.Survivors))
	}
	if e.RolledBack && !to.ownSession {
		since := "at its start"
		if e.RolledBackTo != "" {
			since = "after " + visible(e.RolledBackTo)
		}
		say("the state of the shell was lost: it is as it was %s", since)
	}
}

// maxNamed is how many processes are named in one line.
const maxProcessNames = 5

// names lists processes in a line.
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
