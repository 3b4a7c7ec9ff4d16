package cell_test

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// A confined session does not find a socket on which a program outside listens, even if
// no list names it. One that is only kept from new privileges does.
func TestSocketsAreHidden(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for want, isolation := range map[string]*api.Isolation{
		"found\n":  weak(),
		"hidden\n": {Processes: api.IsolationProcessesOwn},
	} {
		s := r.create(api.SessionCreateParams{Isolation: isolation})
		if got := r.run(s.SessionID, fmt.Sprintf("if [ -S '%s' ]; then echo found; else echo hidden; fi", path)); got != want {
			t.Errorf("%+v: %q, want %q", *isolation, got, want)
		}
	}
}
