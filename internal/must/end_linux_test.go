package must

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// endTime is how soon after the death of holder and daemon the processes of their
// sessions must be gone.
const endTime = 5 * time.Second

// TestMustEndTogether kills holder, daemon and cleaner in every order and checks
// what is left: no result may be invented, and nothing may stay. Without the
// cleaner it was seen to fail in all cases but the first and the last.
func TestMustEndTogether(t *testing.T) {
	for _, c := range []struct{ name, cgroup string }{{"cgroups", "auto"}, {"tags", "off"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Run("holder", func(t *testing.T) { killHolder(t, c.cgroup) })
			measured(t, "daemon then holder", func(t *testing.T) error {
				r := crowded(t, c.cgroup)
				r.stopThenKill(r.PID, daemonOf(r.PID)) // a stopped holder starts no other daemon
				return r.gone("daemon, then holder")
			})
			measured(t, "daemon then SIGTERM", func(t *testing.T) error {
				r := crowded(t, c.cgroup)
				for _, step := range []struct {
					pid int
					sig unix.Signal
				}{{r.PID, unix.SIGSTOP}, {daemonOf(r.PID), unix.SIGKILL}, {r.PID, unix.SIGTERM}, {r.PID, unix.SIGCONT}} {
					if err := unix.Kill(step.pid, step.sig); err != nil {
						t.Fatal(err)
					}
				}
				r.killed = time.Now()
				return r.gone("the daemon, and SIGTERM")
			})
			measured(t, "daemon and SIGTERM to the next", func(t *testing.T) error {
				r := crowded(t, c.cgroup)
				r.killAndAwaitNext(daemonOf)
				r.terminate()
				return r.gone("the daemon, and SIGTERM to the next")
			})
			measured(t, "SIGTERM", func(t *testing.T) error {
				r := crowded(t, c.cgroup)
				r.terminate()
				return r.gone("SIGTERM")
			})
			measured(t, "both at once", func(t *testing.T) error {
				r := crowded(t, c.cgroup)
				r.stopThenKill(daemonOf(r.PID), r.PID)
				return r.gone("both")
			})
			measured(t, "both in a storm", func(t *testing.T) error {
				r := crowded(t, c.cgroup, storm)
				r.stopThenKill(daemonOf(r.PID), r.PID)
				return r.gone("both in a storm")
			})
			measured(t, "cleaner first", func(t *testing.T) error { return killCleanerFirst(t, c.cgroup) })
			t.Run("all three", func(t *testing.T) { killAllThree(t, c.cgroup) })
			t.Run("whole cgroup", func(t *testing.T) { killCgroup(t, c.cgroup) })
		})
	}
}

// crowd is a daemon whose sessions are full of processes.
type crowd struct {
	*rig
	sessions []string
	victims  []trltest.Process // all descendants of the holder at its death
	killed   time.Time
}

// crowded starts a daemon with sessions, on pipes and on terminals, with
// processes that run, are in the background, have left their session, ignore
// signals, are stopped or frozen.
func crowded(t *testing.T, cgroup string, works ...string) *crowd {
	t.Helper()
	c := &crowd{rig: start(t, "--cgroup", cgroup, "--grace-ms", "500", "--log-level", "warn")}
	c.fill(works...)
	return c
}

