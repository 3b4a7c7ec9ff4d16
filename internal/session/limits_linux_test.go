package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// limitedPool returns a pool that can enforce all limits by cgroups; it skips the
// test where that is impossible.
func limitedPool(t *testing.T) *Pool {
	t.Helper()
	p := newPool(t, Config{})
	for _, a := range p.host.Abilities() {
		if !a.Available {
			t.Skipf("%s is not available: %s", a.Name, a.Reason)
		}
	}
	return p
}

// groupOf returns the cgroup of a session.
func groupOf(t *testing.T, p *Pool, s *api.Session) string {
	t.Helper()
	found, err := p.session(s.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(p.host.Support().Cgroup, fmt.Sprintf("%s.%d", s.SessionID, found.tree.Number()))
}

// TestLimitsRefused: if one limit can't be enforced, none is, and nothing is started.
func TestLimitsRefused(t *testing.T) {
	p := newPoolOn(t, Config{}, process.Config{NoCgroup: true})
	for _, tt := range []struct {
		limits  api.Limits
		refused []string
		missing []string
	}{
		{api.Limits{MemoryBytes: 1 << 30}, []string{"memory_bytes"}, []string{"cgroup_memory"}},
		{api.Limits{OpenFiles: 100, PIDs: 100}, []string{"pids"}, []string{"cgroup_pids"}},
		{api.Limits{CPU: 1, PIDs: 100}, []string{"cpu", "pids"}, []string{"cgroup_cpu", "cgroup_pids"}},
		{api.Limits{WallMS: 1000, DiskBytes: 1 << 20}, []string{"disk_bytes"}, []string{"private_directories"}},
	} {
		_, err := p.Create(t.Context(), api.SessionCreateParams{Limits: &tt.limits}, "tester")
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeLimitsUnavailable || e.Hint == "" {
			t.Fatalf("%+v: %v", tt.limits, err)
		}
		if diff := cmp.Diff(map[string]any{"limits": tt.refused, "missing": tt.missing}, map[string]any{"limits": e.Details["limits"], "missing": e.Details["missing"]}); diff != "" {
			t.Errorf("%+v: %s", tt.limits, diff)
		}
		reasons, _ := e.Details["reasons"].(map[string]string)
		for _, name := range tt.missing {
			if reasons[name] == "" {
				t.Errorf("%+v: no reason for %s", tt.limits, name)
			}
		}
	}
	if l, _ := p.List(t.Context(), api.SessionListParams{}); len(l.Sessions) != 0 || p.Stats().SessionsTotal != 0 {
		t.Errorf("%d sessions are left", len(l.Sessions))
	}
	if diff := cmp.Diff([]string{"file_size_bytes", "open_files", "wall_ms"}, LimitNames(p.host.Abilities())); diff != "" {
		t.Error(diff)
	}
	_, err := p.Create(t.Context(), api.SessionCreateParams{Isolation: &api.Isolation{Profile: api.ProfileOffline}}, "tester")
	if !api.IsCode(err, api.CodeLimitsUnavailable) {
		t.Errorf("isolation: %v", err)
	}
}

// TestNoLimits: an empty object is no limit.
func TestNoLimits(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Limits: &api.Limits{}})
	r := sh(t, p, s, "true")
	if s.Limits != nil || r.LimitHit != nil || r.Usage != nil {
		t.Errorf("%+v, %+v", s.Limits, r)
	}
}

