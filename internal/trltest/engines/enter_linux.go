package engines

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

const (
	// roleVariable says which of the three processes this is. Without it, it is the
	// one that go test has started; it starts the first process of the namespaces
	// (roleInit), which starts the one that runs the tests (roleTests).
	roleVariable = "TRL_ENGINES_ROLE"
	roleInit     = "init"
	roleTests    = "tests"
	// cgroupVariable is the name of the cgroup of all containers.
	cgroupVariable = "TRL_ENGINES_CGROUP"
	// missingVariable is the reason why there are no engines, if there are none.
	missingVariable = "TRL_ENGINES_MISSING"
)

// dir is where the engines keep everything. It is on a tmpfs that exists only in the
// namespace; overlays work there even if they do not on the machine's own disk.
const dir = "/run/engines"

// binDir is the first directory of PATH.
const binDir = dir + "/bin"

// Env returns the environment with which a daemon under test uses the engines. It is
// to follow trltest.Environ.
func Env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "DOCKER_HOST=" + dockerHost}
}

// need skips or fails a test if there can't be engines.
func need(t testing.TB) {
	t.Helper()
	switch missing := os.Getenv(missingVariable); {
	case os.Geteuid() != 0:
		t.Skip("only root can run engines")
	case missing != "":
		trltest.Need(t, errors.New(missing))
	case os.Getenv(roleVariable) != roleTests:
		t.Fatal("a package that uses engines needs func TestMain(m *testing.M) { engines.Main(m) }")
	}
}

func enter() {
	switch os.Getenv(roleVariable) {
	case roleTests:
		return
	case roleInit:
		os.Exit(runInit())
	}
	if os.Geteuid() != 0 {
		return
	}
	code, err := runIsolated()
	if err == nil {
		os.Exit(code)
	}
	if err := os.Setenv(missingVariable, err.Error()); err != nil {
		panic(err)
	}
}

// signals are those that may end the tests from outside. go test sends SIGQUIT to
// a test that takes too long.
var signals = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}

// passOn sends the signals that this process gets to another one.
func passOn(pid int) {
	received := make(chan os.Signal, len(signals))
	signal.Notify(received, signals...)
	go func() {
		for s := range received {
			_ = unix.Kill(pid, s.(unix.Signal)) // it may have exited
		}
	}()
}

// runIsolated runs this program again in its own namespaces and returns its exit
// status.
func runIsolated() (code int, err error) {
	removeOldCgroups()
	cgroup := cgroupPrefix + strings.ToLower(rand.Text()[:10])
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = os.Args
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), roleVariable+"="+roleInit, cgroupVariable+"="+cgroup)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		// The kernel ends all processes of the namespace with this one.
		Pdeathsig: unix.SIGKILL,
	}
	// The death of this thread would count as that of the process.
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("engines need their own namespaces: %w", err)
	}
	passOn(cmd.Process.Pid)
	err = cmd.Wait()
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exitCode(exited.Sys().(syscall.WaitStatus))
	} else if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := removeCgroup(cgroup); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code, nil
}

func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// runInit is the first process of the namespaces: it prepares them, runs the tests,
// and reaps what daemons leave to it. It returns the exit status of the tests.
func runInit() int {
	var missing string
	if err := prepare(); err != nil {
		missing = err.Error()
	}
	err := errors.Join(os.Setenv(roleVariable, roleTests), os.Setenv(missingVariable, missing), os.Setenv("PATH", binDir+":"+os.Getenv("PATH")))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	tests, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	passOn(tests.Pid)
	for {
		var status unix.WaitStatus
		switch pid, err := unix.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			fmt.Fprintln(os.Stderr, err)
			return 1
		case pid == tests.Pid:
			return exitCode(syscall.WaitStatus(status))
		}
	}
}

// prepare makes the namespaces habitable.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// Where engines write outside of the directories that they can be given.
	for path, mode := range map[string]string{"/run": "755", "/var/log": "755", "/dev/shm": "1777"} {
		if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode="+mode); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
	}
	for _, path := range []string{dir, binDir, "/run/lock", "/run/sshd"} {
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	}
	return errors.Join(trltest.RaiseLoopback(), replaceEtc())
}

// replaceEtc replaces /etc by a copy with our accounts and without the machine's
// configuration of podman, in the namespace only. Single files can't be covered: the
// kernel removes the mount when the file is replaced outside, as useradd replaces
// /etc/passwd.
func replaceEtc() error {
	const private = dir + "/etc"
	if out, err := exec.Command("cp", "-a", "/etc", private).CombinedOutput(); err != nil {
		return fmt.Errorf("copy /etc: %w: %s", err, out)
	}
	podman := filepath.Join(private, filepath.Base(podmanConfig))
	if err := errors.Join(addAccounts(private), os.RemoveAll(podman), os.Mkdir(podman, 0o755)); err != nil {
		return err
	}
	if err := unix.Mount(private, "/etc", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /etc: %w", err)
	}
	return nil
}
