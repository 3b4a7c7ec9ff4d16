package daemon

import (
	"fmt"
	"os"
	"strings"

	"github.com/terminal-runtime/trl/internal/transport"
)

// ErrServing is returned by Serve if another daemon serves on the socket.
var ErrServing = transport.ErrServing

// OtherSettingsError says that the holder of the sessions was started with other
// flags. Its daemons use those, so the flags given now could not take effect.
type OtherSettingsError struct {
	PID   int // of the holder
	Flags []string
}

func (e *OtherSettingsError) Error() string {
	flags := "none"
	if len(e.Flags) > 0 {
		flags = strings.Join(e.Flags, " ")
	}
	return fmt.Sprintf("process %d keeps the sessions and uses the flags it was started with (%s); those given now cannot apply, and nothing has changed", e.PID, flags)
}

// Hidden subcommands, which stand before the arguments of processes that TRL
// starts itself.
const (
	DaemonSubcommand = "be-daemon" // the daemon of a holder
	CheckArg         = "check"     // after DaemonSubcommand: only report whether it could take over
	HolderSubcommand = "be-holder" // a holder that has just executed a new program
)

// Options are the parameters of a daemon that are not settings.
type Options struct {
	Version string
	// Stdio serves one connection on Stdin and Stdout instead of the socket,
	// and ends with it.
	Stdio bool
	// HasHolder says that a holder started this process, see BecomeHolder. Args are
	// the arguments it passed.
	HasHolder bool
	Args      []string

	Stdin, Stdout, Stderr *os.File // required
	// Environment is what the configuration was loaded from; Serve warns about
	// unknown TRL_ variables in it.
	Environment Environment
}
