package must

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	scaleSessions = 300
	scaleLong     = 10_000 // what one node is designed for; TRL_LONG=1
	scaleAtOnce   = 32
	// sessionBytes is the memory in the daemon that an idle session may cost
	// after a command. Its shell is not counted.
	sessionBytes = 40 << 10
	listTime     = 100 * time.Millisecond
)

// TestMustScale was seen to fail with a goroutine and a pair of spare pipes for
// each idle session.
func TestMustScale(t *testing.T) {
	n := scaleSessions
	if os.Getenv("TRL_LONG") != "" {
		n = scaleLong
	}
	r := start(t, "--max-sessions", fmt.Sprint(n), "--grace-ms", "1000")
	clients := make(chan *client.Client, scaleAtOnce)
	for range scaleAtOnce {
		c := r.dial()
		clients <- c
		// The one-time cost of the first calls does not count as cost of a
		// session.
		s, err := c.CreateSession(r.ctx, api.SessionCreateParams{Shell: "dash"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.DestroySession(r.ctx, api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
			t.Fatal(err)
		}
	}
	before := r.stats()
	ids := make([]string, n)
	timed := func(what string, fn func(c *client.Client, i int) error) time.Duration {
		t.Helper()
		begin := time.Now()
		if err := inParallel(n, scaleAtOnce, func(i int) error {
			c := <-clients
			defer func() { clients <- c }()
			return fn(c, i)
		}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return time.Since(begin)
	}
	created := timed("create", func(c *client.Client, i int) error {
		s, err := c.CreateSession(r.ctx, api.SessionCreateParams{Shell: "dash", Name: fmt.Sprint("n", i)})
		if err == nil {
			ids[i] = s.SessionID
		}
		return err
	})
	ran := timed("run", func(c *client.Client, i int) error {
		res, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: ids[i], Command: fmt.Sprintf("V=%d; echo $V", i)}})
		if err == nil && res.Stdout != fmt.Sprintf("%d\n", i) {
			err = fmt.Errorf("session %d wrote %q", i, res.Stdout)
		}
		return err
	})

	var idle *api.SystemStats
	if err := eventually(trltest.Patience, func() error { // the last standbys are being taken
		if idle = r.stats(); idle.Goroutines > before.Goroutines+scaleAtOnce {
			return fmt.Errorf("%d goroutines for %d idle sessions", idle.Goroutines, n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	each := (idle.Memory - before.Memory) / int64(n)
	if each > sessionBytes {
		t.Errorf("an idle session costs %d bytes, want at most %d", each, sessionBytes)
	}
	list, err := r.client.ListSessions(r.ctx, api.SessionListParams{State: api.StateIdle})
	if err != nil || len(list.Sessions) != n {
		t.Fatalf("%d of %d sessions are listed, %v", len(list.Sessions), n, err)
	}
	bare := r.dialLines() // measures the daemon without a client library
	var times []time.Duration
	for range 5 {
		begin := time.Now()
		if _, err := bare.Ask([]byte(`{"jsonrpc":"2.0","id":1,"method":"session.list"}` + "\n")); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(begin))
	}
	listed := gauge.Median(times)
	if listed > listTime {
		t.Errorf("session.list took %v, want at most %v", listed, listTime)
	}
	destroyed := timed("destroy", func(c *client.Client, i int) error {
		res, err := c.DestroySession(r.ctx, api.SessionDestroyParams{SessionID: ids[i]})
		if err == nil && len(res.Survivors) > 0 {
			err = fmt.Errorf("survivors: %v", res.Survivors)
		}
		return err
	})
	rate := func(d time.Duration) float64 { return float64(n) / d.Seconds() }
	gauge.Figures(t, "%d sessions: %d bytes, %.2f fds, %.3f goroutines each; list %v; create %.0f/s, run %.0f/s, destroy %.0f/s",
		n, each, float64(idle.FDs-before.FDs)/float64(n), float64(idle.Goroutines-before.Goroutines)/float64(n),
		listed.Round(time.Millisecond), rate(created), rate(ran), rate(destroyed))
	r.stop()
}
