package console

import (
	"context"
	"io"
	"os"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// Config is what Attach, Shell and Run need. Every field is required, except for
// Session in a ShellConfig and a RunConfig.
type Config struct {
	Client  *client.Client
	Session string
	// Stdin and Stdout are the terminal of the user. Attach, Shell and Run take
	// it over, and restore it before they return.
	Stdin, Stdout *os.File
	// Stderr receives the last message, once the terminal is restored.
	Stderr io.Writer
	// DetachKey leaves the session while its command keeps running. In a
	// RunConfig 0 means that all keys are the command's.
	DetachKey Key
	// ExitSilent exits the program because the daemon does not answer while a
	// signal asks the program to exit; ctrl-c counts as SIGINT. It is called
	// once the terminal is restored, from any goroutine, and must not return.
	ExitSilent func(os.Signal)
}

// AttachConfig configures Attach.
type AttachConfig struct {
	Config
	Write    bool // take the keyboard, from another client if necessary
	ReadOnly bool // never type
}

// ShellConfig configures Shell. Every function is required.
type ShellConfig struct {
	Config
	// Create creates a session on a terminal of the given size. It is called
	// once, if Session is "".
	Create func(context.Context, api.TTYSize) (*api.Session, error)
	// Destroy ends the session that Create returned, and reports errors to the
	// user. It is not called if the user left a command running.
	Destroy func(session string)
	// Status returns the exit status for the result of a command.
	Status func(*api.ExecResult) int
	// Remarks calls tell with each line that the output of a command does not
	// show.
	Remarks func(result *api.ExecResult, cancelledByUser bool, tell func(string))
	// Describe formats an error of the daemon for people.
	Describe func(*api.Error) string
}

// RunConfig configures Run.
type RunConfig struct {
	Config
	// Command is the command. Run sets the session, the input, the key and the
	// lease.
	Command api.ExecCommand
	// Create and Destroy are as in a ShellConfig.
	Create  func(context.Context, api.TTYSize) (*api.Session, error)
	Destroy func(session string)
}

// SignalError reports that a signal asked this program to exit. SIGHUP also
// means that the terminal is gone.
type SignalError struct{ Signal os.Signal }

func (e SignalError) Error() string { return e.Signal.String() }
