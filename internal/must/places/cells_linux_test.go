package places

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// What confined sessions may cost.
const (
	cellOverPlace = 1.2      // exec.run true, over the same in a place behind `trl connect`
	cellOverServe = 2        // session.create and a first command, over the same with a daemon that is started for it
	cellMemory    = 10 << 20 // of all processes of a cell
	cellsListed   = 5        // session.list, over that of as many sessions without isolation
	cellsEnd      = 10 * time.Second
)

// shorter divides the calls of a round, and multiplies the rounds: five processes take
// part in each call, so a long round is rarely undisturbed on two processors.
const shorter = 5

// confined returns the isolation that is measured: as much as this machine can
// enforce without another user.
func confined(t *testing.T, r *rig) *api.Isolation {
	t.Helper()
	info, err := r.client.SystemInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	iso := &api.Isolation{NoNewPrivs: true}
	for _, name := range info.Isolates {
		switch name {
		case "filesystem":
			iso.Filesystem = &api.Filesystem{Write: []string{r.Dir}}
		case "network":
			iso.Network = &api.Network{Mode: api.NetworkNone}
		case "processes":
			iso.Processes = api.IsolationProcessesOwn
		case "seccomp":
			iso.Seccomp = api.IsolationSeccompDefault
		}
	}
	return iso
}

// TestMustConfineFast compares a confined session with a place without confinement,
// and its start with that of a daemon.
func TestMustConfineFast(t *testing.T) {
	argv, _ := far(t, "far")
	r := start(t, commandTable("far", argv))
	iso := confined(t, r)
	t.Run("latency", func(t *testing.T) {
		inCell := r.runsIn(r.create(api.SessionCreateParams{Shell: "dash", Isolation: iso}).SessionID)
		inPlace := r.runs("cmd:far")
		inCell.N, inPlace.N = inCell.N/shorter, inPlace.N/shorter
		var over float64
		for i := range shorter * gauge.Rounds {
			if err := errors.Join(inCell.Round(), inPlace.Round()); err != nil {
				t.Fatal(err)
			}
			if over = gauge.Ratio(inCell.Best, inPlace.Best); i >= shorter*gauge.RoundsLeast && over <= cellOverPlace {
				break
			}
		}
		gauge.Figures(t, "exec.run true p50 %v = %.2f × in a place without confinement (%v)", inCell.Best, over, inPlace.Best)
		if over > cellOverPlace {
			t.Errorf("exec.run true takes %.2f × as long as in a place without confinement, want at most %.1f", over, cellOverPlace)
		}
	})
	t.Run("start", func(t *testing.T) {
		// Both are timed from the start to the first result: ending them does not count.
		var inCell, serve, allCells, allServes []time.Duration
		var over float64
		best := func(round []time.Duration, do func() (time.Duration, error)) time.Duration {
			t.Helper()
			for range 3 {
				took, err := do()
				if err != nil {
					t.Fatal(err)
				}
				round = append(round, took)
			}
			return gauge.Median(round)
		}
		for i := range gauge.RoundsLeast {
			allCells = append(allCells, best(nil, func() (time.Duration, error) { return r.firstCommand(iso) }))
			allServes = append(allServes, best(nil, serveFirstCommand))
			inCell, serve = slices.Sorted(slices.Values(allCells)), slices.Sorted(slices.Values(allServes))
			if over = gauge.Ratio(inCell[0], serve[0]); i >= 5 && over <= cellOverServe {
				break
			}
		}
		gauge.Figures(t, "session.create and a command p50 %v = %.2f × with a daemon that is started for it (%v); in all rounds %v and %v", inCell[0], over, serve[0], gauge.Median(allCells), gauge.Median(allServes))
		if over > cellOverServe {
			t.Errorf("session.create and a command take %.2f × as long as with a daemon that is started for it, want at most %d", over, cellOverServe)
		}
	})
	r.stop()
}

// firstCommand creates a confined session and runs a command in it. It returns how
// long that took, and destroys the session.
func (r *rig) firstCommand(iso *api.Isolation) (time.Duration, error) {
	began := time.Now()
	s, err := r.client.CreateSession(r.t.Context(), api.SessionCreateParams{Shell: "dash", Isolation: iso})
	if err != nil {
		return 0, err
	}
	_, err = r.client.Run(r.t.Context(), runParams(s.SessionID, "true"))
	took := time.Since(began)
	if err == nil {
		_, err = r.client.DestroySession(r.t.Context(), api.SessionDestroyParams{SessionID: s.SessionID})
	}
	return took, err
}

// serveFirstCommand does the same with a daemon that it starts and stops.
func serveFirstCommand() (took time.Duration, err error) {
	binary, err := trltest.Binary()
	if err != nil {
		return 0, err
	}
	dir, err := trltest.NewDir()
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s.sock")
	cmd := exec.Command(binary, "serve", "--socket", socket)
	cmd.Env = trltest.Environ(dir)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
	}()
	var l *gauge.Lines
	for deadline := time.Now().Add(trltest.Patience); ; {
		if l, err = gauge.DialLines(socket); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return 0, err
		}
		time.Sleep(time.Millisecond) // poll: the daemon is starting
	}
	defer l.Conn.Close()
	answer, err := l.Ask([]byte(`{"jsonrpc":"2.0","id":1,"method":"session.create","params":{"shell":"dash"}}` + "\n"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(answer), `"session_id":"`)
	id, _, found := strings.Cut(rest, `"`)
	if !found {
		return 0, fmt.Errorf("session.create: %s", answer)
	}
	err = gauge.AskTrue(l, gauge.RunLine(id))
	return time.Since(began), err
}

