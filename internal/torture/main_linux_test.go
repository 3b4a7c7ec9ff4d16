package torture

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
)

func TestMain(m *testing.M) { engines.Main(m) }

// long makes the tests complete, at the cost of an hour.
var long = os.Getenv("TRL_LONG") == "1"

// startDaemon starts the local daemon of a test, which uses the engines. At the end of
// the test it must exit cleanly.
func startDaemon(t *testing.T, dir string) *trltest.Daemon {
	t.Helper()
	d, err := trltest.Start(trltest.Config{Env: engines.Env(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer os.RemoveAll(d.Dir)
		if !d.Running() {
			return // the test has ended it
		}
		defer d.Kill()
		if !t.Failed() { // else a place may be left
			engines.AwaitPodman(t, d.PID)
		}
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(d.Log())
		}
	})
	return d
}

// dial returns a client of a daemon until the end of the test.
func dial(t *testing.T, d *trltest.Daemon) *client.Client {
	t.Helper()
	c, err := client.DialWith(t.Context(), d.Socket, client.Options{Patience: trltest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// removePlace ends a place with all that was delivered.
func removePlace(t *testing.T, c *client.Client, runtime string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), trltest.Patience) // that of the test has ended in its cleanup
	defer cancel()
	if _, err := c.RemovePlace(ctx, api.PlaceRemoveParams{Runtime: runtime, Force: true}); err != nil {
		t.Errorf("remove %s: %v", runtime, err)
	}
}

// processes returns those of a container, also zombies, besides the first: pid, state
// and command line.
func processes(t *testing.T, container string) []string {
	t.Helper()
	lines := strings.Split(engines.Docker(t).Run(t, "top", container, "-eo", "pid,stat,args"), "\n")
	return lines[2:] // after the heading and the first process
}
