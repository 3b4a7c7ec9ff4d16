package must

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	// idleCPU bounds the processor time of daemon and holder, as a fraction of
	// one core, while commands run that do nothing; idleSwitches bounds how often
	// all threads of both wake up per second.
	idleCPU      = 0.005
	idleSwitches = 20.0
	// idleTries is how often it is measured until both bounds are met: for some
	// seconds after the last command started, memory is released and caches are
	// trimmed.
	idleTries = 3
)

// idled returns how many sessions run a command, and for how long they are
// watched.
func idled() (sessions int, watched time.Duration) {
	if os.Getenv("TRL_LONG") == "1" {
		return 500, 30 * time.Second
	}
	return 100, 10 * time.Second
}

// TestMustSleepWithItsCommands runs a sleep in each of many sessions: daemon and
// holder must sleep too.
func TestMustSleepWithItsCommands(t *testing.T) {
	sessions, watched := idled()
	r := start(t, "--max-sessions", fmt.Sprint(sessions), "--grace-ms", "1000")
	baseline := r.wakefulness(watched / 2)
	clients := make(chan *client.Client, scaleAtOnce)
	for range scaleAtOnce {
		clients <- r.dial()
	}
	if err := inParallel(sessions, scaleAtOnce, func(i int) error {
		c := <-clients
		defer func() { clients <- c }()
		s, err := c.CreateSession(r.ctx, api.SessionCreateParams{Shell: shells[i%len(shells)]})
		if err != nil {
			return err
		}
		res, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 1000"}, YieldMS: 1})
		if err == nil && res.State != api.ExecRunning {
			err = fmt.Errorf("a sleep ended with %s", describe(res))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for range scaleAtOnce {
		(<-clients).Close()
	}
	var busy wakefulness
	for range idleTries {
		if busy = r.wakefulness(watched); busy.cpu <= idleCPU && busy.switches <= idleSwitches {
			break
		}
		t.Log("missed: ", busy)
	}
	gauge.Figures(t, "%d sessions that run a sleep each use %s; a daemon without sessions uses %s", sessions, busy, baseline)
	if busy.cpu > idleCPU || busy.switches > idleSwitches {
		t.Errorf("daemon and holder use %s, want at most %.1f %% of a core and %.0f wake-ups a second", busy, 100*idleCPU, idleSwitches)
	}
	list, err := r.client.ListSessions(r.ctx, api.SessionListParams{State: api.StateRunning})
	if err != nil || len(list.Sessions) != sessions {
		t.Errorf("%d sessions run a command (%v), want %d", len(list.Sessions), err, sessions)
	}
	r.stop()
}

// wakefulness is the activity of daemon and holder per second.
type wakefulness struct {
	cpu      float64 // fraction of one core
	switches float64 // voluntary context switches of all threads
}

func (w wakefulness) String() string {
	return fmt.Sprintf("%.2f %% of a core and %.1f wake-ups a second", 100*w.cpu, w.switches)
}

// wakefulness watches daemon and holder for that long, without sending requests.
func (r *rig) wakefulness(watched time.Duration) wakefulness {
	r.t.Helper()
	pids := []int{r.PID, daemonOf(r.PID)}
	cpu, switches := activity(r.t, pids)
	began := time.Now()
	time.Sleep(watched) // pace: this time is what is measured
	cpuAfter, switchesAfter := activity(r.t, pids)
	seconds := time.Since(began).Seconds()
	if now := daemonOf(r.PID); now != pids[1] {
		r.t.Fatalf("the daemon's pid is %d and was %d", now, pids[1])
	}
	return wakefulness{cpu: (cpuAfter - cpu).Seconds() / seconds, switches: float64(switchesAfter-switches) / seconds}
}

// activity returns how much processor time some processes have used, and how
// often their threads have yielded the processor.
func activity(t *testing.T, pids []int) (cpu time.Duration, switches int64) {
	t.Helper()
	for _, pid := range pids {
		used, err := cpuOf(pid)
		if err != nil {
			t.Fatal(err)
		}
		n, err := switchesOf(pid)
		if err != nil {
			t.Fatal(err)
		}
		cpu, switches = cpu+used, switches+n
	}
	return cpu, switches
}

// cpuOf returns the processor time of a process, including threads that have
// ended, from the kernel's clock for it.
func cpuOf(pid int) (time.Duration, error) {
	const processClock = 2 // CPUCLOCK_SCHED of all threads
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|processClock), &ts); err != nil {
		return 0, fmt.Errorf("the processor time of %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// switchesOf returns the sum of voluntary context switches of a process's
// threads. A thread that ends meanwhile is not counted.
func switchesOf(pid int) (int64, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		return 0, errors.Join(err, fmt.Errorf("process %d has no threads", pid))
	}
	var sum int64
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if count, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(count), 10, 64)
				if err != nil {
					return 0, err
				}
				sum += n
			}
		}
	}
	return sum, nil
}
