package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/console"
	"github.com/terminal-runtime/trl/internal/daemon"
)

// An error that keeps a user from a daemon comes with the next command to type.
func TestHintsAboutSockets(t *testing.T) {
	a := &app{}
	for want, err := range map[string]error{
		"hint: run this as that user":       a.noDaemonError("/run/x", fmt.Errorf("dial: %w", fs.ErrPermission)),
		"hint: `trl serve --detach` starts": a.noDaemonError("/run/x", client.ErrNoDaemon),
		"hint: use it as it is":             serveError(fmt.Errorf("%w on /run/x", daemon.ErrServing)),
		"hint: `trl serve --socket":         serveError(fmt.Errorf("listen: %w", fs.ErrPermission)),
		"trl: something else\n":             serveError(errors.New("something else")),
		"hint: use http://HOST:PORT":        client.ErrNoDaemon,
	} {
		var out bytes.Buffer
		a.stderr = &out
		a.printError(err)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	if serveError(nil) != nil {
		t.Error("serveError(nil) is not nil")
	}
}

// A signal that ends the console is an exit status, and a session that is not
// suited for it is an error of this program, without a code.
func TestConsoleErrors(t *testing.T) {
	if got := consoleError(console.SignalError{Signal: syscall.SIGHUP}); !errors.Is(got, exitStatus(129)) {
		t.Errorf("SIGHUP: %v", got)
	}
	unsuitable := api.Errorf(api.CodeInvalidRequest, "no terminal")
	if got := consoleError(&console.SessionError{Err: unsuitable}); !errors.Is(got, localError{unsuitable}) {
		t.Errorf("a session without a terminal: %v", got)
	}
	if got := consoleError(unsuitable); !errors.Is(got, unsuitable) {
		t.Errorf("an error of the daemon: %v", got)
	}
	if consoleError(nil) != nil {
		t.Error("consoleError(nil) is not nil")
	}
}
