package must

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	churnClients = 12
	churnEnded   = 1000 // ended sessions that are kept all the time
	// churnWrong is the number of wrong results after which the test stops early.
	churnWrong = 10
	// churnFDs bounds how many more descriptors holder and daemon may have open
	// at the end than at the first idle point: connections that are being closed.
	// A descriptor leaked by one command in a hundred would be many more.
	churnFDs = 8
	// churnMemory bounds how much the memory of the holder and of the daemon may
	// have grown by then: each heap may or may not just have been collected.
	churnMemory = 12 << 20
	// churnRolledBack is in how many kills one shell may lose state, which the
	// result must report. It happens when a shell exits while the next daemon
	// takes over.
	churnRolledBack = 4
)

// churned returns how often the daemon is killed and upgraded under the churn. In
// between it runs for some seconds, or dies while it adopts.
func churned() (kills, upgrades int) {
	if os.Getenv("TRL_LONG") == "1" {
		return 2000, 200
	}
	return 60, 12
}

// TestMustSurviveChurn has clients create, use and destroy sessions while the
// daemon is killed and upgraded and a thousand ended sessions are kept. Every
// command prints its own id. Clients compare every byte and exit status, and the log
// must not report a loss.
func TestMustSurviveChurn(t *testing.T) {
	rnd := seeded(t)
	kills, upgrades := churned()
	config := filepath.Join(t.TempDir(), "config.toml")
	keepEnded(t, config, churnEnded)
	r, binary := startInstalled(t, "--config", config, "--log-level", "warn", "--max-sessions", "300", "--grace-ms", "1000")
	ch := &churn{rig: r, binary: binary, config: config}

	ch.warmUp(rnd)
	first := ch.measureIdle(1)
	ch.makeEnded()
	began := time.Now()
	end := ch.begin(rnd)
	ch.disturb(rnd, kills, upgrades)
	end()
	took := time.Since(began)
	kept := ch.measureIdle(churnEnded)
	last := ch.measureIdle(1)

	for _, wrong := range ch.wrong {
		t.Error(wrong)
	}
	losses := unexpectedWarnings(r.Log())
	for _, line := range losses[:min(len(losses), 20)] {
		t.Errorf("unexpected log line: %s", line)
	}
	gauge.Figures(t, "%d clients ran %d commands in %d sessions in %s, under %d kill -9 and %d upgrades, with %d ended sessions kept: %d wrong results, %d losses in the log, %d commands rolled back, and reported; holder and daemon: %s at first, %s at the end, %s with the ended sessions",
		churnClients, ch.commands.Load(), ch.sessions.Load(), took.Round(time.Second), ch.kills.Load(), ch.upgrades.Load(), churnEnded, len(ch.wrong), len(losses), ch.rolledBack.Load(), first, last, kept)
	if n := ch.rolledBack.Load(); n > ch.kills.Load()/churnRolledBack {
		t.Errorf("%d commands were rolled back, want at most one in %d kills", n, churnRolledBack)
	}
	if last.fds > first.fds+churnFDs || last.holder.anonymous > first.holder.anonymous+churnMemory || last.daemon.anonymous > first.daemon.anonymous+churnMemory {
		t.Errorf("holder and daemon have %s, want at most %s", last, first)
	}
	r.reconnect()
	r.stop()
}

// churn is the state that all clients share.
type churn struct {
	*rig
	binary, config string

	commands, sessions atomic.Int64
	kills, upgrades    atomic.Int64
	rolledBack         atomic.Int64 // commands whose result reports that the shell lost state; see errRolledBack

	mu      sync.Mutex
	wrong   []error
	unknown []string // names of sessions that may exist: the answer to create was lost
	stopped bool     // there were too many failures
}

func (ch *churn) report(err error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.wrong = append(ch.wrong, err)
	ch.stopped = len(ch.wrong) >= churnWrong
}

func (ch *churn) tooManyFailures() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.stopped || ch.ctx.Err() != nil
}

