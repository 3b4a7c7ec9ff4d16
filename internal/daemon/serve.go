package daemon

import (
	"fmt"
	"os"
	"strings"

	"github.com/terminal-runtime/trl/internal/transport"
)

// ErrServing is what the error of Serve is when another daemon has the socket.
var ErrServing = transport.ErrServing

// OtherSettingsError says that sessions are kept by a process that was started with
// other settings, which its daemons have: those that are given now could not apply.
type OtherSettingsError struct {
	PID   int
	Flags []string
}

func (e *OtherSettingsError) Error() string {
	apply := "none"
	if len(e.Flags) > 0 {
		apply = strings.Join(e.Flags, " ")
	}
	return fmt.Sprintf("sessions are kept by process %d, which goes on with the flags it was started with (%s); those given now can't apply, and nothing has changed", e.PID, apply)
}

// Words that stand before the arguments of a program which its user has not
// started.
const (
	DaemonSubcommand = "be-daemon" // by a holder: it is the daemon
	CheckArg         = "check"     // after HeldWord: it only says whether it could be
	HolderSubcommand = "be-holder" // it was another program before, and is still the holder
)

// Options is how a daemon is run, besides its configuration.
type Options struct {
	Version string
	// Stdio serves one connection on Stdin and Stdout instead of the socket,
	// and ends with it.
	Stdio bool
	// Held says that a holder started this process, see Hold. Args are those it
	// gave.
	HasHolder bool
	Args      []string

	Stdin, Stdout, Stderr *os.File // required
	// Environment is what the configuration was loaded from, to name the
	// variables in it that are no settings.
	Environment Environment
}
