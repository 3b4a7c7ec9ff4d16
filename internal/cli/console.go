package cli

import (
	"errors"
	"os"

	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/console"
)

// terminal returns stdin and stdout if both are a terminal.
func (a *app) terminal() (in, out *os.File, ok bool) {
	if !isTerminal(a.stdin) || !isTerminal(a.stdout) {
		return nil, nil, false
	}
	return a.stdin.(*os.File), a.stdout.(*os.File), true
}

// consoleConfig returns what `trl attach` and `trl shell` have in common.
func (a *app) consoleConfig(in, out *os.File, c *client.Client, session string, detach console.Key) console.Config {
	return console.Config{
		Client: c, Session: session, Stdin: in, Stdout: out, Stderr: a.stderr, DetachKey: detach, ExitSilent: a.exitDaemonSilent,
	}
}

// consoleError returns an error of the console as this package reports it: a
// signal as an exit status, and an unsuitable session without an error code.
func consoleError(err error) error {
	if signalled, ok := errors.AsType[console.SignalError](err); ok {
		return exitStatus(statusSignal + int(signalNumber(signalled.Signal)))
	}
	if unsuitable, ok := errors.AsType[*console.SessionError](err); ok {
		return localError{unsuitable.Err}
	}
	return err
}
