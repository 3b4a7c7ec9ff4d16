package session

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) {
	process.RunChild()
	if err := process.CleanSelf(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// newPool returns a pool with everything below it. At the end of the test it is
// shut down, and must leave nothing behind.
func newPool(t testing.TB, cfg Config) *Pool { return newPoolOn(t, cfg, process.Config{}) }

func newPoolOn(t testing.TB, cfg Config, pc process.Config) *Pool {
	t.Helper()
	return newPoolWith(t, cfg, pc, journal.Config{Dir: t.TempDir()})
}

func newPoolWith(t testing.TB, cfg Config, pc process.Config, jc journal.Config) *Pool {
	t.Helper()
	before := openFDs(t)
	host, err := process.NewHost(pc)
	if err != nil {
		t.Fatal(err)
	}
	driver, err := shell.OpenDriver(shell.DriverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	store := journal.NewStore(jc)
	p := NewPool(cfg, host, driver, store)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), trltest.Patience)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		p.Close()
		store.Close()
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
		if err := host.Close(); err != nil {
			t.Error(err)
		}
		store.Close()
		if after := openFDs(t); after > before {
			t.Errorf("%d descriptors are left open", after-before)
		}
	})
	return p
}

func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// create creates a session, by default of /bin/sh.
func create(t testing.TB, p *Pool, params api.SessionCreateParams) *api.Session {
	t.Helper()
	s, err := p.Create(t.Context(), params, "tester")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a command that must be accepted.
func run(t testing.TB, p *Pool, params api.ExecRunParams) *api.ExecResult {
	t.Helper()
	r, err := p.Run(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sh runs a command line.
func sh(t testing.TB, p *Pool, s *api.Session, command string) *api.ExecResult {
	t.Helper()
	return run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command}})
}

func ms(n int64) *int64 { return &n }
