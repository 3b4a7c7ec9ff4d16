package engines

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// podmanConfig is where podman looks for its configuration. It is empty at first.
const podmanConfig = "/etc/containers"

// podmanWrapper is the podman on PATH.
//
//go:embed podman.sh
var podmanWrapper string

var podman = Engine{Program: "podman"}

// firstPodman finds a configuration with which podman works.
var firstPodman = sync.OnceValue(func() error {
	for _, other := range []string{"conmon", "busybox"} {
		if _, err := exec.LookPath(other); err != nil {
			return err
		}
	}
	program, err := exec.LookPath("podman")
	if err != nil {
		return err
	}
	wrapper := strings.NewReplacer("@PODMAN@", program, "@CGROUP@", "/"+os.Getenv(cgroupVariable)).Replace(podmanWrapper)
	path := filepath.Join(binDir, "podman")
	if err := errors.Join(os.WriteFile(path, []byte(wrapper), 0o600), os.Chmod(path, 0o755)); err != nil {
		return err
	}
	var failures []error
	for _, driver := range []string{"overlay", "vfs"} {
		for _, runtime := range []string{"runc", "crun"} {
			err := configurePodman(driver, runtime)
			if err == nil {
				err = podman.works()
			}
			if err == nil {
				return nil
			}
			failures = append(failures, fmt.Errorf("%s, %s: %w", driver, runtime, err))
		}
	}
	return errors.Join(failures...)
})

// Podman returns podman with storage of this test process.
func Podman(t testing.TB) *Engine {
	t.Helper()
	need(t)
	trltest.Need(t, firstPodman())
	return &podman
}

func configurePodman(driver, runtime string) error {
	var errs []error
	for name, content := range map[string]string{
		"storage.conf": fmt.Sprintf("[storage]\ndriver = %q\ngraphroot = %q\nrunroot = %q\n",
			driver, filepath.Join(dir, "podman-"+driver), filepath.Join(dir, "podman-run-"+driver)),
		"containers.conf": fmt.Sprintf("[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\nruntime = %q\n", runtime),
		"policy.json":     `{"default": [{"type": "insecureAcceptAnything"}]}`,
	} {
		errs = append(errs, os.WriteFile(filepath.Join(podmanConfig, name), []byte(content), 0o600))
	}
	return errors.Join(errs...)
}

// AwaitPodman waits for the processes with which podman cleans up after a container, or
// a command in one: they outlive it for a moment, and the daemon adopts them. Call it
// before a daemon that has used podman is stopped.
func AwaitPodman(t testing.TB, daemon int) {
	t.Helper()
	trltest.Eventually(t, "podman has cleaned up", func() bool {
		return !slices.ContainsFunc(trltest.Descendants(daemon), func(p trltest.Process) bool { return p.Name == "conmon" || p.Name == "podman" })
	})
}
