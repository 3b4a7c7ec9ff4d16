package must

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// TestMustKeepLimits kills the daemon, and has it replace itself. The limits
// of a session hold in between and afterwards: those of its cgroup for the command
// that runs meanwhile, those of each process for a shell that is started anew, and its
// time from its creation on.
func TestMustKeepLimits(t *testing.T) {
	r := start(t)
	info, err := r.client.SystemInfo(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	limits := &api.Limits{OpenFiles: 50, FileSizeBytes: 1 << 20, WallMS: time.Hour.Milliseconds()}
	grouped := slices.Contains(info.Limits, "memory_bytes") && slices.Contains(info.Limits, "pids") && slices.Contains(info.Limits, "cpu")
	if grouped {
		limits.MemoryBytes, limits.PIDs, limits.CPU = 64<<20, 50, 1
	}
	for _, size := range []*api.TTYSize{nil, {Rows: 24, Cols: 80}} {
		s := r.create(api.SessionCreateParams{Limits: limits, TTY: size})
		check := func(when string) {
			t.Helper()
			now, err := r.client.SessionInfo(r.ctx, api.SessionParams{SessionID: s.SessionID})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s.Limits, now.Limits); diff != "" || now.Limits == nil {
				t.Errorf("%s: %s", when, diff)
			}
			// Without its standby a shell that is killed is replaced by a new one.
			for _, p := range now.Processes {
				if p.Role == api.RoleStandby {
					killed(p.PID)
				}
			}
			r.run(s, "kill -9 $$")
			if res := r.run(s, "echo `ulimit -n` `ulimit -Hn`"); strings.TrimSpace(res.Stdout) != "50 50" {
				t.Errorf("%s: a new shell has %q", when, res.Stdout)
			}
		}
		check("before")
		command := "sleep 1"
		if grouped {
			command = "sleep 1; dd if=/dev/zero of=/dev/null bs=200M count=1"
		}
		running, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command}, YieldMS: 1})
		if err != nil {
			t.Fatal(err)
		}
		r.killDaemon()
		var res *api.ExecResult
		trltest.Eventually(t, "the command ended", func() bool {
			res, err = r.client.ExecInfo(r.ctx, api.ExecParams{ExecID: running.ExecID})
			return err == nil && res.State == api.ExecExited
		})
		if grouped && (res.Outcome != api.OutcomeOOMKilled || !slices.Contains(res.LimitHit, api.LimitMemory)) {
			t.Errorf("a command that reached a limit of an earlier daemon: %+v", res)
		}
		check("after a kill")
		if _, err := r.client.Upgrade(r.ctx); err != nil {
			t.Fatal(err)
		}
		r.reconnect()
		check("after an upgrade")
		r.destroy(s.SessionID)
	}
	s := r.create(api.SessionCreateParams{Limits: &api.Limits{WallMS: 3000}})
	r.killDaemon()
	trltest.Eventually(t, "the session ended", func() bool {
		now, err := r.client.SessionInfo(r.ctx, api.SessionParams{SessionID: s.SessionID})
		return err == nil && now.Terminated != nil && now.Terminated.Reason == api.ReasonWall
	})
	r.stop()
}
