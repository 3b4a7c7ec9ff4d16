package must

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	takeoverEnded = 1000 // ended sessions that one of two daemons keeps
	takeoverLive  = 10   // live sessions in both
	// takeoverOver bounds how much longer the daemon with a history takes to
	// serve again than the one without.
	takeoverOver = 1.5
	// takeoverRounds is how often each is killed at most until the bound is met,
	// and takeoverRoundsLeast at least: other work on the machine makes
	// everything slower, in bursts.
	takeoverRoundsLeast, takeoverRounds = 9, 45
)

// TestMustTakeOverAsFast kills two daemons alternately, one of which keeps a
// thousand ended sessions, and compares how long it takes until a command runs
// again.
func TestMustTakeOverAsFast(t *testing.T) {
	none, kept := newTakeover(t, 0), newTakeover(t, takeoverEnded)
	over := 0.0
	for i := range takeoverRounds {
		none.kill()
		kept.kill()
		if over = gauge.Ratio(gauge.Median(kept.took), gauge.Median(none.took)); i+1 >= takeoverRoundsLeast && over <= takeoverOver {
			break
		}
	}
	gauge.Figures(t, "after kill -9 a command has run again after %v with %d ended sessions kept and %v with none, medians of %d: %.2f × (%v to %v, and %v to %v)",
		gauge.Median(kept.took), takeoverEnded, gauge.Median(none.took), len(kept.took), over,
		kept.took[0], kept.took[len(kept.took)-1], none.took[0], none.took[len(none.took)-1])
	if over > takeoverOver {
		t.Errorf("with %d ended sessions it takes %.2f × as long, want at most %.2f", takeoverEnded, over, takeoverOver)
	}
	kept.checkHistory()
	none.end()
	kept.stop() // it checks for leftovers of both
}

// takeover is one of the daemons.
type takeover struct {
	*rig
	binary  string
	session string
	took    []time.Duration
}

func newTakeover(t *testing.T, ended int) *takeover {
	r, binary := startInstalled(t, "--log-level", "warn", "--grace-ms", "1000")
	to := &takeover{rig: r, binary: binary}
	for range takeoverLive {
		s := r.create(api.SessionCreateParams{Shell: "dash"})
		r.run(s, "v=kept")
		to.session = s.SessionID
	}
	if err := r.makeHistory(ended); err != nil {
		t.Fatal(err)
	}
	return to
}

// kill kills the daemon and measures how long it takes until a command has run. A
// daemon that dies soon after the one before it is restarted after a pause, but
// not one that has taken over in an upgrade.
func (to *takeover) kill() {
	to.t.Helper()
	if out, err := to.command(to.binary, "upgrade").CombinedOutput(); err != nil {
		to.t.Fatalf("upgrade: %s, %v", out, err)
	}
	pid := daemonOf(to.PID)
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		to.t.Fatal(err)
	}
	defer unix.Close(fd)
	began := time.Now()
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		to.t.Fatal(err)
	}
	// It must be gone: until then it could accept a connection. The next daemon
	// serves connections that arrive while there is none.
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000); err != nil && !errors.Is(err, unix.EINTR) {
		to.t.Fatal(err)
	}
	to.reconnect()
	res, err := to.client.Run(to.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: to.session, Command: "echo $v"}})
	if err != nil || res.Stdout != "kept\n" {
		to.t.Fatalf("after the kill the session returned %+v, %v", res, err)
	}
	to.took = append(to.took, time.Since(began).Round(100*time.Microsecond))
}

// checkHistory checks that the ended sessions are still known, with their output.
func (to *takeover) checkHistory() {
	to.t.Helper()
	// A daemon may serve before it has read all of them.
	if err := eventually(30*time.Second, func() error { return ended(to.rig, to.client, takeoverEnded) }); err != nil {
		to.t.Error(err)
	}
	list, err := to.client.ListSessions(to.ctx, api.SessionListParams{State: api.StateTerminated})
	if err != nil {
		to.t.Fatal(err)
	}
	for i, s := range list.Sessions {
		if len(s.Argv) == 0 || i%20 > 0 {
			continue
		}
		text, err := (&worker{rig: to.rig, client: to.client}).wholeOutput(s.ExecID)
		if want := s.Argv[1] + "\n"; err != nil || text != want {
			to.t.Errorf("an ended session wrote %q, want %q (%v)", text, want, err)
		}
	}
}
