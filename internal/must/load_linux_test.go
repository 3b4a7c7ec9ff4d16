package must

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// TestMustBearLoad runs commands on many connections at once, in a daemon with
// the race detector.
func TestMustBearLoad(t *testing.T) {
	const conns, execs = 200, 50
	for _, transport := range []string{"unix", "http"} {
		t.Run(transport, func(t *testing.T) {
			r := startWith(t, trltest.Config{
				HTTP: transport == "http", Race: true,
				Args: []string{"--http-rate", "1000000", "--http-max-concurrent", "1000"},
			})
			addr := r.Socket
			if transport == "http" {
				addr = "http://" + r.HTTP
			}
			idle := r.create(api.SessionCreateParams{Shell: "dash"})
			before := r.settled(idle)
			began := time.Now()
			var wg sync.WaitGroup
			for i := range conns {
				wg.Go(func() {
					if err := r.agent(addr, i, execs); err != nil {
						t.Errorf("connection %d: %v", i, err)
					}
				})
			}
			wg.Wait()
			took := time.Since(began)
			after := before
			// A leak stays. On a busy machine the daemon may still be ending the
			// last sessions.
			if err := eventually(trltest.Patience, func() error {
				if after = r.settled(idle); after.FDs > before.FDs || after.Goroutines > before.Goroutines {
					return fmt.Errorf("fds %d → %d, goroutines %d → %d", before.FDs, after.FDs, before.Goroutines, after.Goroutines)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			gauge.Figures(t, "%d connections × %d commands over %s, with the race detector: no error; fds %d → %d, goroutines %d → %d; %.0f execs/s",
				conns, execs, transport, before.FDs, after.FDs, before.Goroutines, after.Goroutines, conns*execs/took.Seconds())
			r.client.Close()
			if err := r.Stop(); err != nil { // a race shows in its exit status
				t.Error(err)
			}
		})
	}
}

// settled returns the stats after a command in a session, once what follows it is
// over: its shell has forked a standby, which uses spare pipes. Earlier work must
// be over too, because a burst leaves more spare.
func (r *rig) settled(s *api.Session) *api.SystemStats {
	r.t.Helper()
	r.steady()
	r.run(s, "true")
	return r.steady()
}

// steady returns the stats once they no longer change.
func (r *rig) steady() *api.SystemStats {
	r.t.Helper()
	const steady = 10 // samples that must agree, half a second
	var stats *api.SystemStats
	same := 0
	if err := eventually(trltest.Patience, func() error {
		now := r.stats()
		if stats == nil || now.FDs != stats.FDs || now.Goroutines != stats.Goroutines {
			same = 0
		}
		stats = now
		if same++; same < steady {
			return fmt.Errorf("fds %d, goroutines %d, and changing", now.FDs, now.Goroutines)
		}
		return nil
	}); err != nil {
		r.t.Error(err)
	}
	return stats
}

// agent is one client: a session and its commands, every tenth as a stream.
func (r *rig) agent(addr string, number, execs int) error {
	c, err := client.DialWith(r.ctx, addr, client.Options{Token: r.Token})
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.CreateSession(r.ctx, api.SessionCreateParams{Shell: "dash"})
	if err != nil {
		return err
	}
	for i := range execs {
		command, want := fmt.Sprintf("echo %d.%d", number, i), fmt.Sprintf("%d.%d\n", number, i)
		got := ""
		if i%10 == 0 {
			st, err := c.Stream(r.ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command}})
			if err != nil {
				return err
			}
			for chunk, err := range st.Chunks() {
				if err != nil {
					return err
				}
				got += chunk.Data
			}
		} else {
			res, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command}})
			if err != nil {
				return err
			}
			got = res.Stdout
		}
		if got != want {
			return fmt.Errorf("command %d wrote %q, want %q", i, got, want)
		}
	}
	_, err = c.DestroySession(r.ctx, api.SessionDestroyParams{SessionID: s.SessionID})
	return err
}
