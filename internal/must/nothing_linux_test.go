package must

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	nothingSessions = 500
	nothingLast     = 50 // how many of those are left until the daemon exits
	nothingAtOnce   = 32
	// stormsAtOnce bounds the storms: each is several chains of processes, and
	// twenty chains keep two processors busy with fork and exec alone.
	stormsAtOnce = 5
	stormChains  = 4
	// spareFDs is what the daemon may keep for later: 64 sets of two pipes, and
	// the status pipe of its shells, of which it also has both ends.
	spareFDs = 64*4 + 2
)

// litter is what a session has in the background before its last command: jobs, a
// daemon that has double-forked into its own session and has a child in yet
// another, and output that does not fit into memory.
const litter = `sleep 300 &
(setsid sh -c 'sleep 300 & (setsid sleep 300 &); exec sleep 300' </dev/null >/dev/null 2>&1 &)
(setsid sleep 300 &)
head -c 200000 /dev/zero
`

// stubborn is litter that ignores SIGTERM.
const stubborn = `sh -c 'trap "" TERM HUP INT; sleep 300 & wait; sleep 300' &
(setsid sh -c 'trap "" TERM HUP; exec sleep 300' &)
`

// works are last commands. None ends by itself.
var works = []string{
	"sleep 300",
	"while :; do :; done",
	"yes | cat >/dev/null",
	"sleep 300 | sh -c 'trap \"\" TERM; cat'",
	"sh -c 'kill -STOP $$'",
	"sh -c 'trap \"\" TERM; sleep 300 & wait; sleep 300'",
	"head -c 1000000 /dev/zero; sleep 300",
	"exec sleep 300",
	"cat", // reads an open stdin
}

// storm is a work too: chains of processes in which each starts the next and
// exits, so that a visible process is never the one to kill. A chain is bounded,
// but longer than any attempt to kill it lasts, in case the test itself is
// killed.
var storm = fmt.Sprintf(`S='[ $1 -gt 0 ] && sh -c "$0" "$0" $(($1-1)) &'
for i in $(seq %d); do setsid sh -c "$S" "$S" 20000 & sh -c "$S" "$S" 20000 & done
sleep 300`, stormChains/2)

// ending is how a last command, or its session, is ended.
type ending int

const (
	byTimeout ending = iota
	byCancel
	byDestroy
	byForce
	endings
)

// life is the course of one session.
type life struct {
	shell, litter, work string
	storm               bool
	tty                 *api.TTYSize // half of them are on a terminal
	end                 ending
	force               bool          // for the destroy after a timeout or cancel
	after               time.Duration // running time
}

// String describes a life in a failure message.
func (l life) String() string {
	return fmt.Sprintf("%s, on a terminal %t, stubborn %t, %q, ended %s after %v, then force %t",
		l.shell, l.tty != nil, l.litter != litter, l.work, [...]string{"by timeout", "by cancel", "by destroy", "by force"}[l.end], l.after, l.force)
}

func randomLife(rng *rand.Rand) life {
	l := life{
		shell: shells[rng.IntN(len(shells))], litter: litter, work: works[rng.IntN(len(works))],
		end: ending(rng.IntN(int(endings))), force: rng.IntN(2) == 0,
		after: time.Duration(5+rng.IntN(150)) * time.Millisecond,
	}
	if rng.IntN(2) == 0 {
		l.tty = &api.TTYSize{Rows: 24, Cols: 80}
	}
	if rng.IntN(3) == 0 {
		l.litter += stubborn
	}
	if l.storm = rng.IntN(20) == 0; l.storm {
		l.work = storm
	}
	return l
}

// TestMustLeaveNothing first verifies that its checks find leftovers when there
// are some; see checkLeftoversFound. It was seen to fail with a daemon that
// skipped every seventh kill, and without cgroups with one whose kills a chain of
// processes could escape unseen.
func TestMustLeaveNothing(t *testing.T) {
	for _, c := range []struct{ name, cgroup string }{{"cgroups", "auto"}, {"tags", "off"}} {
		t.Run(c.name, func(t *testing.T) { leaveNothing(t, c.cgroup) })
	}
}

