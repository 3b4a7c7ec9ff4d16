package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/client"
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
