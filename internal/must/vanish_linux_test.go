package must

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
)

// TestMustOutliveItsCgroup removes the cgroup of a running daemon, with
// everything in it, as root can: its sessions report with their next command what
// happened, and new ones can be created.
func TestMustOutliveItsCgroup(t *testing.T) {
	r := start(t, "--grace-ms", "500")
	if r.cgroup == "" {
		r.stop()
		t.Log("no cgroups here")
		return
	}
	params := []api.SessionCreateParams{{Shell: "bash"}, {Shell: "sh"}, {Shell: "bash", TTY: &api.TTYSize{Rows: 24, Cols: 80}}}
	var before []*api.Session
	for _, p := range params {
		s := r.create(p)
		r.run(s, "X=42")
		before = append(before, s)
	}
	r.removeCgroup()
	for i, s := range before {
		res := r.run(s, "echo X=$X")
		want := api.StateIdle
		if res.Outcome == api.OutcomeShellDied {
			want = api.StateTerminated // the leader of its terminal is gone too
		} else if !res.RolledBack || res.Outcome != api.OutcomeExited {
			t.Errorf("session %d, whose processes were killed: %+v", i, res)
		}
		if err := eventually(endTime, func() error {
			info, err := r.client.SessionInfo(r.ctx, api.SessionParams{SessionID: s.SessionID})
			if err == nil && info.State != want {
				err = fmt.Errorf("session %d is %s, want %s", i, info.State, want)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	for _, p := range params {
		s := r.create(p)
		if res := r.run(s, "(setsid sleep 300 & ) ; echo hi"); res.Outcome != api.OutcomeExited || len(res.Survivors) != 1 {
			t.Errorf("a command of a new session: %+v", res)
		}
		r.destroy(s.SessionID)
	}
	r.stop()
}

// removeCgroup kills everything in the daemon's cgroup and removes it, while the
// daemon is stopped and can't add anything.
func (r *rig) removeCgroup() {
	r.t.Helper()
	daemon := daemonOf(r.PID)
	if err := unix.Kill(daemon, unix.SIGSTOP); err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = unix.Kill(daemon, unix.SIGCONT) }()
	if err := os.WriteFile(filepath.Join(r.cgroup, "cgroup.kill"), []byte("1"), 0); err != nil {
		r.t.Fatal(err)
	}
	if err := eventually(endTime, func() error {
		groups, err := os.ReadDir(r.cgroup)
		for _, group := range groups {
			if group.IsDir() {
				_ = os.Remove(filepath.Join(r.cgroup, group.Name())) // or the next round
			}
		}
		if err == nil {
			err = os.Remove(r.cgroup)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the cgroup cannot be removed: %w", err)
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
}