func leaveNothing(t *testing.T, cgroup string) {
	// Ended sessions are forgotten at once, together with their output. The grace
	// is short to save time; its length is tested elsewhere.
	r := start(t, "--cgroup", cgroup, "--grace-ms", "500", "--session-retention-ms", "1", "--log-level", "warn")
	if cgroup == "auto" && r.cgroup == "" {
		t.Log("no cgroup v2 hierarchy is writable here: this run tracks by tags as well")
	}
	n := &nothing{rig: r, rng: seeded(t), storms: make(chan struct{}, stormsAtOnce)}
	began := time.Now()
	n.runMany(nothingAtOnce) // allocate now what is allocated once
	n.awaitEmpty()
	r.client.Close() // only the checks have a connection, and only while they run
	n.before = n.atRest()
	n.checkLeftoversFound()

	n.runMany(nothingSessions - nothingLast)
	n.awaitEmpty()
	if err := eventually(5*time.Second, n.leftovers); err != nil {
		t.Error(err)
	}
	after := n.atRest()
	lived := time.Since(began)

	// The rest is alive, with running commands, when the daemon exits.
	load := r.dial()
	if err := inParallel(nothingLast, nothingAtOnce, func(int) error { return n.leaveRunning(load) }); err != nil {
		t.Error(err)
	}
	last := len(trltest.Descendants(r.PID))
	n.seen.Add(int64(last))
	if last < 3*nothingLast {
		t.Errorf("%d processes at the end, want several per session", last)
	}
	stopping := time.Now()
	r.stop()
	gauge.Figures(t, "%d sessions, %d processes seen, %d storms: 0 processes, files and cgroups left; fds %d → %d, goroutines %d → %d; %.1f s, SIGTERM with %d processes %.1f s",
		nothingSessions, n.seen.Load(), n.stormy.Load(), n.before.fds.held, after.fds.held, n.before.goroutines, after.goroutines,
		lived.Seconds(), last, time.Since(stopping).Seconds())
}

// nothing is one run of the test.
type nothing struct {
	*rig
	rng    *rand.Rand // used by one goroutine: lives are generated before they run
	storms chan struct{}
	before footprint

	seen, stormy atomic.Int64
}

// runMany runs and destroys sessions, several at once.
func (n *nothing) runMany(count int) {
	n.t.Helper()
	lives := make([]life, count)
	for i := range lives {
		lives[i] = randomLife(n.rng)
	}
	clients := make([]*client.Client, 4)
	for i := range clients {
		clients[i] = n.dial()
	}
	if err := inParallel(count, nothingAtOnce, func(i int) error {
		if err := n.runOne(clients[i%len(clients)], lives[i]); err != nil {
			return fmt.Errorf("%s: %w", lives[i], err)
		}
		return nil
	}); err != nil {
		n.t.Error(err)
	}
	for _, c := range clients {
		c.Close()
	}
}

// runOne runs one session from creation to destruction.
func (n *nothing) runOne(c *client.Client, l life) error {
	if l.storm {
		n.stormy.Add(1)
		n.storms <- struct{}{}
		defer func() { <-n.storms }()
	}
	ctx, cancel := context.WithTimeout(n.ctx, time.Minute)
	defer cancel()
	id, err := n.setUp(ctx, c, l)
	if err != nil {
		return err
	}
	params := api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: id, Command: l.work, StdinOpen: l.work == "cat"}}
	if l.end == byTimeout {
		params.TimeoutMS = ms(l.after.Milliseconds())
		res, err := c.Run(ctx, params)
		if err == nil && !res.TimedOut {
			err = fmt.Errorf("outcome %s, want timed_out", res.Outcome)
		}
		return errors.Join(err, destroyed(ctx, c, id, l.force))
	}
	params.YieldMS = l.after.Milliseconds()
	res, err := c.Run(ctx, params)
	if err == nil && res.State != api.ExecRunning {
		err = fmt.Errorf("outcome %s, want a command that runs", res.Outcome)
	}
	force := l.end == byForce
	if l.end == byCancel && err == nil {
		force = l.force
		var cancelled *api.ExecCancelResult
		if cancelled, err = c.Cancel(ctx, api.ExecCancelParams{ExecID: res.ExecID}); err == nil && !cancelled.Cancelled {
			err = errors.New("the command was not cancelled")
		}
	}
	return errors.Join(err, destroyed(ctx, c, id, force))
}

// setUp creates the session and its litter.
func (n *nothing) setUp(ctx context.Context, c *client.Client, l life) (string, error) {
	s, err := c.CreateSession(ctx, api.SessionCreateParams{Shell: l.shell, TTY: l.tty})
	if err != nil {
		return "", err
	}
	res, err := c.Run(ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: l.litter}})
	if err == nil && len(res.Survivors) < 3 {
		text, _ := json.Marshal(res)
		err = fmt.Errorf("the litter is gone, want at least three processes: %s", text)
	}
	if err == nil {
		n.seen.Add(int64(len(res.Survivors)))
	}
	return s.SessionID, err
}

func destroyed(ctx context.Context, c *client.Client, id string, force bool) error {
	res, err := c.DestroySession(ctx, api.SessionDestroyParams{SessionID: id, Force: force})
	if err == nil && len(res.Survivors) > 0 {
		err = fmt.Errorf("survivors of a destroy: %v", res.Survivors)
	}
	return err
}

// leaveRunning creates a session whose command is running when the daemon exits.
func (n *nothing) leaveRunning(c *client.Client) error {
	ctx, cancel := context.WithTimeout(n.ctx, time.Minute)
	defer cancel()
	l := life{shell: shells[rand.IntN(len(shells))], litter: litter + stubborn, work: works[rand.IntN(len(works))]}
	id, err := n.setUp(ctx, c, l)
	if err != nil {
		return err
	}
	res, err := c.Run(ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: id, Command: l.work, StdinOpen: true}, YieldMS: 1})
	if err == nil && res.State != api.ExecRunning {
		err = fmt.Errorf("%s: %s, want a command that runs", l.work, res.Outcome)
	}
	return err
}