// TestMemoryLimit: a command that needs more memory is killed, at exactly the limit;
// the session keeps its state.
func TestMemoryLimit(t *testing.T) {
	p := limitedPool(t)
	const limit = 64 << 20
	s := create(t, p, api.SessionCreateParams{Limits: &api.Limits{MemoryBytes: limit}})
	sh(t, p, s, "x=kept; cd /")
	if r := sh(t, p, s, "dd if=/dev/zero of=/dev/null bs=10M count=1"); r.Outcome != api.OutcomeExited || r.LimitHit != nil || r.Usage.MemoryPeakBytes < 10<<20 {
		t.Errorf("within the limit: %+v, %+v", r, r.Usage)
	}
	r := sh(t, p, s, "dd if=/dev/zero of=/dev/null bs=200M count=1")
	if r.Outcome != api.OutcomeOOMKilled || *r.ExitCode != 137 || r.RolledBack || !slices.Equal(r.LimitHit, []api.Limit{api.LimitMemory}) {
		t.Errorf("%+v", r)
	}
	if r.Usage == nil || r.Usage.MemoryPeakBytes != limit {
		t.Errorf("usage: %+v", r.Usage)
	}
	if r := sh(t, p, s, "echo $x $PWD"); r.Stdout != "kept /\n" || r.LimitHit != nil || r.Outcome != api.OutcomeExited {
		t.Errorf("after it: %+v", r)
	}
	if r := sh(t, p, s, "dd if=/dev/zero of=/dev/null bs=200M count=1 2>/dev/null; true"); r.Outcome != api.OutcomeExited || !slices.Equal(r.LimitHit, []api.Limit{api.LimitMemory}) {
		t.Errorf("a part of a command: %+v", r)
	}
	if i, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID}); err != nil || i.Limits == nil || i.Limits.MemoryBytes != limit {
		t.Errorf("%+v, %v", i, err)
	}
	group := groupOf(t, p, s)
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID, Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(group); !os.IsNotExist(err) {
		t.Errorf("the group is left: %v", err)
	}
}

// TestShellOverItsMemoryLimit: the standby takes over, with the state before the
// command.
func TestShellOverItsMemoryLimit(t *testing.T) {
	p := limitedPool(t)
	for _, shell := range []string{"dash", "bash"} {
		s := create(t, p, api.SessionCreateParams{Shell: shell, Limits: &api.Limits{MemoryBytes: 32 << 20}})
		sh(t, p, s, "x=kept")
		r := sh(t, p, s, "y=0123456789; while :; do y=$y$y; done")
		if r.Outcome != api.OutcomeOOMKilled || !r.RolledBack || !slices.Equal(r.LimitHit, []api.Limit{api.LimitMemory}) {
			t.Errorf("%s: %+v", shell, r)
		}
		if r := sh(t, p, s, "echo $x"); r.Stdout != "kept\n" {
			t.Errorf("%s: after it: %+v", shell, r)
		}
	}
}

// TestPIDsLimit: a session has exactly as many processes as its limit and the
// reserve allow, and can be used and ended when it has.
func TestPIDsLimit(t *testing.T) {
	p := limitedPool(t)
	for _, size := range []*api.TTYSize{nil, {Rows: 24, Cols: 80}} {
		s := create(t, p, api.SessionCreateParams{Limits: &api.Limits{PIDs: 20}, TTY: size})
		most := s.Limits.PIDs + s.Limits.PIDsReserved
		r := sh(t, p, s, "(while :; do sleep 600 & done) 2>/dev/null")
		if !slices.Equal(r.LimitHit, []api.Limit{api.LimitPIDs}) || r.Usage == nil {
			t.Errorf("tty %v: %+v", size, r)
		}
		// The subshell has ended. The kernel counts a process for a moment after its end.
		current := filepath.Join(groupOf(t, p, s), "pids.current")
		trltest.Eventually(t, fmt.Sprintf("tty %v: %d processes of %d", size, most-1, most), func() bool {
			text, err := os.ReadFile(current)
			return err == nil && strings.TrimSpace(string(text)) == fmt.Sprint(most-1)
		})
		if peak := r.Usage.PIDsPeak; peak != 0 && peak != most {
			t.Errorf("tty %v: the peak is %d", size, peak)
		}
		if r := sh(t, p, s, "echo alive"); !strings.Contains(r.Stdout, "alive") || r.RolledBack {
			t.Errorf("tty %v: %+v", size, r)
		}
		if r, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID, Force: true}); err != nil || len(r.Survivors) > 0 {
			t.Errorf("tty %v: %+v, %v", size, r, err)
		}
	}
}

// TestCPULimit: a busy command gets its share, within a tenth.
func TestCPULimit(t *testing.T) {
	p := limitedPool(t)
	s := create(t, p, api.SessionCreateParams{Limits: &api.Limits{CPU: 0.2}})
	trltest.Undisturbed(t, func() error {
		r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "while :; do :; done", TimeoutMS: ms(5000)}})
		if r.Outcome != api.OutcomeTimedOut || !slices.Equal(r.LimitHit, []api.Limit{api.LimitCPU}) {
			t.Fatalf("%+v", r)
		}
		share := float64(r.Usage.CPUMS) / 5000
		if share < 0.18 || share > 0.22 {
			return fmt.Errorf("it got %.3f of a processor", share)
		}
		return nil
	})
	if text, err := os.ReadFile(filepath.Join(groupOf(t, p, s), "cpu.max")); err != nil || string(text) != "20000 100000\n" {
		t.Errorf("after a stop the limit is %q, %v", text, err)
	}
}

