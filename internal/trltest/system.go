package trltest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// SystemVariable names the archive of the Debian that NewSystem unpacks.
const SystemVariable = "TRL_CHROOT"

// System is a Debian of its own, in a directory: nothing has ever been installed
// there.
type System struct{ Dir string }

// NewSystem unpacks one for a test.
func NewSystem(t testing.TB) System {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can go into a system of its own")
	}
	archive := os.Getenv(SystemVariable)
	if archive == "" {
		Need(t, errors.New(SystemVariable+" names no archive of a Debian: mmdebstrap --variant=apt makes one"))
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

// Path is where a file of the system is.
func (s System) Path(name string) string { return filepath.Join(s.Dir, name) }

// Put copies a file to where it is in the system.
func (s System) Put(t testing.TB, name string, content []byte, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.Path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Path(name), content, mode); err != nil {
		t.Fatal(err)
	}
}

// Command runs a script in the system, as its first process: what that leaves
// running ends with it. Its environment is what a login has, and env.
func (s System) Command(script string, env ...string) *exec.Cmd {
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc="+s.Path("proc"),
		"chroot", s.Dir, "/bin/sh", "-euc", script)
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C"}, env...)
	return cmd
}
