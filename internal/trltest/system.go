package trltest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// SystemVariable names the Debian archive that NewSystem unpacks.
const SystemVariable = "TRL_CHROOT"

// System is a fresh Debian system in a directory, with nothing installed.
type System struct{ Dir string }

// NewSystem unpacks a Debian system for a test.
func NewSystem(t testing.TB) System {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run a system in a chroot")
	}
	archive := os.Getenv(SystemVariable)
	if archive == "" {
		Need(t, errors.New(SystemVariable+" is not set to a Debian archive: create one with mmdebstrap --variant=apt"))
	}
	for _, program := range []string{"tar", "unshare", "chroot"} {
		_, err := exec.LookPath(program)
		Need(t, err)
	}
	s := System{t.TempDir()}
	if out, err := exec.Command("tar", "-xf", archive, "-C", s.Dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return s
}

// Path returns the host path of a file in the system.
func (s System) Path(name string) string { return filepath.Join(s.Dir, name) }

// Put writes a file into the system.
func (s System) Put(t testing.TB, name string, content []byte, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.Path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Path(name), content, mode); err != nil {
		t.Fatal(err)
	}
}

// Command runs a script in the system as its first process, so that everything it
// starts ends with it. Its environment is that of a login, plus env.
func (s System) Command(script string, env ...string) *exec.Cmd {
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc="+s.Path("proc"),
		"chroot", s.Dir, "/bin/sh", "-euc", script)
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C"}, env...)
	return cmd
}