// TestLimitsOfPrograms: the limits of each process hold in every shell, on a
// terminal, in a direct session, and in a shell that replaces another.
func TestLimitsOfPrograms(t *testing.T) {
	p := newPool(t, Config{})
	limits := &api.Limits{OpenFiles: 32, FileSizeBytes: 4096}
	const show = "echo `ulimit -n` `ulimit -Hn`"
	for _, shell := range []string{"dash", "bash", "zsh", "mksh", "busybox"} {
		for _, size := range []*api.TTYSize{nil, {Rows: 24, Cols: 80}} {
			name := shell
			if shell == "busybox" {
				name = "ash"
			}
			if _, err := findShell(name); err != nil {
				continue
			}
			s := create(t, p, api.SessionCreateParams{Shell: name, Limits: limits, TTY: size})
			if diff := cmp.Diff(&api.LimitsInForce{Limits: *limits}, s.Limits); diff != "" {
				t.Error(diff)
			}
			for _, command := range []string{show, "kill -9 $$", show, "exec true", show} {
				if r := sh(t, p, s, command); command == show && strings.TrimSpace(r.Stdout) != "32 32" {
					t.Errorf("%s, tty %v: %q %q", name, size, r.Stdout, r.Stderr)
				}
			}
			file := filepath.Join(t.TempDir(), "f")
			sh(t, p, s, "head -c 5000 /dev/zero >"+file)
			if st, err := os.Stat(file); err != nil || st.Size() != 4096 {
				t.Errorf("%s, tty %v: %v, %v", name, size, st, err)
			}
		}
	}
}

// TestFileSizeLimitIsReported: only where the kernel says so.
func TestFileSizeLimitIsReported(t *testing.T) {
	p := newPool(t, Config{})
	file := filepath.Join(t.TempDir(), "f")
	s := create(t, p, api.SessionCreateParams{Argv: []string{"head", "-c", "5000", "/dev/zero"}, Limits: &api.Limits{FileSizeBytes: 4096}})
	waitEnd(t, p, s) // its output is a pipe
	if r, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: s.ExecID}); err != nil || r.LimitHit != nil {
		t.Errorf("%+v, %v", r, err)
	}
	s = create(t, p, api.SessionCreateParams{Argv: []string{"sh", "-c", "exec head -c 5000 /dev/zero >" + file}, Limits: &api.Limits{FileSizeBytes: 4096}})
	waitEnd(t, p, s)
	if r, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: s.ExecID}); err != nil || r.Signal != "SIGXFSZ" || !slices.Equal(r.LimitHit, []api.Limit{api.LimitFileSize}) {
		t.Errorf("%+v, %v", r, err)
	}
	s = create(t, p, api.SessionCreateParams{Limits: &api.Limits{FileSizeBytes: 4096}})
	if r := sh(t, p, s, "(exit 153)"); r.LimitHit != nil {
		t.Errorf("a status is no proof: %+v", r)
	}
}

func waitEnd(t *testing.T, p *Pool, s *api.Session) {
	t.Helper()
	waitFor(t, func() bool {
		i, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
		return err == nil && i.State == api.StateTerminated
	})
}

// TestWall: a session ends when its time is over, and its command says why.
func TestWall(t *testing.T) {
	p := newPool(t, Config{Grace: 100 * time.Millisecond})
	begin := time.Now()
	s := create(t, p, api.SessionCreateParams{Limits: &api.Limits{WallMS: 1500}})
	r := sh(t, p, s, "sleep 600")
	if r.Outcome != api.OutcomeCancelled || !slices.Equal(r.LimitHit, []api.Limit{api.LimitWall}) {
		t.Errorf("%+v", r)
	}
	waitEnd(t, p, s)
	i, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
	if err != nil || i.Terminated.Reason != api.ReasonWall || i.Limits.WallMS != 1500 {
		t.Errorf("%+v, %v", i, err)
	}
	if lived := i.Terminated.At.Sub(begin); lived < 1500*time.Millisecond {
		t.Errorf("it lived for %s", lived)
	}
	s = create(t, p, api.SessionCreateParams{Limits: &api.Limits{WallMS: time.Hour.Milliseconds()}})
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
}
