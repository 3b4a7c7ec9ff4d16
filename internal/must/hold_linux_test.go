package must

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/daemon"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	heldSessions = 1000
	// heldMemory bounds the cost of the holder: the pages that only it has. Two
	// thirds of its resident set are pages of the binary, which the daemon has
	// too, and how many of those are in memory is up to the kernel.
	heldMemory = 5 << 20
	heldAgain  = time.Second // from the death of a daemon until the next answers for all
	heldTries  = 6
	heldOver   = 1.15 // exec.run true, over a daemon without a holder
)

// TestMustHoldCheaply was seen to fail: sessions were missing when the ledger
// named pipes that had been released.
func TestMustHoldCheaply(t *testing.T) {
	t.Run("sessions", holdSessions)
	t.Run("latency", holdLatency)
}

// resident is the memory of a process.
type resident struct{ rss, pss, anonymous, private int64 }

func residentOf(pid int) (resident, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return resident{}, err
	}
	var r resident
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		to := map[string]*int64{"Rss:": &r.rss, "Pss:": &r.pss, "Anonymous:": &r.anonymous, "Private_Dirty:": &r.private}[fields[0]]
		if to == nil || len(fields) < 2 {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return r, err
		}
		*to = n << 10
	}
	return r, nil
}

func (r resident) String() string {
	return fmt.Sprintf("%.1f MiB (%.1f proportional, %.1f anonymous, %.1f private)", mib(r.rss), mib(r.pss), mib(r.anonymous), mib(r.private))
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// holdSessions creates many sessions and kills the daemon under them.
func holdSessions(t *testing.T) {
	r := start(t, "--max-sessions", fmt.Sprint(heldSessions), "--grace-ms", "1000")
	clients := make(chan *client.Client, scaleAtOnce)
	for range scaleAtOnce {
		clients <- r.dial()
	}
	ids := make([]string, heldSessions)
	if err := inParallel(heldSessions, scaleAtOnce, func(i int) error {
		c := <-clients
		defer func() { clients <- c }()
		s, err := c.CreateSession(r.ctx, api.SessionCreateParams{Shell: "dash"})
		if err != nil {
			return err
		}
		ids[i] = s.SessionID
		_, err = c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: fmt.Sprint("v=", i)}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	holder, err := residentOf(r.PID)
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	best := time.Hour
	for range heldTries {
		d, err := r.adoption(heldSessions)
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, d.Round(time.Millisecond))
		if best = min(best, d); best < heldAgain && len(took) >= 3 {
			break
		}
		time.Sleep(gauge.Pause) // pace: what slows the machine comes in bursts of seconds
	}
	after, err := residentOf(r.PID)
	if err != nil {
		t.Fatal(err)
	}
	r.client = r.dial()
	for i := 0; i < heldSessions; i += 50 {
		res, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: ids[i], Command: "echo $v"}})
		if err != nil || res.Stdout != fmt.Sprintln(i) {
			t.Errorf("session %d returned %+v, %v", i, res, err)
		}
	}
	gauge.Figures(t, "%d sessions: the holder uses %s, and %s after %d deaths of the daemon; the next daemon answered for all after %v",
		heldSessions, holder, after, len(took), took)
	if max(holder.private, after.private) > heldMemory {
		t.Errorf("the holder has %s and then %s resident, want at most %.0f MiB that are private", holder, after, mib(heldMemory))
	}
	if best > heldAgain {
		t.Errorf("%d sessions are available again after %v, want less than %v", heldSessions, best, heldAgain)
	}
	r.stop()
}

// adoption kills the daemon, and returns how long it takes until the next one
// answers for all sessions.
func (r *rig) adoption(sessions int) (time.Duration, error) {
	began := time.Now()
	if err := unix.Kill(daemonOf(r.PID), unix.SIGKILL); err != nil {
		return 0, err
	}
	c, err := client.DialWith(r.ctx, r.Socket, client.Options{Patience: time.Minute})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := c.Ping(r.ctx); err != nil {
		return 0, err
	}
	list, err := c.ListSessions(r.ctx, api.SessionListParams{State: api.StateIdle})
	took := time.Since(began)
	if err == nil && len(list.Sessions) != sessions {
		err = fmt.Errorf("%d of %d sessions are listed", len(list.Sessions), sessions)
	}
	return took, err
}

