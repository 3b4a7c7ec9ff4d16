package limits

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// eatVariable makes this program use so many bytes of memory and exit.
const eatVariable = "LIMITS_EAT"

func runEater() {
	size, err := strconv.Atoi(os.Getenv(eatVariable))
	if err != nil {
		return
	}
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i := 0; i < size; i += os.Getpagesize() {
		memory[i] = 1
	}
	fmt.Println("full")
	os.Exit(0)
}

// A session has exactly the memory of its limit. A command that needs more is killed
// and says why; the session lives on.
func TestGuestMemory(t *testing.T) {
	const limit, spare = 96 << 20, 24 << 20 // the program itself takes less than the spare
	s := start(t).create(&api.Limits{MemoryBytes: limit})
	s.run("mark=set")
	if got := s.number("memory.max"); got != limit {
		t.Errorf("memory.max is %d, want %d", got, limit)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	eat := func(size int) *api.ExecResult { return s.run(fmt.Sprintf("%s=%d %s", eatVariable, size, self)) }
	if res := eat(limit - spare); res.Outcome != api.OutcomeExited || res.Stdout != "full\n" || len(res.LimitHit) > 0 {
		t.Errorf("a command within the limit: %s %q, limits %v", res.Outcome, res.Stdout, res.LimitHit)
	}
	s.alive()
	for range 3 {
		res := eat(limit + spare)
		if res.Outcome != api.OutcomeOOMKilled || !slices.Contains(res.LimitHit, api.LimitMemory) || res.Stdout != "" {
			t.Errorf("a command beyond the limit: %s %q, limits %v", res.Outcome, res.Stdout, res.LimitHit)
		}
		s.alive()
	}
	// A process that is being killed may get some pages more.
	if peak := s.number("memory.peak"); peak > limit+256<<10 || peak < limit-1<<20 {
		t.Errorf("the session has used %d bytes, the limit is %d", peak, limit)
	}
	if kills := s.counter("memory.events", "oom_kill"); kills != 3 {
		t.Errorf("%d processes were killed, want 3", kills)
	}
	s.end()
}

// A session has exactly as many processes as its limit allows, and what it needs itself
// on top. Reaching the limit is reported, and does not end the session.
func TestGuestPIDs(t *testing.T) {
	const limit = 30
	s := start(t).create(&api.Limits{PIDs: limit})
	s.run("mark=set")
	inForce := s.Limits
	if inForce == nil || inForce.PIDs != limit || s.number("pids.max") != limit+inForce.PIDsReserved {
		t.Fatalf("in force: %+v, the kernel's limit is %d", inForce, s.number("pids.max"))
	}
	// The subshell ends when it can't fork; it has forked its last process then.
	res := s.run(`(while :; do sleep 600 & echo started; done) 2>&1`)
	started := strings.Count(res.Stdout, "started")
	if most := limit + int(inForce.PIDsReserved); started < limit-1 || started > most {
		t.Errorf("%d processes could be started, want %d to %d\n%s", started, limit-1, most, res.Stdout)
	}
	if !slices.Contains(res.LimitHit, api.LimitPIDs) {
		t.Errorf("the limit was reached, the result has %v", res.LimitHit)
	}
	if hits := s.counter("pids.events", "max"); hits == 0 {
		t.Error("the kernel has refused no process")
	}
	gauge.Figures(t, "%d processes with a limit of %d and %d reserved", started, limit, inForce.PIDsReserved)
	s.alive()
	s.end()
}

// A session gets as much processor time as its limit says, within a tenth.
func TestGuestCPU(t *testing.T) {
	const window = 20 * time.Second
	r := start(t)
	type spinner struct {
		*session
		cores float64
		used  int64
	}
	var all []*spinner
	for _, cores := range []float64{0.1, 0.4, 1} {
		s := &spinner{session: r.create(&api.Limits{CPU: cores}), cores: cores}
		s.run("mark=set")
		s.run(spin + spin) // one process can't use more than one core
		all = append(all, s)
	}
	time.Sleep(time.Second) // pace: until they have used what they saved up
	for _, s := range all {
		s.used = -s.counter("cpu.stat", "usage_usec")
	}
	begin := time.Now()
	time.Sleep(window) // pace: the share is of this time
	for _, s := range all {
		s.used += s.counter("cpu.stat", "usage_usec")
		share := float64(s.used) / float64(time.Since(begin).Microseconds())
		gauge.Figures(t, "cpu: %g used %.3f cores", s.cores, share)
		if share < 0.9*s.cores || share > 1.1*s.cores {
			t.Errorf("cpu: %g used %.3f cores", s.cores, share)
		}
		s.alive()
	}
	for _, s := range all {
		s.end()
	}
}

// spin starts a process that uses a processor until it is killed.
const spin = "while :; do :; done &\n"
