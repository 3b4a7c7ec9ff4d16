package must

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// The goals, as ratios to baselines measured in the same run.
const (
	fastOverBare  = 2.5 // exec.run true, over a bare driver and a bare socket
	fastOverSpawn = 5.0 // spawning sh -c true, over exec.run true
	fastParallel  = 2.0 // execs per second of sixteen sessions, over spawns per second
)

// The rounds of all that is compared have as many calls: the fewer a round has, the
// more rounds are not disturbed, and the shorter is the best. They are a fifth of the
// hundred that fill a round of exec.run, so there are five times as many rounds.
const fewCalls, fewTimes = 20, 5

// TestMustBeFast was seen to fail: latency with a daemon that took 200 µs longer
// for each exec.run (4.7 × bare), and on machines that are too busy to measure.
func TestMustBeFast(t *testing.T) {
	t.Run("latency", latency)
	t.Run("parallel", func(t *testing.T) { gauge.Tries(t, parallel) })
	for _, command := range []string{"head -c %d /dev/zero", "yes | head -c %d"} {
		t.Run(strings.Fields(command)[0], func(t *testing.T) {
			gauge.Tries(t, func(t *testing.T) error { return flood(t, fmt.Sprintf(command, floodBytes)) })
		})
	}
}

// bare is a shell driven in this process, with nothing around it.
type bare struct {
	host   *process.Host
	driver *shell.Driver
	tree   *process.Tree
	sh     *shell.Shell
	mark   uint32
}

func openBare(t *testing.T) *bare {
	t.Helper()
	b := &bare{}
	var errs [3]error
	b.host, errs[0] = process.NewHost(process.Config{})
	b.driver, errs[1] = shell.OpenDriver(shell.DriverConfig{})
	b.tree, errs[2] = b.host.NewTree("bare")
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	program, ok := shell.Find("dash")
	if !ok {
		t.Fatal("dash is not installed")
	}
	var err error
	if b.sh, err = b.driver.Open(t.Context(), shell.Config{Tree: b.tree, Program: program, Env: os.Environ()}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bare) run() error {
	b.mark++
	res, err := b.sh.Run(shell.Command{Text: "true", Stdout: os.DevNull, Stderr: os.DevNull, Mark: b.mark})
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("exit code %d", res.Code)
	}
	return err
}

func (b *bare) close() error {
	b.sh.Abandon()
	b.tree.Kill(time.Now().Add(5 * time.Second))
	return errors.Join(b.sh.Close(), b.driver.Close(), b.host.Close())
}

func spawn() error { return exec.Command("sh", "-c", "true").Run() }

// latency measures commands one after the other. The rounds of the operations
// compared are interleaved, so that each gets its share of the machine's quiet
// moments.
func latency(t *testing.T) {
	r := start(t)
	echo := startEcho(t)
	b := openBare(t)
	s := r.create(api.SessionCreateParams{Shell: "dash"})
	viaClient := r.create(api.SessionCreateParams{Shell: "dash"})
	direct, line := r.dialDirect(), gauge.RunLine(s.SessionID)
	driver := &gauge.Series{N: fewCalls, Do: b.run}
	socket := &gauge.Series{N: fewCalls, Do: func() error { _, err := echo.Ask(line); return err }}
	trl := &gauge.Series{N: fewCalls, Do: func() error { return gauge.AskTrue(direct, line) }}
	library := &gauge.Series{N: fewCalls, Do: func() error {
		_, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: viaClient.SessionID, Command: "true"}})
		return err
	}}
	spawned := &gauge.Series{N: fewCalls, Do: spawn}
	var over, under float64
	for i := range fewTimes * gauge.Rounds {
		if err := errors.Join(driver.Round(), socket.Round(), trl.Round(), library.Round(), spawned.Round()); err != nil {
			t.Fatal(err)
		}
		over, under = gauge.Ratio(trl.Best, driver.Best+socket.Best), gauge.Ratio(spawned.Best, trl.Best)
		if i >= fewTimes*gauge.RoundsLeast && over <= fastOverBare && under >= fastOverSpawn {
			break
		}
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
	r.client.Close()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	all := gauge.Median(trl.All)
	gauge.Figures(t, "exec.run true p50 %v (in all rounds %v, p99 %v) = %.2f × (driver %v + socket %v), %.1f × faster than sh -c true (%v); through the client package %v",
		trl.Best, all, trl.All[len(trl.All)*99/100], over, driver.Best, socket.Best, under, spawned.Best, library.Best)
	if over > fastOverBare || under < fastOverSpawn {
		t.Errorf("exec.run true is %.2f × bare, want at most %.1f, and %.1f × faster than spawning, want at least %.1f",
			over, fastOverBare, under, fastOverSpawn)
	}
}

// rate calls fn for a while from several goroutines, and returns the total number
// of calls per second.
func rate(workers int, d time.Duration, fn func(worker int) error) (float64, error) {
	counts := make([]int, workers)
	errs := make([]error, workers)
	began := time.Now()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for time.Since(began) < d && errs[w] == nil {
				errs[w] = fn(w)
				counts[w]++
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / time.Since(began).Seconds(), errors.Join(errs...)
}

// parallel measures sixteen sessions at once, each on its own connection.
func parallel(t *testing.T) error {
	const sessions, long = 16, 2 * time.Second
	r := start(t)
	conns, requests := make([]*gauge.Lines, sessions), make([][]byte, sessions)
	for i := range sessions {
		s := r.create(api.SessionCreateParams{Shell: "dash"})
		conns[i], requests[i] = r.dialLines(), gauge.RunLine(s.SessionID)
	}
	before, err1 := rate(1, long/2, func(int) error { return spawn() })
	execs, err2 := rate(sessions, long, func(w int) error { return gauge.AskTrue(conns[w], requests[w]) })
	after, err3 := rate(1, long/2, func(int) error { return spawn() })
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	r.client.Close()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	spawns := (before + after) / 2
	gauge.Figures(t, "16 sessions %.0f execs/s = %.1f × sequential sh -c true (%.0f/s)", execs, execs/spawns, spawns)
	if execs < fastParallel*spawns {
		return fmt.Errorf("16 sessions run %.1f × as many commands per second as sequential spawning, want at least %.1f", execs/spawns, fastParallel)
	}
	return nil
}