// begin starts the clients and returns a function that ends them: each finishes
// its current step.
func (ch *churn) begin(rnd *rand.Rand) (end func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	for n := range churnClients {
		c, err := client.DialWith(ch.ctx, ch.Socket, client.Options{Patience: outlivePatience})
		if err != nil {
			ch.t.Fatal(err)
		}
		a := &churner{churn: ch, client: c, n: n, rnd: rand.New(rand.NewPCG(rnd.Uint64(), uint64(n)))}
		wg.Go(func() {
			defer c.Close()
			for a.round = 0; !ch.tooManyFailures(); a.round++ {
				if err := a.runSession(over); err != nil {
					ch.report(fmt.Errorf("client %d, session %s (%s), command %d: %w", n, a.session, a.shell, a.count, err))
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	return func() {
		close(over)
		wg.Wait()
	}
}

// warmUp waits until every kind of work has been done and the daemon has been
// killed and upgraded, so that the first idle point is like the last.
func (ch *churn) warmUp(rnd *rand.Rand) {
	end := ch.begin(rnd)
	ch.disturb(rnd, 2, 1)
	end()
	ch.commands.Store(0)
	ch.sessions.Store(0)
	ch.rolledBack.Store(0)
	ch.kills.Store(0)
	ch.upgrades.Store(0)
}

// keepEnded writes a configuration that keeps n ended sessions.
func keepEnded(t *testing.T, config string, n int) {
	t.Helper()
	if err := os.WriteFile(config, fmt.Appendf(nil, "max_terminated = %d\n", n), 0o600); err != nil {
		t.Fatal(err)
	}
}

// makeEnded creates as many ended sessions as are kept.
func (ch *churn) makeEnded() {
	ch.t.Helper()
	ch.reconfigure(churnEnded)
	if err := ch.makeHistory(churnEnded); err != nil {
		ch.t.Fatal(err)
	}
}

// makeHistory creates sessions that have ended: most ran one command, and every
// fifth is a shell that ran several, one of them with much output.
func (r *rig) makeHistory(n int) error {
	c, err := client.Dial(r.ctx, r.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := inParallel(n, 8, func(i int) error {
		if i%5 > 0 {
			_, err := c.CreateSession(r.ctx, api.SessionCreateParams{Argv: []string{"echo", fmt.Sprint("ended ", i)}})
			return err
		}
		s, err := c.CreateSession(r.ctx, api.SessionCreateParams{Shell: "dash"})
		if err != nil {
			return err
		}
		for _, command := range []string{"cd /usr", fmt.Sprint("echo ended ", i), "head -c 200000 /dev/zero"} {
			if _, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command}}); err != nil {
				return err
			}
		}
		_, err = c.DestroySession(r.ctx, api.SessionDestroyParams{SessionID: s.SessionID, Force: true})
		return err
	}); err != nil {
		return err
	}
	return eventually(30*time.Second, func() error { return ended(r, c, n) })
}

// ended returns an error unless the daemon knows n ended sessions.
func ended(r *rig, c *client.Client, n int) error {
	st, err := c.Stats(r.ctx)
	if err == nil && st.Sessions[api.StateTerminated] != n {
		err = fmt.Errorf("%d ended sessions are known, want %d", st.Sessions[api.StateTerminated], n)
	}
	return err
}

// reconfigure makes the daemon keep another number of ended sessions.
func (ch *churn) reconfigure(n int) {
	ch.t.Helper()
	keepEnded(ch.t, ch.config, n)
	if out, err := ch.command(ch.binary, "upgrade").CombinedOutput(); err != nil {
		ch.t.Fatalf("upgrade: %s, %v", out, err)
	}
}

// disturb kills the daemon at random moments and upgrades it now and then.
func (ch *churn) disturb(rnd *rand.Rand, kills, upgrades int) {
	every := kills / upgrades
	for n := 1; n <= kills && !ch.tooManyFailures(); n++ {
		// Some daemons die while they adopt, and some after they have worked long
		// enough to have rewritten the state for the next daemon.
		life := time.Duration(rnd.IntN(300)) * time.Millisecond
		if rnd.IntN(4) > 0 {
			life = time.Second + time.Duration(rnd.IntN(4000))*time.Millisecond
		}
		time.Sleep(life) // pace: a random moment
		ch.kill()
		if n%every == 0 && int(ch.upgrades.Load()) < upgrades {
			ch.upgrade(rnd, n/every%4 == 3)
		}
	}
}

// kill kills the daemon, or the next one if none is running.
func (ch *churn) kill() {
	for ch.ctx.Err() == nil {
		if pid := daemonOf(ch.PID); pid != 0 && killed(pid) {
			ch.kills.Add(1) // before any of its unfinished calls can be answered
			return
		}
		time.Sleep(time.Millisecond) // poll: the holder is about to start it
	}
}

// upgrade installs the other of two binaries and upgrades. If disturbed, the
// daemon is killed meanwhile, and then any result of `trl upgrade` is accepted.
func (ch *churn) upgrade(rnd *rand.Rand, disturbed bool) {
	find := trltest.Binary
	if ch.upgrades.Load()%2 == 0 {
		find = trltest.OtherBinary
	}
	binary, err := find()
	if err == nil {
		err = trltest.Install(binary, ch.binary)
	}
	if err != nil {
		ch.report(err)
		return
	}
	cmd := ch.command(ch.binary, "upgrade")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		ch.report(err)
		return
	}
	if disturbed {
		time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond) // pace: a random moment
		ch.kill()
	}
	if err := cmd.Wait(); err != nil && !disturbed {
		ch.report(fmt.Errorf("upgrade: %s, %w", said.String(), err))
	}
	ch.upgrades.Add(1)
}

// resourceUse is what holder and daemon have open and in memory when idle.
type resourceUse struct {
	fds            int
	holder, daemon resident
}

func (h resourceUse) String() string {
	return fmt.Sprintf("%d descriptors and %.1f + %.1f MiB", h.fds, mib(h.holder.anonymous), mib(h.daemon.anonymous))
}

// measureIdle destroys the sessions whose create answer was lost, lets the daemon
// forget all but that many ended sessions, and measures the next daemon and the
// holder.
func (ch *churn) measureIdle(ended int) resourceUse {
	ch.t.Helper()
	ch.reconfigure(ended)
	ch.reconnect()
	list, err := ch.client.ListSessions(ch.ctx, api.SessionListParams{})
	if err != nil {
		ch.t.Fatal(err)
	}
	for _, s := range list.Sessions {
		switch {
		case s.State == api.StateTerminated:
		case slices.Contains(ch.unknown, s.Name):
			ch.destroy(s.SessionID)
		default:
			ch.report(fmt.Errorf("session %s (%s) is %s after its client destroyed it", s.SessionID, s.Name, s.State))
		}
	}
	if err := eventually(30*time.Second, func() error {
		st, err := ch.client.Stats(ch.ctx)
		if err == nil && st.Sessions[api.StateTerminated] > ended {
			err = fmt.Errorf("%d ended sessions are kept, want at most %d", st.Sessions[api.StateTerminated], ended)
		}
		return err
	}); err != nil {
		ch.t.Fatal(err)
	}
	ch.killDaemon() // the next one has never had more than this
	h := resourceUse{fds: ch.footprint().fds.held}
	var errs [2]error
	h.holder, errs[0] = residentOf(ch.PID)
	h.daemon, errs[1] = residentOf(daemonOf(ch.PID))
	if err := errors.Join(errs[:]...); err != nil {
		ch.t.Fatal(err)
	}
	return h
}

// expectedWarnings are the events and messages of the log, at level warning and
// above, that killing a daemon causes. Any other one fails the test.
var expectedWarnings = []string{
	`"event":"daemon_died"`,
	"timeout expired while no daemon was running",
	"killing orphan of a session that is gone", // a session that was just being created
}

// unexpectedWarnings returns the lines of a log that must not be there.
func unexpectedWarnings(log string) (lines []string) {
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		var record struct{ Level string }
		if err := json.Unmarshal([]byte(line), &record); err == nil && record.Level != "WARN" && record.Level != "ERROR" {
			continue
		}
		if line != "" && !slices.ContainsFunc(expectedWarnings, func(s string) bool { return strings.Contains(line, s) }) {
			lines = append(lines, line)
		}
	}
	return lines
}
