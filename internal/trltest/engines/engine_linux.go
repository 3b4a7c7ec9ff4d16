package engines

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// Engine is a container engine.
type Engine struct {
	// Program is the command line client, docker or podman. The name of a container's
	// runtime begins with it.
	Program string

	mu     sync.Mutex
	images map[string]error // result of each import
}

// Try runs a command of the client and returns its output without the last newline.
func (e *Engine) Try(args ...string) (string, error) {
	cmd := exec.Command(e.Program, args...)
	cmd.Env = append(cmd.Environ(), Env()...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", e.Program, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}

// Run is Try for commands that must succeed.
func (e *Engine) Run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := e.Try(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Container starts a container that sleeps, without a network, and returns its name.
// It is removed at the end of the test. Options are those of `docker run`.
func (e *Engine) Container(t testing.TB, image string, options ...string) (name string) {
	t.Helper()
	e.Image(t, image)
	name = "sleeper-" + trltest.Token()
	args := append([]string{"run", "--detach", "--name", name, "--label", "trl.test=" + t.Name(), "--network", "none"}, options...)
	t.Cleanup(func() { e.remove(t, name) })
	e.Run(t, append(args, image)...)
	return name
}

// remove removes a container that the test may have removed itself.
func (e *Engine) remove(t testing.TB, name string) {
	t.Helper()
	if _, err := e.Try("container", "inspect", name); err != nil {
		return
	}
	// The first process of a container ignores the signal that podman sends first.
	_, _ = e.Try("kill", name) // it may have exited
	if _, err := e.Try("rm", "--force", name); err != nil {
		t.Error(err)
	}
}

// Image makes one of the images in this package available to the engine, if it is
// not yet. Container does it too.
func (e *Engine) Image(t testing.TB, image string) {
	t.Helper()
	if image == Debian {
		trltest.Need(t, debianMissing())
	}
	if err := e.provide(image); err != nil {
		t.Fatal(err)
	}
}

// provide imports an image once.
func (e *Engine) provide(image string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	err, known := e.images[image]
	if !known {
		err = e.importImage(image)
		e.images[image] = err
	}
	return err
}

// works runs a first container: an engine may start and still be unable to.
func (e *Engine) works() error {
	e.images = map[string]error{} // an earlier attempt had its own storage
	if err := e.provide(Busybox); err != nil {
		return err
	}
	_, err := e.Try("run", "--rm", "--network", "none", Busybox, "true")
	return err
}