// awaitEmpty waits until the daemon has forgotten all sessions and execs.
func (n *nothing) awaitEmpty() {
	n.t.Helper()
	if err := eventually(trltest.Patience, func() error {
		st := n.stats()
		total := 0
		for _, count := range st.Sessions {
			total += count
		}
		if total+st.ExecsRunning+st.ExecsRetained > 0 || st.JournalMemory+st.JournalSpilled > 0 {
			return fmt.Errorf("sessions %v, execs %d running and %d retained, %d+%d bytes of output; want none",
				st.Sessions, st.ExecsRunning, st.ExecsRetained, st.JournalMemory, st.JournalSpilled)
		}
		return nil
	}); err != nil {
		n.t.Error(err)
	}
}

// atRest returns the footprint after one more command in a session that is then
// destroyed: what is spare depends on what ran last, so the last command is
// always the same.
func (n *nothing) atRest() footprint {
	n.t.Helper()
	c := n.dial()
	defer c.Close()
	s, err := c.CreateSession(n.ctx, api.SessionCreateParams{Shell: "dash"})
	if err == nil {
		_, err = c.Run(n.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true"}})
	}
	if err == nil {
		err = eventually(trltest.Patience, func() error { // it uses spare pipes
			info, err := c.SessionInfo(n.ctx, api.SessionParams{SessionID: s.SessionID})
			if err == nil && !slices.ContainsFunc(info.Processes, func(p api.Process) bool { return p.Role == api.RoleStandby }) {
				err = errors.New("the shell has no standby")
			}
			return err
		})
	}
	if err == nil {
		_, err = c.DestroySession(n.ctx, api.SessionDestroyParams{SessionID: s.SessionID})
	}
	if err != nil {
		n.t.Fatal(err)
	}
	c.Close()
	return n.footprint()
}

// leftovers returns an error that lists what a daemon without sessions should not
// have.
func (n *nothing) leftovers() error {
	var wrong []error
	daemon, cleaner := daemonOf(n.PID), cleanerOf(n.PID)
	for _, p := range trltest.Descendants(n.PID) {
		if p.PID != daemon && p.PID != cleaner {
			wrong = append(wrong, fmt.Errorf("process left: %s", p))
		}
	}
	// Every look at the process table can miss a chain of processes in which each
	// starts the next; but the daemon reaps each of its links.
	reaped := n.stats().Orphans
	time.Sleep(quietPeriod) // absence: nothing forks
	if more := n.stats().Orphans - reaped; more > 0 {
		wrong = append(wrong, fmt.Errorf("something still forks: %d more processes have been reaped", more))
	}
	now := n.atRest()
	if now.fds.held != n.before.fds.held || now.fds.spare > spareFDs {
		wrong = append(wrong, fmt.Errorf("fds left: %d and %d spare, want %d and at most %d spare",
			now.fds.held, now.fds.spare, n.before.fds.held, spareFDs))
	}
	if now.goroutines > n.before.goroutines {
		wrong = append(wrong, fmt.Errorf("goroutines left: %d, want at most %d", now.goroutines, n.before.goroutines))
	}
	if n.cgroup != "" {
		groups, err := filepath.Glob(filepath.Join(n.cgroup, "*", "cgroup.procs"))
		if err != nil || len(groups) > 0 {
			wrong = append(wrong, fmt.Errorf("cgroups left: %v (%v)", groups, err))
		}
	}
	for _, name := range filesIn(n.Dir) {
		if name != "run/trl.sock" && name != "run/trl.sock.lock" {
			wrong = append(wrong, fmt.Errorf("file left: %s", name))
		}
	}
	return errors.Join(wrong...)
}

// checkLeftoversFound checks that leftovers reports each kind of leftover while
// it exists, and not when it is gone.
func (n *nothing) checkLeftoversFound() {
	n.t.Helper()
	if err := eventually(5*time.Second, n.leftovers); err != nil {
		n.t.Errorf("reported without a leftover: %v", err)
	}
	n.client = n.dial()
	s := n.create(api.SessionCreateParams{})
	if _, err := n.client.Run(n.ctx, api.ExecRunParams{
		ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: `echo x >"$TMPDIR/left"; sleep 300`},
		YieldMS:     200,
	}); err != nil {
		n.t.Error(err)
	}
	kinds := []string{"process left", "fds left", "goroutines left", "file left: tmp/left"}
	if n.cgroup != "" {
		kinds = append(kinds, "cgroups left")
	}
	err := n.leftovers()
	for _, kind := range kinds {
		if !complains(err, kind) {
			n.t.Errorf("%q is not reported: %v", kind, err)
		}
	}
	n.destroy(s.SessionID)
	n.client.Close()
	if err := os.Remove(filepath.Join(n.Dir, "tmp", "left")); err != nil {
		n.t.Error(err)
	}
	n.awaitEmpty()
}
