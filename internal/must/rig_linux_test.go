package must

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// shells are the supported families.
var shells = []string{"dash", "ash", "bash", "zsh", "mksh"}

func TestMain(m *testing.M) {
	process.RunChild() // the bare driver starts its own helpers
	runEcho()
	runTicker()
	runRelay()
	runDrain()
	if err := process.CleanSelf(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	runNoHolder()
	// Whatever a daemon leaves behind when it exits is reparented to this
	// process, however deep it was in the tree, and can be found.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	trltest.Main(m)
}

// rig is a daemon under test with its own client.
type rig struct {
	*trltest.Daemon
	t      *testing.T
	ctx    context.Context // ends in time to clean up, unlike a test that times out
	client *client.Client
	cgroup string // the daemon's cgroup directory, "" if it uses none
}

// cleanUpTime is how long a test that is about to time out has to stop its
// daemon.
const cleanUpTime = 30 * time.Second

// start starts a daemon. The test ends it with stop; after a failure the daemon
// and everything left of it are killed.
func start(t *testing.T, args ...string) *rig {
	t.Helper()
	return startWith(t, trltest.Config{Args: args})
}

// startWith is start with a configuration.
func startWith(t *testing.T, cfg trltest.Config) *rig {
	t.Helper()
	if testing.Short() {
		t.Skip("it measures, and needs the machine for itself")
	}
	daemon, err := trltest.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Daemon: daemon, t: t, ctx: t.Context()}
	cancel := func() {}
	if deadline, ok := t.Deadline(); ok {
		r.ctx, cancel = context.WithDeadline(r.ctx, deadline.Add(-cleanUpTime))
	}
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			log := daemon.Log()
			t.Logf("the daemon is running: %t; its log ends with\n%s", daemon.Running(), log[max(0, len(log)-4000):])
		}
		daemon.Kill()
		killStrays()
		os.RemoveAll(daemon.Dir)
	})
	r.client = r.dial()
	info, err := r.client.SystemInfo(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	r.cgroup = info.Process.Cgroup
	return r
}

// dial returns a client with its own connection.
func (r *rig) dial() *client.Client {
	r.t.Helper()
	c, err := client.Dial(r.ctx, r.Socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// create creates a session.
func (r *rig) create(params api.SessionCreateParams) *api.Session {
	r.t.Helper()
	s, err := r.client.CreateSession(r.ctx, params)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// run runs a command, which must be accepted.
func (r *rig) run(s *api.Session, command string) *api.ExecResult {
	r.t.Helper()
	res, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command}})
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// destroy destroys a session and checks that its processes are gone.
func (r *rig) destroy(id string) {
	r.t.Helper()
	res, err := r.client.DestroySession(r.ctx, api.SessionDestroyParams{SessionID: id, Force: true})
	if err != nil {
		r.t.Fatal(err)
	}
	if len(res.Survivors) > 0 {
		r.t.Errorf("survivors of %s: %v", id, res.Survivors)
	}
}

// stats uses a new connection: the number of goroutines of an older one depends
// on how its requests happened to arrive.
func (r *rig) stats() *api.SystemStats {
	r.t.Helper()
	c := r.dial()
	defer c.Close()
	st, err := c.Stats(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

// stop ends the daemon with SIGTERM and checks for leftovers.
func (r *rig) stop() {
	r.t.Helper()
	r.client.Close()
	if err := r.Stop(); err != nil {
		r.t.Error(err)
	}
	for _, p := range strays() {
		r.t.Errorf("a process outlives the daemon: %s", p)
	}
	for _, name := range filesIn(r.Dir) {
		r.t.Errorf("a file outlives the daemon: %s", name)
	}
	if r.cgroup != "" {
		if _, err := os.Stat(r.cgroup); !errors.Is(err, fs.ErrNotExist) {
			r.t.Errorf("a cgroup outlives the daemon: %s (%v)", r.cgroup, err)
		}
	}
}

// strays returns the descendants of this process: with no daemon running, what a
// daemon left behind.
func strays() []trltest.Process { return trltest.Descendants(os.Getpid()) }

// killStrays kills what a failed test left behind, so that the next test finds
// the machine clean. It opens a pidfd for each process before it checks the
// process again, because the pid may have been reused.
func killStrays() {
	for range 100 {
		left := strays()
		if len(left) == 0 {
			return
		}
		held := map[int]int{}
		for _, p := range left {
			if fd, err := unix.PidfdOpen(p.PID, 0); err == nil {
				held[p.PID] = fd
			}
		}
		for _, p := range trltest.Remaining(left) {
			if fd, ok := held[p.PID]; ok {
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				_, _ = syscall.Wait4(p.PID, nil, syscall.WNOHANG, nil) // it fails unless it is our zombie
			}
		}
		for _, fd := range held {
			unix.Close(fd)
		}
		time.Sleep(10 * time.Millisecond) // poll: killed processes need a moment to become zombies
	}
}

// filesIn lists everything below a daemon's directory except for the three
// directories that the test created.
func filesIn(dir string) []string {
	var found []string
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != dir && filepath.Dir(path) != dir {
			found = append(found, strings.TrimPrefix(path, dir+"/"))
		}
		return nil // files that disappear meanwhile do not count
	})
	return found
}

// fdCount is how many descriptors a process has open, without spare pipes, of
// which the process holds both ends: how many of those a daemon keeps for the
// next commands depends on what ran last, and is bounded.
type fdCount struct{ held, spare int }

func countFDs(pid int) (fdCount, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fdCount{}, err
	}
	pipes := map[string]int{}
	var n fdCount
	for _, e := range entries {
		link, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		n.held++
		if strings.HasPrefix(link, "pipe:") {
			pipes[link]++
		}
	}
	for _, ends := range pipes {
		if ends == 2 {
			n.held -= 2
			n.spare += 2
		}
	}
	return n, nil
}

