package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { trltest.Main(m) }

// self is this package: the tests in a guest are those that begin with TestGuest.
const self = "github.com/terminal-runtime/trl/internal/trltest/vm"

// On each kernel, for each user, a guest has what the tests of confinement need.
func TestRun(t *testing.T) {
	for _, kernel := range Kernels {
		for _, user := range []string{Root, Guest} {
			t.Run(kernel+" "+user, func(t *testing.T) {
				t.Parallel()
				Run(t, Config{Kernel: kernel, Test: self, Run: "^TestGuestHas", User: user, Env: []string{"WORDS=a 'b' $c"}})
			})
		}
	}
}

// A run of which nothing can be concluded fails, whatever the reason.
func TestFailures(t *testing.T) {
	tools, err := find(Linux61)
	trltest.Need(t, err)
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"fails":    {Config{Run: "^TestGuestFails$"}, "exit status 1, 1 of them failed"},
		"panics":   {Config{Run: "^TestGuestPanics$"}, "exit status 2, 1 of them failed"},
		"skips":    {Config{Run: "^TestGuestSkips$"}, "no test: 1 were skipped"},
		"none":     {Config{Run: "^TestGuestIsMissing$"}, "no test: 0 were skipped"},
		"too slow": {Config{Run: "^TestGuestSleeps$", Timeout: time.Second}, "exit status 2"},
		"reboots":  {Config{Run: "^TestGuestReboots$"}, "ended before its tests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cfg.Kernel, c.cfg.Test = Linux61, self
			var output strings.Builder
			result, err := try(t.Context(), tools, c.cfg.withDefaults(), func(line string) { fmt.Fprintln(&output, line) })
			if err = errors.Join(err, result.verdict()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q\n%s", err, c.want, output.String())
			}
			if strings.Contains(output.String(), "did not boot") {
				t.Errorf("tests were begun twice:\n%s", output.String())
			}
		})
	}
}

// inGuest skips a test outside of a guest.
func inGuest(t *testing.T) {
	t.Helper()
	if Inside() == "" {
		t.Skip("TestRun and TestFailures run it in a guest")
	}
}

func TestGuestFails(t *testing.T) {
	inGuest(t)
	t.Error("as it should")
}

func TestGuestPanics(t *testing.T) {
	inGuest(t)
	panic("as it should")
}

func TestGuestSkips(t *testing.T) { t.Skip("everywhere") }

func TestGuestSleeps(t *testing.T) {
	inGuest(t)
	time.Sleep(time.Hour) // pace: the guest must be ended
}

func TestGuestReboots(t *testing.T) {
	inGuest(t)
	t.Fatal(unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
}

func TestGuestHasItsSettings(t *testing.T) {
	inGuest(t)
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	if release := unix.ByteSliceToString(name.Release[:]); !strings.HasPrefix(release, Inside()+".") {
		t.Errorf("the kernel is %s, want %s", release, Inside())
	}
	if got := os.Getenv("WORDS"); got != "a 'b' $c" {
		t.Errorf("WORDS is %q", got)
	}
	if binary, err := trltest.Binary(); err != nil || unix.Access(binary, unix.X_OK) != nil {
		t.Errorf("no binary: %s, %v", binary, err)
	}
}

// Controllers can be used where they must be: in the root cgroup by root, in its own
// cgroup by the user.
func TestGuestHasControllers(t *testing.T) {
	inGuest(t)
	parent := GuestCgroup
	if os.Geteuid() == 0 {
		parent = filepath.Dir(GuestCgroup)
	}
	group := filepath.Join(parent, "probe")
	if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+cpu +memory +pids"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(group)
	for file, value := range map[string]string{"cpu.max": "10000 100000", "memory.max": "1048576", "memory.swap.max": "0", "pids.max": "7"} {
		if err := os.WriteFile(filepath.Join(group, file), []byte(value), 0); err != nil {
			t.Error(err)
		}
	}
	if os.Geteuid() == 0 {
		return
	}
	if err := os.Mkdir("/sys/fs/cgroup/probe", 0o755); !errors.Is(err, unix.EACCES) {
		t.Errorf("a user without rights makes a cgroup outside of its own: %v", err)
	}
}

// A user can have namespaces of its own, and another root in them.
func TestGuestHasNamespaces(t *testing.T) {
	inGuest(t)
	out, err := exec.Command("unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "sh", "-ec",
		"mount -t tmpfs tmpfs /tmp && mkdir /tmp/old && cp /bin/busybox /tmp && pivot_root /tmp /tmp/old && /busybox ls /old/bin/busybox").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "/old/bin/busybox") {
		t.Errorf("%v: %s", err, out)
	}
}

// Landlock has the version for which the kernel was chosen.
func TestGuestHasLandlock(t *testing.T) {
	inGuest(t)
	want := map[string]int{Linux61: 2, Linux612: 6}[Inside()]
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	got, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 || int(got) != want {
		t.Errorf("version %d (%v), want %d", int(got), errno, want)
	}
	modules, err := os.ReadFile("/sys/kernel/security/lsm")
	if err != nil || !strings.Contains(string(modules), "landlock") {
		t.Errorf("security modules: %s, %v", modules, err)
	}
}

// The shells and their libraries are there, and a terminal.
func TestGuestHasShells(t *testing.T) {
	inGuest(t)
	for _, shell := range []string{"sh", "bash", "dash", "ash"} {
		if out, err := exec.Command(shell, "-c", "echo $((6 * 7)); : > /tmp/x && : > /dev/null").CombinedOutput(); err != nil || string(out) != "42\n" {
			t.Errorf("%s: %q, %v", shell, out, err)
		}
	}
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	ptmx.Close()
}
