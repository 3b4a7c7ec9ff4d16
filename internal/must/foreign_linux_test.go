package must

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// TestMustIgnoreTagsOfOthers lets another user give a process the tag of a
// session: without cgroups the daemon identifies its processes by tag. The
// process must not be listed, awaited or killed, nor anything in its process
// group; and a session's program that has changed its uid still must be.
func TestMustIgnoreTagsOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		trltest.Need(t, errors.New("only root can start processes of two other users"))
	}
	for _, program := range []string{"setpriv", "prlimit", "setsid"} {
		_, err := exec.LookPath(program)
		trltest.Need(t, err)
	}
	for name, tc := range map[string]struct{ asNobody, force bool }{
		"daemon of root":          {false, false},
		"daemon of root, force":   {false, true},
		"daemon of a user":        {true, false},
		"daemon of a user, force": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := trltest.Config{Args: []string{"--cgroup", "off", "--grace-ms", "500"}}
			if tc.asNobody {
				cfg.Dir, cfg.Binary = dirOfNobody(t)
			}
			r := startWith(t, cfg)
			s := r.create(api.SessionCreateParams{Shell: "bash"})
			res, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo up; read x", StdinOpen: true}, YieldMS: 1})
			if err != nil {
				t.Fatal(err)
			}
			if err := eventually(endTime, func() error {
				out, err := r.client.Output(r.ctx, api.ExecOutputParams{ExecID: res.ExecID})
				if err == nil && len(out.Chunks) == 0 {
					err = errors.New("the command has no output")
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			f := forge(t, s.PID)
			info, err := r.client.SessionInfo(r.ctx, api.SessionParams{SessionID: s.SessionID})
			if err != nil {
				t.Fatal(err)
			}
			f.checkAbsent("processes", info.Processes)
			if _, err := r.client.Input(r.ctx, api.ExecInputParams{ExecID: res.ExecID, EOF: true}); err != nil {
				t.Fatal(err)
			}
			if err := eventually(endTime, func() error {
				res, err = r.client.ExecInfo(r.ctx, api.ExecParams{ExecID: res.ExecID})
				if err == nil && res.State != api.ExecExited {
					err = fmt.Errorf("the command is %s", res.State)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			f.checkAbsent("survivors", res.Survivors)

			gone, err := r.client.DestroySession(r.ctx, api.SessionDestroyParams{SessionID: s.SessionID, Force: tc.force})
			if err != nil {
				t.Fatal(err)
			}
			if len(gone.Survivors) > 0 {
				t.Errorf("survivors of a session: %v", gone.Survivors)
			}
			f.checkAlive()
			r.client.Close()
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
			if n := strings.Count(r.Log(), "foreign_tag"); n != 1 {
				t.Errorf("the log has %d lines about tags of other users, want 1:\n%s", n, r.Log())
			}
			f.end()
		})
	}
	t.Run("changed uid", changedUID)
}

// changedUID checks that a session's program that dropped its privileges, and
// whose parent is gone, is found and killed.
func changedUID(t *testing.T) {
	r := start(t, "--cgroup", "off", "--grace-ms", "500")
	s := r.create(api.SessionCreateParams{Shell: "bash"})
	res := r.run(s, `setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '(setsid sh -c "trap \"\" TERM; id -u; exec sleep 300" &)' | head -n 1`)
	if !strings.Contains(res.Stdout, "65534") || len(res.Survivors) == 0 {
		t.Fatalf("%+v", res)
	}
	var pids []int
	for _, p := range res.Survivors {
		var st unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d", p.PID), &st); err != nil || st.Uid != 65534 {
			t.Fatalf("survivor %+v has uid %d (%v)", p, st.Uid, err)
		}
		pids = append(pids, p.PID)
	}
	r.destroy(s.SessionID)
	for _, pid := range pids {
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("process %d of the session outlives it: %v", pid, err)
		}
	}
	r.stop()
}

// dirOfNobody makes a directory for a daemon of uid 65534, and a program in it
// that starts one.
func dirOfNobody(t *testing.T) (dir, program string) {
	t.Helper()
	const unprivileged = 65534
	dir, err := trltest.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := trltest.Binary()
	if err == nil {
		err = trltest.Install(binary, filepath.Join(dir, "trl"))
	}
	program = filepath.Join(dir, "as-unprivileged")
	if err == nil {
		script := "#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups \"" + dir + "/trl\" \"$@\"\n"
		err = os.WriteFile(program, []byte(script), 0o700)
	}
	if err == nil {
		err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Chown(path, unprivileged, unprivileged))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, program
}

// forgery is a service of root whose process group contains another user's
// program with the tag of a session.
type forgery struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
}

const (
	forgedText = "FORGED"
	goesOn     = "the service continues"
)

// forge gives a process of uid 65533 the limits of a session's shell.
func forge(t *testing.T, shell int) *forgery {
	t.Helper()
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", shell))
	if err != nil {
		t.Fatal(err)
	}
	locks := regexp.MustCompile(`Max file locks +(\d+) +(\d+)`).FindSubmatch(limits)
	if locks == nil {
		t.Fatalf("the shell has no tag:\n%s", limits)
	}
	f := &forgery{t: t}
	f.cmd = exec.Command("setsid", "sh", "-c", fmt.Sprintf(
		`setpriv --reuid 65533 --regid 65533 --clear-groups prlimit --locks=%s:%s sh -c 'trap "" TERM; echo up; read x' %s; echo '%s'`,
		locks[1], locks[2], forgedText, goesOn))
	stdout, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	f.out = bufio.NewReader(stdout)
	if f.stdin, err = f.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	f.cmd.Stderr = os.Stderr
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-f.cmd.Process.Pid, syscall.SIGKILL) // after a failure
		_ = f.cmd.Wait()
	})
	if line, err := f.out.ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return f
}

func (f *forgery) checkAbsent(what string, processes []api.Process) {
	f.t.Helper()
	for _, p := range processes {
		if strings.Contains(p.Command, forgedText) {
			f.t.Errorf("a process of another user is among the %s: %+v", what, p)
		}
	}
}

// checkAlive checks that the forging process was not killed.
func (f *forgery) checkAlive() {
	f.t.Helper()
	for _, p := range trltest.Descendants(f.cmd.Process.Pid) {
		if p.State != "Z" {
			return
		}
	}
	f.t.Error("the other user's process was killed")
}

// end lets the service continue and exit by itself.
func (f *forgery) end() {
	f.t.Helper()
	late := time.AfterFunc(endTime, func() { _ = syscall.Kill(-f.cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	if err := f.stdin.Close(); err != nil {
		f.t.Error(err)
	}
	rest, err := io.ReadAll(f.out)
	if err != nil || strings.TrimSpace(string(rest)) != goesOn {
		f.t.Errorf("the service wrote %q, %v", rest, err)
	}
	if err := f.cmd.Wait(); err != nil {
		f.t.Errorf("the service exited with %v", err)
	}
}