// footprint is what a daemon and its holder have open and running when idle.
type footprint struct {
	fds        fdCount
	goroutines int
}

// footprint polls until the values are stable for a while: recently closed
// connections are still being torn down, and so is what a burst left spare.
func (r *rig) footprint() footprint {
	r.t.Helper()
	var last footprint
	for same, looks := 0, 0; same < 10 && looks < 100; looks++ {
		holder, err := countFDs(r.PID)
		daemon, daemonErr := countFDs(daemonOf(r.PID))
		if err := errors.Join(err, daemonErr); err != nil {
			r.t.Fatal(err)
		}
		fds := fdCount{held: holder.held + daemon.held, spare: holder.spare + daemon.spare}
		now := footprint{fds: fds, goroutines: r.stats().Goroutines}
		if now == last {
			same++
		} else {
			last, same = now, 0
		}
		time.Sleep(20 * time.Millisecond) // poll: until it is stable for a while
	}
	return last
}

// eventually repeats a check until it succeeds, or returns its last error.
func eventually(patience time.Duration, check func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond) // poll: asking the daemon has a cost
	}
}

// inParallel calls fn for 0 to n-1, at most atOnce concurrently, and joins the
// errors. After the third error it starts no more.
func inParallel(n, atOnce int, fn func(i int) error) error {
	next := make(chan int)
	var mu sync.Mutex
	var errs []error
	failed := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(errs)
	}
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				if err := fn(i); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for i := 0; i < n && failed() < 3; i++ {
		next <- i
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

func (r *rig) dialLines() *gauge.Lines {
	r.t.Helper()
	l, err := gauge.DialLines(r.Socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { l.Conn.Close() })
	return l
}

// dialDirect is dialLines for a client that must cost as little as possible.
func (r *rig) dialDirect() *gauge.Direct {
	r.t.Helper()
	d, err := gauge.DialDirect(r.Socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { d.Close() })
	return d
}

// seeded returns a random source whose seed is logged; MUST_SEED sets it, to
// repeat a failure.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("MUST_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("MUST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func ms(n int64) *int64 { return &n }

// complains reports whether an error mentions what.
func complains(err error, what string) bool { return err != nil && strings.Contains(err.Error(), what) }
