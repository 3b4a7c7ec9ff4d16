package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// The kernels of guests.
const (
	Linux61  = "6.1"  // Landlock ABI 2
	Linux612 = "6.12" // Landlock ABI 6
)

// Kernels are all kernels, for tests that must pass on each.
var Kernels = []string{Linux61, Linux612}

// The users of guests.
const (
	Root = "root"
	// Guest has no rights, but owns the cgroup GuestCgroup.
	Guest = "guest"
)

const (
	// GuestCgroup is delegated to Guest, as systemd delegates a user's cgroup. The
	// tests are in a child of it; those of Root are in the root cgroup.
	GuestCgroup = "/sys/fs/cgroup/guest"
	// insideVariable is set in a guest to the name of its kernel.
	insideVariable = "TRL_VM_KERNEL"
)

// Config describes a guest and what it runs.
type Config struct {
	// Kernel is one of Kernels.
	Kernel string
	// Test is the import path of the package whose tests are run. They run in a
	// directory that has only the package's testdata.
	Test string
	// Run and Skip select tests, as go test's -run and -skip do. Default: all.
	Run, Skip string
	// Env is added to the environment of the tests.
	Env []string
	// User runs the tests: Root or Guest. Default: Root.
	User string
	// Programs are copied from this machine with their libraries, in addition to bash
	// and dash. They take precedence over busybox.
	Programs []string
	// CPUs is the number of processors. Default: 2.
	CPUs int
	// MemoryMiB is the size of the memory. Default: 1024.
	MemoryMiB int
	// Timeout is how long the tests may take. Default: 2 minutes.
	Timeout time.Duration
}

// Inside returns the name of the kernel if this process runs in a guest, otherwise "".
func Inside() string { return os.Getenv(insideVariable) }

// Run runs tests in a guest. It fails t if one of them fails, or if none was run.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	tools, err := find(cfg.Kernel)
	trltest.Need(t, err)
	result, err := try(t.Context(), tools, cfg.withDefaults(), func(line string) {
		if !strings.HasPrefix(line, "=== ") { // the beginning of a test, whose end is reported too
			t.Log(line)
		}
	})
	if err = errors.Join(err, result.verdict()); err != nil {
		t.Fatal(err)
	}
	t.Logf("Linux %s: %d tests passed, %d were skipped; booted in %s, ran for %s", cfg.Kernel, result.passed, result.skipped,
		result.booted.Round(100*time.Millisecond), result.ran.Round(100*time.Millisecond))
}

func (c Config) withDefaults() Config {
	if c.User == "" {
		c.User = Root
	}
	if c.CPUs == 0 {
		c.CPUs = 2
	}
	if c.MemoryMiB == 0 {
		c.MemoryMiB = 1024
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Minute
	}
	return c
}

// result is the outcome of the tests in a guest.
type result struct {
	status                  int // exit status of the test binary
	passed, failed, skipped int // tests, without their subtests
	booted, ran             time.Duration
}

// note counts a line of the output of the tests.
func (r *result) note(line string) {
	switch {
	case strings.HasPrefix(line, "--- PASS: "):
		r.passed++
	case strings.HasPrefix(line, "--- FAIL: "):
		r.failed++
	case strings.HasPrefix(line, "--- SKIP: "):
		r.skipped++
	}
}

// verdict returns why the tests have not passed, or nil.
func (r *result) verdict() error {
	switch {
	case r.status != 0 || r.failed > 0:
		return fmt.Errorf("the tests in the guest failed: exit status %d, %d of them failed", r.status, r.failed)
	case r.passed == 0:
		return fmt.Errorf("the guest has run no test: %d were skipped", r.skipped)
	}
	return nil
}

// try boots a guest and runs the tests. It calls log for each line that they write.
func try(ctx context.Context, tools tools, cfg Config, log func(line string)) (result, error) {
	dir, err := os.MkdirTemp("", "vm-")
	if err != nil {
		return result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	image, err := buildImage(ctx, dir, cfg)
	if err != nil {
		return result{}, err
	}
	g := guest{tools: tools, cfg: cfg, dir: dir, image: image.file, token: image.token, log: log}
	for try := 1; ; try++ {
		err := g.boot(ctx)
		// Nothing of the code under test has run before the tests have begun, so
		// another try can't hide a fault of it.
		if err == nil || g.begun || try == maxBoots || ctx.Err() != nil {
			return g.result, err
		}
		log(fmt.Sprintf("Linux %s did not boot (try %d): %v", cfg.Kernel, try, err))
	}
}