// manyCells is how many confined sessions there are at once.
func manyCells() int {
	if long {
		return 200
	}
	return 40
}

// TestMustHoldManyCells: many confined sessions are small, are listed quickly,
// outlive their daemon, and leave nothing.
func TestMustHoldManyCells(t *testing.T) {
	r := start(t, "")
	iso := confined(t, r)
	n := manyCells()
	fill := func(iso *api.Isolation) (ids []string) {
		t.Helper()
		var mu sync.Mutex
		var group sync.WaitGroup
		at := make(chan struct{}, manyAtOnce)
		for range n {
			group.Go(func() {
				at <- struct{}{}
				defer func() { <-at }()
				s, err := r.client.CreateSession(t.Context(), api.SessionCreateParams{Shell: "dash", Isolation: iso})
				if err == nil {
					_, err = r.client.Run(t.Context(), runParams(s.SessionID, "x=kept; setsid sleep 1000 >/dev/null 2>&1 &"))
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				ids = append(ids, s.SessionID)
			})
		}
		group.Wait()
		return ids
	}
	list := func() error {
		var got api.SessionListResult
		if err := r.client.Call(t.Context(), api.MethodSessionList, api.SessionListParams{Alive: true}, &got); err != nil {
			return err
		}
		if len(got.Sessions) != n {
			return fmt.Errorf("%d sessions are listed, want %d", len(got.Sessions), n)
		}
		return nil
	}
	measure := func() time.Duration {
		t.Helper()
		s := &gauge.Series{N: 20, Do: list}
		for range 5 {
			if err := s.Round(); err != nil {
				t.Fatal(err)
			}
		}
		return s.Best
	}
	destroy := func(ids []string) {
		t.Helper()
		var group sync.WaitGroup
		at := make(chan struct{}, manyAtOnce)
		for _, id := range ids {
			group.Go(func() {
				at <- struct{}{}
				defer func() { <-at }()
				if _, err := r.client.DestroySession(t.Context(), api.SessionDestroyParams{SessionID: id}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	plain := fill(nil)
	plainList := measure()
	destroy(plain)
	before := trltest.Descendants(r.PID)
	began := time.Now()
	cells := fill(iso)
	took := time.Since(began)
	cellList := measure()
	theirs := newer(trltest.Descendants(r.PID), before)
	memory := proportional(t, theirs) / int64(n)
	gauge.Figures(t, "%d confined sessions were created in %v; %.1f MiB and %.1f processes each; session.list %v = %.2f × that of as many others (%v)",
		n, took.Round(time.Millisecond), float64(memory)/(1<<20), float64(len(theirs))/float64(n), cellList, gauge.Ratio(cellList, plainList), plainList)
	if memory > cellMemory {
		t.Errorf("a confined session takes %d bytes, want at most %d", memory, cellMemory)
	}
	if over := gauge.Ratio(cellList, plainList); over > cellsListed {
		t.Errorf("session.list takes %.1f × as long as without isolation, want at most %d", over, cellsListed)
	}
	info, err := r.client.SystemInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(info.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	trltest.Eventually(t, "another daemon serves", func() bool {
		c, err := client.Dial(t.Context(), r.Socket)
		if err != nil {
			return false
		}
		now, err := c.SystemInfo(t.Context())
		if err != nil || now.PID == info.PID {
			c.Close()
			return false
		}
		r.client.Close()
		r.client = c
		return true
	})
	for _, id := range cells {
		if got := r.run(id, "echo $x"); got != "kept\n" {
			t.Errorf("%s after a restart: %q", id, got)
		}
	}
	destroy(cells[:n/2])
	trltest.Eventually(t, "half of the cells are gone", func() bool { return len(trltest.Remaining(theirs)) <= len(theirs)/2+n })
	if info, err = r.client.SystemInfo(t.Context()); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	for _, pid := range []int{r.PID, info.PID} {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	trltest.Eventually(t, "the cleaner has killed all", func() bool { return len(trltest.Remaining(theirs)) == 0 })
	if took := time.Since(began); took > cellsEnd {
		t.Errorf("the cleaner took %v, want at most %v", took, cellsEnd)
	} else {
		gauge.Figures(t, "nothing is left %v after the holder and the daemon were killed", took.Round(time.Millisecond))
	}
}

// newer returns the processes that are not in before.
func newer(now, before []trltest.Process) (added []trltest.Process) {
	known := map[int]bool{}
	for _, p := range before {
		known[p.PID] = true
	}
	for _, p := range now {
		if !known[p.PID] && p.State != "Z" {
			added = append(added, p)
		}
	}
	return added
}

// proportional returns the memory of processes, with their share of what they have
// in common with others, but for those that commands started.
func proportional(t *testing.T, processes []trltest.Process) (sum int64) {
	t.Helper()
	for _, p := range processes {
		if p.Name == "sleep" {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID))
		if err != nil {
			continue // it has exited: a standby was replaced
		}
		_, rest, _ := strings.Cut(string(text), "\nPss:")
		number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		kib, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		sum += kib << 10
	}
	return sum
}