// noHolderVariable turns this test binary into a daemon without a holder, on the
// socket it names.
const noHolderVariable = "MUST_LONE"

// runNoHolder turns this process into that daemon, if it was started as one.
func runNoHolder() {
	path, ok := os.LookupEnv(noHolderVariable)
	if !ok {
		return
	}
	_ = os.Unsetenv(noHolderVariable)
	env := daemon.SystemEnvironment()
	cfg := daemon.Defaults(env)
	cfg.Socket = path
	err := daemon.Serve(context.Background(), cfg, daemon.Options{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environment: env,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startNoHolder starts a daemon without a holder, and returns its socket and a
// function that stops it.
func startNoHolder(t *testing.T) (socket string, stop func() error) {
	t.Helper()
	dir, err := trltest.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = trltest.SocketIn(dir)
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = filepath.Dir(socket)
	cmd.Env = append(trltest.Environ(dir), noHolderVariable+"="+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if err := eventually(trltest.Patience, func() error { return trltest.Ping(t.Context(), socket) }); err != nil {
		t.Fatal(err)
	}
	return socket, func() error { return errors.Join(cmd.Process.Signal(unix.SIGTERM), cmd.Wait()) }
}

// holdLatency compares short commands with and without a holder. Calls alternate,
// so that both meet the same machine: with a hundred calls of the one and then of
// the other, the ratio was 1.10 to 1.56 on a busy machine, and 1.04 to 1.10 when
// alternating. The quietest rounds count, because other load only adds to a time.
func holdLatency(t *testing.T) {
	r := start(t)
	socket, stop := startNoHolder(t)
	c, err := client.Dial(r.ctx, socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.CreateSession(r.ctx, api.SessionCreateParams{Shell: "dash"})
	if err != nil {
		t.Fatal(err)
	}
	bare, err := gauge.DialLines(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Conn.Close()
	conn, line := r.dialLines(), gauge.RunLine(r.create(api.SessionCreateParams{Shell: "dash"}).SessionID)
	bareLine := gauge.RunLine(s.SessionID)
	held := &gauge.Series{N: 1, Do: func() error { return gauge.AskTrue(conn, line) }}
	lone := &gauge.Series{N: 1, Do: func() error { return gauge.AskTrue(bare, bareLine) }}
	var rounds turns
	var quiet turn
	for i := range gauge.Rounds {
		for range 100 {
			if err := errors.Join(held.Round(), lone.Round()); err != nil {
				t.Fatal(err)
			}
		}
		rounds = append(rounds, turn{gauge.Median(held.All), gauge.Median(lone.All)})
		held.All, lone.All = held.All[:0], lone.All[:0]
		if quiet = rounds.quietest(); i >= gauge.RoundsLeast && quiet.ratio() <= heldOver {
			break
		}
	}
	over := quiet.ratio()
	gauge.Figures(t, "exec.run true p50 %v with a holder, %v without: %.2f × (in %d rounds)", quiet.withHolder, quiet.withoutHolder, over, len(rounds))
	if over > heldOver {
		t.Errorf("with a holder exec.run true takes %.2f × as long, want at most %.2f", over, heldOver)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	r.stop()
}

// turn holds the medians of one round of the same call with and without a holder.
type turn struct{ withHolder, withoutHolder time.Duration }

func (t turn) ratio() float64 { return gauge.Ratio(t.withHolder, t.withoutHolder) }

type turns []turn

// quietest returns the round with the median ratio among the quietest eighth of
// all. Both times together decide which those are, so that neither side is
// favored.
func (all turns) quietest() turn {
	best := slices.Clone(all)
	slices.SortFunc(best, func(a, b turn) int { return cmp.Compare(a.withHolder+a.withoutHolder, b.withHolder+b.withoutHolder) })
	best = best[:(len(best)+7)/8]
	slices.SortFunc(best, func(a, b turn) int { return cmp.Compare(a.ratio(), b.ratio()) })
	return best[len(best)/2]
}
