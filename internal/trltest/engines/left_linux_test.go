package engines

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// endVariable says how TestLeaveEverything ends.
const endVariable = "TRL_ENGINES_END"

// TestLeaveEverything is the test whose process TestNothingIsLeft ends: everything
// that can be started runs, and it cleans up nothing.
func TestLeaveEverything(t *testing.T) {
	end := os.Getenv(endVariable)
	if end == "" {
		t.Skip("TestNothingIsLeft runs it")
	}
	d, p, s := Docker(t), Podman(t), SSHD(t)
	accounts, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*Engine{&d.Engine, p} {
		e.Run(t, "run", "--detach", "--network", "none", Busybox)
	}
	if _, err := s.Try(Guest, "", "setsid sleep 3600 </dev/null >/dev/null 2>&1 &"); err != nil {
		t.Fatal(err)
	}
	fmt.Println("ready", os.Getenv(cgroupVariable))
	if end == "terminated" || end == "killed" {
		_ = unix.Pause()
	}
	_, _ = io.ReadAll(os.Stdin) // until it may go on
	if end == "panic" {
		panic("as with -timeout")
	}
	if now, err := os.ReadFile("/etc/passwd"); err != nil || !bytes.Equal(now, accounts) {
		t.Errorf("the accounts were\n%s\nand are, after a change outside, %v\n%s", accounts, err, now)
	}
}

func TestNothingIsLeft(t *testing.T) {
	need(t)
	for end, kill := range map[string]unix.Signal{
		"success": 0, "panic": 0, "terminated": unix.SIGTERM, "killed": unix.SIGKILL,
	} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			leave(t, end, kill)
		})
	}
}

// leave runs TestLeaveEverything in another process, ends it with a signal or lets it
// end itself, and checks what is left of it.
func leave(t *testing.T, end string, kill unix.Signal) {
	dir, mounts := t.TempDir(), readMounts(t)
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestLeaveEverything$")
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); name != roleVariable {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, endVariable+"="+end, "TMPDIR="+dir)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var cgroup string
	var processes []trltest.Process
	var output strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&output, lines.Text())
		name, ready := strings.CutPrefix(lines.Text(), "ready ")
		if !ready {
			continue
		}
		cgroup, processes = name, trltest.Descendants(cmd.Process.Pid)
		replaceAccounts(t)
		if kill != 0 {
			if err := cmd.Process.Signal(kill); err != nil {
				t.Fatal(err)
			}
			break // processes that are left would keep the output open
		} else if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); (err == nil) != (end == "success") || cgroup == "" {
		t.Fatalf("the other process: %v\n%s", err, &output)
	}
	for _, program := range []string{"dockerd", "containerd", "containerd-shim", "conmon", "sshd", "sleep"} {
		if !slices.ContainsFunc(processes, func(p trltest.Process) bool { return p.Name == program }) {
			t.Errorf("%s did not run, so the test would not notice if it were left: %v", program, processes)
		}
	}
	if kill == unix.SIGKILL {
		// Nothing waits for the others, and a later test process removes the cgroups.
		trltest.Eventually(t, "the processes have ended", func() bool { return len(trltest.Remaining(processes)) == 0 })
		if len(cgroups(cgroup)) == 0 {
			t.Errorf("there is no cgroup %s, so the test would not notice if it were left", cgroup)
		}
		if err := removeCgroup(cgroup); err != nil {
			t.Error(err)
		}
	}
	if left := trltest.Remaining(processes); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	if left := cgroups(cgroup); len(left) > 0 {
		t.Errorf("cgroups left: %v", left)
	}
	if now := readMounts(t); now != mounts {
		t.Errorf("mounts were\n%s\nand are\n%s", mounts, now)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

// replaceAccounts adds an account, as useradd does: it replaces /etc/passwd. The
// kernel then removes what other namespaces have mounted there.
func replaceAccounts(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	changed, err := os.CreateTemp("/etc", "passwd")
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(changed, "%sother-%s:*:59997:59997::/:/bin/false\n", content, trltest.Token())
	if err := errors.Join(err, changed.Chmod(0o644), changed.Close(), os.Rename(changed.Name(), "/etc/passwd")); err != nil {
		t.Fatal(err)
	}
}

func readMounts(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return string(mounts)
}
