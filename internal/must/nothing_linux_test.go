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
)

const (
	nothingSessions = 500
	nothingLast     = 50 // of those, so many are left to the daemon's end
	nothingAtOnce   = 32
	// stormsAtOnce bounds the storms: each is some chains of processes, and
	// twenty chains keep two processors busy with nothing but fork and exec.
	stormsAtOnce = 5
	stormChains  = 4
	// spareFDs is what the daemon may keep for later: 64 kits of two pipes, and
	// the status pipe of its shells, of which it has both ends too.
	spareFDs = 64*4 + 2
)

// litter is what a session has lying about before its last command: jobs, a
// daemon that has forked twice into a session of its own and has a child in
// yet another, and output that does not fit into memory.
const litter = `sleep 300 &
(setsid sh -c 'sleep 300 & (setsid sleep 300 &); exec sleep 300' </dev/null >/dev/null 2>&1 &)
(setsid sleep 300 &)
head -c 200000 /dev/zero
`

// stubborn is litter that does not go when it is asked to.
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
	"cat", // of an open stdin
}

// storm is a work too: chains of processes in which each starts the next and
// is gone, so that whoever is seen is never the one to kill. A chain ends by
// itself after so many links that whoever is to kill it has given up long
// before, in case that the test is killed and nobody does.
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

// life is what one session goes through.
type life struct {
	shell, litter, work string
	storm               bool
	tty                 *api.TTYSize // half of them are on a terminal
	end                 ending
	force               bool          // the destroy after a timeout or cancel
	after               time.Duration // of running
}

// String is how a life is told in a failure.
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

// TestMustLeaveNothing proves in itself, before it begins, that what it looks
// for is found when it is there; see provesLeftovers. It was seen to fail with a
// daemon that forgot every seventh kill, and without cgroups with one from whose
// kills a chain of processes could run away unseen.
func TestMustLeaveNothing(t *testing.T) {
	for _, c := range []struct{ name, cgroup string }{{"cgroups", "auto"}, {"tags", "off"}} {
		t.Run(c.name, func(t *testing.T) { leaveNothing(t, c.cgroup) })
	}
}

func leaveNothing(t *testing.T, cgroup string) {
	// What has ended is forgotten at once, and with it its output. The grace is
	// short for the sake of time; how long it is, another test knows.
	r := start(t, "--cgroup", cgroup, "--grace-ms", "500", "--session-retention-ms", "1", "--log-level", "warn")
	if cgroup == "auto" && r.cgroup == "" {
		t.Log("no cgroup v2 hierarchy is writable here: this run tracks by tags too")
	}
	n := &nothing{rig: r, rng: seeded(t), storms: make(chan struct{}, stormsAtOnce)}
	began := time.Now()
	n.runMany(nothingAtOnce) // what is made once is made now
	n.awaitEmpty()
	r.client.Close() // only who looks has a connection, and only while it looks
	n.before = n.atRest()
	n.checkLeftoversFound()

	n.runMany(nothingSessions - nothingLast)
	n.awaitEmpty()
	if err := eventually(5*time.Second, n.leftovers); err != nil {
		t.Error(err)
	}
	after := n.atRest()
	lived := time.Since(began)

	// The rest is alive, with commands that run, when the daemon ends.
	load := r.dial()
	if err := inParallel(nothingLast, nothingAtOnce, func(int) error { return n.leaveRunning(load) }); err != nil {
		t.Error(err)
	}
	last := len(trltest.Descendants(r.PID))
	n.seen.Add(int64(last))
	if last < 3*nothingLast {
		t.Errorf("%d processes at the end, want some of each session", last)
	}
	stopping := time.Now()
	r.stop()
	figures(t, "%d sessions, %d processes seen, %d storms: 0 processes, files and cgroups left; fds %d → %d, goroutines %d → %d; %.1f s, SIGTERM with %d processes %.1f s",
		nothingSessions, n.seen.Load(), n.stormy.Load(), n.before.fds.held, after.fds.held, n.before.goroutines, after.goroutines,
		lived.Seconds(), last, time.Since(stopping).Seconds())
}

// nothing is one run of the test.
type nothing struct {
	*rig
	rng    *rand.Rand // used by one goroutine: lives are drawn before they are lived
	storms chan struct{}
	before footprint

	seen, stormy atomic.Int64
}

// live has sessions live and be destroyed, some at once.
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

// one is the life of one session.
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

// settle makes the session and its litter.
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

// leave makes a session whose command runs when the daemon ends.
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

// calm waits until the daemon has forgotten all sessions and execs.
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

// atRest is the footprint after one more command in a session that is destroyed:
// what is spare depends on what ran last, and so that is the same each time.
func (n *nothing) atRest() footprint {
	n.t.Helper()
	c := n.dial()
	defer c.Close()
	s, err := c.CreateSession(n.ctx, api.SessionCreateParams{Shell: "dash"})
	if err == nil {
		_, err = c.Run(n.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true"}})
	}
	if err == nil {
		err = eventually(trltest.Patience, func() error { // it takes what was spare
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

// leftovers says what a daemon without sessions has that it should not have.
func (n *nothing) leftovers() error {
	var wrong []error
	daemon, undertaker := daemonOf(n.PID), cleanerOf(n.PID)
	for _, p := range trltest.Descendants(n.PID) {
		if p.PID != daemon && p.PID != undertaker {
			wrong = append(wrong, fmt.Errorf("process left: %s", p))
		}
	}
	// A chain of processes in which each starts the next can be missed by every
	// look at the process table; but each of its links is reaped by the daemon.
	reaped := n.stats().Orphans
	time.Sleep(quietPeriod) // absence: nothing forks
	if more := n.stats().Orphans - reaped; more > 0 {
		wrong = append(wrong, fmt.Errorf("something forks: %d more processes have been reaped", more))
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

// provesLeftovers sees that each thing that leftovers looks for is found while
// it is there, and not when it is gone.
func (n *nothing) checkLeftoversFound() {
	n.t.Helper()
	if err := eventually(5*time.Second, n.leftovers); err != nil {
		n.t.Errorf("nothing was left yet: %v", err)
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
			n.t.Errorf("%q is not noticed: %v", kind, err)
		}
	}
	n.destroy(s.SessionID)
	n.client.Close()
	if err := os.Remove(filepath.Join(n.Dir, "tmp", "left")); err != nil {
		n.t.Error(err)
	}
	n.awaitEmpty()
}