func (c *crowd) fill(works ...string) {
	c.t.Helper()
	works = append([]string{"sleep 300", "sh -c 'kill -STOP $$; sleep 300'", "cat", ": "}, works...)
	for _, tty := range []*api.TTYSize{nil, {Rows: 24, Cols: 80}} {
		for i, work := range works {
			frozen := i == 0 && c.cgroup != ""
			s := c.create(api.SessionCreateParams{Shell: shells[i%len(shells)], TTY: tty})
			c.sessions = append(c.sessions, s.SessionID)
			if res := c.run(s, litter+stubborn); len(res.Survivors) < 5 {
				c.t.Fatalf("%d processes in the background of a session, want more: %+v", len(res.Survivors), res)
			}
			if _, err := c.client.Run(c.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: work, StdinOpen: true}, YieldMS: 50}); err != nil {
				c.t.Fatal(err)
			}
			if frozen {
				c.freeze(s)
			}
		}
	}
	if err := eventually(endTime, func() error {
		stopped := 0
		c.victims = trltest.Descendants(c.PID)
		for _, p := range c.victims {
			if p.State == "T" {
				stopped++
			}
		}
		if stopped < 2 || len(c.victims) < 7*len(c.sessions) {
			return fmt.Errorf("%d processes of %d sessions, %d of them stopped; want more", len(c.victims), len(c.sessions), stopped)
		}
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
}

// freeze freezes everything in the cgroup of a session, as a command of root can.
// No process in it receives a signal but SIGKILL, including the leader of its
// terminal.
func (c *crowd) freeze(s *api.Session) {
	c.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", s.PID))
	if err != nil {
		c.t.Fatal(err)
	}
	group := filepath.Join(c.cgroup, filepath.Base(strings.TrimSpace(string(text)))) // the v2 path is in the last line
	if err := os.WriteFile(filepath.Join(group, "cgroup.freeze"), []byte("1"), 0); err != nil {
		c.t.Fatal(err)
	}
}

// terminate sends SIGTERM to the holder, which ends everything.
func (c *crowd) terminate() {
	c.t.Helper()
	if err := unix.Kill(c.PID, unix.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	c.killed = time.Now()
}

// stopThenKill kills some processes as if at the same moment: the first to die
// cannot notify another.
func (c *crowd) stopThenKill(pids ...int) {
	c.t.Helper()
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
		for _, pid := range pids {
			if pid == 0 {
				c.t.Fatal("a process to kill does not exist")
			}
			if err := unix.Kill(pid, sig); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	c.killed = time.Now()
}

// killAndAwaitNext kills a process that the holder restarts, and waits until it
// has.
func (c *crowd) killAndAwaitNext(who func(holder int) int) {
	c.t.Helper()
	first := who(c.PID)
	c.stopThenKill(first)
	if err := eventually(endTime, func() error {
		if next := who(c.PID); next == 0 || next == first {
			return errors.New("the killed process was not restarted")
		}
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
}

// measured runs a subtest whose time is a goal like others: see tries.
func measured(t *testing.T, name string, measure func(t *testing.T) error) {
	t.Run(name, func(t *testing.T) { gauge.Tries(t, measure) })
}

// gone checks that nothing is left of the daemon, and returns an error if it was
// late.
func (c *crowd) gone(who string) error {
	c.t.Helper()
	late := eventually(endTime, c.left)
	if late != nil {
		late = fmt.Errorf("%s after the death of %s: %w", endTime, who, late)
		if err := eventually(trltest.Patience, c.left); err != nil {
			c.t.Fatalf("%s after the death of %s: %v", trltest.Patience, who, err)
		}
	}
	c.tell(who)
	return late
}

func (c *crowd) tell(who string) {
	c.t.Helper()
	gauge.Figures(c.t, "%d processes of %d sessions gone %d ms after the death of %s",
		len(c.victims), len(c.sessions), time.Since(c.killed).Milliseconds(), who)
}

// left returns an error that lists what remains of a daemon that should be gone.
func (c *crowd) left() error {
	err := c.processesLeft()
	for _, name := range filesIn(c.Dir) {
		err = errors.Join(err, fmt.Errorf("file left: %s", name))
	}
	if c.cgroup != "" {
		if _, statErr := os.Stat(c.cgroup); !os.IsNotExist(statErr) {
			err = errors.Join(err, fmt.Errorf("cgroup left: %s", c.cgroup))
		}
	}
	return err
}

// quietPeriod is how long no process may be seen to die: a chain of processes in
// which each starts the next leaves a dead one every few milliseconds.
const quietPeriod = 200 * time.Millisecond

// processesLeft returns an error that lists the remaining processes, including
// dead ones unless they are ours to reap, as they would be init's. A process that
// dies meanwhile shows that something still forks.
func (c *crowd) processesLeft() (err error) {
	reapZombies(c.PID)
	for _, p := range strays() {
		err = errors.Join(err, fmt.Errorf("process left: %s", p))
	}
	if err != nil {
		return err
	}
	time.Sleep(quietPeriod) // absence: nothing forks
	if n := reapZombies(c.PID); n > 0 {
		return fmt.Errorf("something still forks: %d more processes have died", n)
	}
	return nil
}

// reapZombies reaps the processes that became our children when their parent
// died, and returns how many there were. The daemon itself is waited for
// elsewhere.
func reapZombies(but int) (n int) {
	for _, p := range strays() {
		if p.State == "Z" && p.PPID == os.Getpid() && p.PID != but {
			if got, _ := syscall.Wait4(p.PID, nil, syscall.WNOHANG, nil); got == p.PID {
				n++
			}
		}
	}
	return n
}

// killHolder leaves the daemon alive, which reports for a while what happened.
func killHolder(t *testing.T, cgroup string) {
	r := crowded(t, cgroup, storm)
	daemon, cleaner := daemonOf(r.PID), cleanerOf(r.PID)
	r.stopThenKill(r.PID)
	if err := eventually(endTime, func() (err error) {
		reapZombies(r.PID)
		for _, p := range strays() {
			if p.PID != daemon && p.PID != cleaner {
				err = errors.Join(err, fmt.Errorf("process left: %s", p))
			}
		}
		return errors.Join(err, r.allLost())
	}); err != nil {
		t.Errorf("%s after the death of the holder: %v", endTime, err)
	}
	r.tell("the holder in a storm")
	if _, err := r.client.CreateSession(r.ctx, api.SessionCreateParams{}); !api.IsCode(err, api.CodeShuttingDown) {
		t.Errorf("a session after the death of the holder: %v", err)
	}
	_, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: r.sessions[0], Command: "true", StdinOpen: true}})
	if !api.IsCode(err, api.CodeSessionTerminated) {
		t.Errorf("a command after the death of the holder: %v", err)
	}
	if cgroup == "off" { // the other case waits until the daemon exits by itself
		r.restart() // it gives way to the next
	}
	if err := eventually(20*time.Second, r.left); err != nil {
		t.Error(err)
	}
}

// allLost checks that every session is reported as lost.
func (c *crowd) allLost() error {
	list, err := c.client.ListSessions(c.ctx, api.SessionListParams{})
	if err != nil {
		return err
	}
	for _, s := range list.Sessions {
		if s.State != api.StateTerminated || s.Terminated == nil || s.Terminated.Reason != api.ReasonLost {
			err = errors.Join(err, fmt.Errorf("session %s is %s, %+v; want it lost", s.SessionID, s.State, s.Terminated))
		}
	}
	if len(list.Sessions) != len(c.sessions) {
		err = errors.Join(err, fmt.Errorf("%d sessions are listed, want %d", len(list.Sessions), len(c.sessions)))
	}
	return err
}

// killCleanerFirst checks that another cleaner is started and does its work.
func killCleanerFirst(t *testing.T, cgroup string) error {
	r := crowded(t, cgroup)
	first := cleanerOf(r.PID)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", first))
	name, nameErr := os.ReadFile(fmt.Sprintf("/proc/%d/comm", first))
	if err != nil || nameErr != nil || strings.Contains(string(line)+string(name), "trl") {
		t.Errorf("the cleaner is named %q, %q (%v): killing everything named trl would kill it", name, line, errors.Join(err, nameErr))
	}
	r.killAndAwaitNext(cleanerOf)
	r.stopThenKill(daemonOf(r.PID), r.PID)
	return r.gone("the cleaner, and then of both")
}

// killAllThree leaves it to the next start to kill what is left.
func killAllThree(t *testing.T, cgroup string) {
	r := crowded(t, cgroup)
	keepers := []int{cleanerOf(r.PID), daemonOf(r.PID), r.PID}
	r.stopThenKill(keepers...)
	r.await()
	living := 0
	for _, p := range trltest.Remaining(r.victims) {
		if p.State != "Z" && !slices.Contains(keepers, p.PID) {
			living++
		}
	}
	if living < 2*len(r.sessions) { // processes on a terminal end with it
		t.Errorf("%d processes are alive, want more: nothing was there to kill them", living)
	}
	r.restart()
	r.tell("all three, and after a new start")
}

// restart starts another daemon in place of one that died, which must leave no
// trace of the first, and ends it too.
func (c *crowd) restart() {
	c.t.Helper()
	next, err := trltest.Start(trltest.Config{Dir: c.Dir})
	if err != nil {
		c.t.Fatal(err)
	}
	defer next.Kill()
	reapZombies(next.PID)
	if left := trltest.Remaining(c.victims); len(left) > 0 {
		c.t.Errorf("left from the dead daemon after a new start: %v", left)
	}
	if c.cgroup != "" {
		if _, err := os.Stat(c.cgroup); !os.IsNotExist(err) {
			c.t.Errorf("cgroup left from the dead daemon after a new start: %s (%v)", c.cgroup, err)
		}
	}
	fresh, err := client.Dial(c.ctx, next.Socket)
	if err != nil {
		c.t.Fatal(err)
	}
	defer fresh.Close()
	list, err := fresh.ListSessions(c.ctx, api.SessionListParams{})
	if err != nil || len(list.Sessions) > 0 {
		c.t.Errorf("a new start has sessions: %+v, %v", list, err)
	}
	if err := next.Stop(); err != nil {
		c.t.Error(err)
	}
	if err := c.left(); err != nil {
		c.t.Error(err)
	}
}

// killCgroup kills all processes at once, as a service manager or the kernel's
// OOM killer does. Only the next start can clean up.
func killCgroup(t *testing.T, cgroup string) {
	probe := start(t)
	probe.stop()
	if probe.cgroup == "" {
		trltest.Need(t, errors.New("no cgroup v2 hierarchy is writable here"))
	}
	group := filepath.Join(filepath.Dir(probe.cgroup), "must-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eventually(endTime, func() error { return os.Remove(group) }); err != nil {
			t.Error(err)
		}
	})
	join := func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
	}
	// Processes start in the cgroup of their parent.
	var r *crowd
	func() {
		join(group)
		defer join(filepath.Dir(group))
		r = crowded(t, cgroup)
	}()
	if cgroup != "off" && filepath.Dir(r.cgroup) != group {
		t.Fatalf("the daemon's cgroups are in %q, want %s", r.cgroup, group)
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	r.killed = time.Now()
	r.await()
	if err := eventually(endTime, r.processesLeft); err != nil {
		t.Error(err)
	}
	func() {
		join(group)
		defer join(filepath.Dir(group))
		r.restart()
	}()
	r.tell("their whole cgroup, and after a new start")
}

// await waits until the killed holder has been reaped.
func (c *crowd) await() {
	c.t.Helper()
	if err := eventually(endTime, func() error {
		if c.Running() {
			return errors.New("the holder is still alive")
		}
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
}
