package limits

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	neighbours = 20
	// share is what each of them may use: 0.4 of two processors in all.
	share = 0.02
	// pids is how many processes each of them may have, and triedPIDs how many it tries
	// to have: more than the limit and what is reserved.
	pids, triedPIDs = 2, 16

	leastRounds, mostRounds = 5, 21
)

// Sessions that do their worst within their limits hardly slow down another one. The
// same sessions without limits do.
func TestGuestNeighbours(t *testing.T) {
	r := start(t)
	worker := r.create(nil)
	worker.run("mark=set")
	for _, c := range []struct {
		name   string
		limits *api.Limits
		ok     func(slower float64) bool
	}{
		{"with limits", &api.Limits{CPU: share, PIDs: pids}, func(slower float64) bool { return slower <= 1.3 }},
		{"without limits", nil, func(slower float64) bool { return slower > 3 }},
	} {
		crowd := r.crowd(c.limits)
		var alone, among pace
		var waits, clock []float64
		var slower, wall float64
		// Rounds of both alternate, and the median of their ratios is judged: what else the
		// machine does hits both of a pair, or few pairs. A frozen crowd uses nothing.
		for round := 1; round <= leastRounds || round <= mostRounds && !(c.ok(slower) && c.ok(wall)); round++ {
			freeze(t, crowd, true)
			alone = worker.work()
			freeze(t, crowd, false)
			among = worker.work()
			waits, clock = append(waits, among.waits/alone.waits), append(clock, gauge.Ratio(among.took, alone.took))
			slower, wall = median(waits), median(clock)
		}
		gauge.Figures(t, "%d busy sessions %s slow down another one %.2f times (with the cost of emulation %.2f times, alone %s)",
			neighbours, c.name, slower, wall, alone.took.Round(time.Millisecond))
		if !c.ok(slower) || !c.ok(wall) {
			t.Errorf("%d busy sessions %s slow down another one %.2f times, %.2f by the clock", neighbours, c.name, slower, wall)
		}
		r.inParallel(func(i int) error { return crowd[i].destroy() })
	}
	worker.alive()
}

// crowd creates sessions that use what they can, all at the same time: one with a small
// share of a processor takes its time.
func (r *rig) crowd(limits *api.Limits) []*session {
	r.t.Helper()
	// A process that opens it for reading waits. To wait it needs no program of its own,
	// which would take long to start with a small share.
	fifo := filepath.Join(r.t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		r.t.Fatal(err)
	}
	fill := fmt.Sprintf("(n=0; while [ $((n += 1)) -le %d ]; do read -r x <'%s' & done) 2>/dev/null", triedPIDs, fifo)
	all := make([]*session, neighbours)
	r.inParallel(func(i int) (err error) {
		if all[i], err = r.tryCreate(limits); err != nil {
			return err
		}
		_, err = all[i].tryRun(fill)
		if err != nil || limits == nil {
			return err
		}
		if refused, err := all[i].tryCounter("pids.events", "max"); err != nil || refused == 0 {
			return fmt.Errorf("the session is not at its limit of processes: %d refused, %w", refused, err)
		}
		return nil
	})
	r.inParallel(func(i int) error {
		_, err := all[i].tryRun(spin)
		return err
	})
	return all
}

// inParallel calls do for each of the neighbours, all of which must succeed.
func (r *rig) inParallel(do func(i int) error) {
	r.t.Helper()
	var errs [neighbours]error
	var wg sync.WaitGroup
	for i := range neighbours {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		r.t.Fatal(err)
	}
}

// freeze stops all processes of sessions, or lets them go on.
func freeze(t *testing.T, all []*session, frozen bool) {
	t.Helper()
	value := map[bool]string{false: "0", true: "1"}[frozen]
	for _, s := range all {
		if err := os.WriteFile(filepath.Join(s.group, "cgroup.freeze"), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// pace is how fast a session has worked.
type pace struct {
	took time.Duration
	// waits is the time that passes for each second of processor time that the session
	// gets. An emulated processor itself becomes slower when it has more to do, which is
	// not the neighbours' doing; this does not change.
	waits float64
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// work does a fixed amount of work in the session, and returns how fast.
func (s *session) work() pace {
	s.t.Helper()
	before := s.counter("cpu.stat", "usage_usec")
	begin := time.Now()
	if res := s.run("(i=0; while [ $((i += 1)) -lt 20000 ]; do :; done)"); !res.Succeeded() {
		s.t.Fatalf("%+v", res)
	}
	took := time.Since(begin)
	return pace{took, gauge.Ratio(took, time.Duration(s.counter("cpu.stat", "usage_usec")-before)*time.Microsecond)}
}
