package console

import (
	"fmt"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

// SessionError reports that a session cannot be attached to, or has no shell for
// a prompt. The error comes from this package, not from the daemon.
type SessionError struct{ Err *api.Error }

func (e *SessionError) Error() string { return e.Err.Error() }

// Unwrap returns the error in the form of the daemon's.
func (e *SessionError) Unwrap() error { return e.Err }

// sessionEnded is the error that following returns when the session ends.
type sessionEnded struct{ terminated *api.Terminated }

func (e *sessionEnded) Error() string {
	w := e.terminated
	switch {
	case w == nil:
		return "has ended"
	case w.Signal != "":
		return "has ended: its command was killed by " + printable.Text(w.Signal)
	case w.ExitCode != nil:
		return fmt.Sprintf("has ended: its command exited with status %d", *w.ExitCode)
	case w.Reason == api.ReasonIdle:
		return "has ended: it was idle for too long"
	case w.Reason == api.ReasonShutdown:
		return "has ended: the daemon was stopped"
	}
	return "has ended"
}
