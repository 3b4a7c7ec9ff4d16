package process

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Limits bounds what the processes of a tree may use. 0 means no limit.
type Limits struct {
	// Of all processes together, enforced by the tree's cgroup.
	MemoryBytes int64
	CPU         float64 // cores
	PIDs        int64   // processes and threads

	// Of each process, enforced by resource limits.
	OpenFiles     int64
	FileSizeBytes int64
}

// grouped reports whether the limits need a cgroup.
func (l Limits) grouped() bool { return l.MemoryBytes > 0 || l.CPU > 0 || l.PIDs > 0 }

// needs returns the controllers that the limits need.
func (l Limits) needs() (names []string) {
	for i, set := range []bool{l.MemoryBytes > 0, l.CPU > 0, l.PIDs > 0} {
		if set {
			names = append(names, controllers[i])
		}
	}
	return names
}

// probedLimits are limits with which each controller is tried.
var probedLimits = map[string]Limits{"memory": {MemoryBytes: 1 << 30}, "cpu": {CPU: 1}, "pids": {PIDs: 1000}}

// SetLimits limits the tree, or changes its limits. Processes that are started from
// now on get the limits of each process. It returns the limits in force: the kernel
// rounds some, and a process can't get more than this process has. After an error
// the tree must be killed, because some of the limits may be in force.
func (t *Tree) SetLimits(l Limits) (Limits, error) {
	l.OpenFiles = withinOwn(unix.RLIMIT_NOFILE, l.OpenFiles)
	l.FileSizeBytes = withinOwn(unix.RLIMIT_FSIZE, l.FileSizeBytes)
	t.limits.Store(&l) // also if they can't be enforced: then nothing is started
	if l.grouped() {
		cg := t.cgroup()
		if cg == nil {
			return l, errors.New("the tree has no cgroup")
		}
		var err error
		if l, err = cg.limit(t.name, l); err != nil {
			return l, err
		}
	}
	t.limits.Store(&l)
	return l, nil
}

// withinOwn returns a resource limit that this process can give to a child.
func withinOwn(resource int, value int64) int64 {
	var own unix.Rlimit
	if value == 0 || unix.Getrlimit(resource, &own) != nil || own.Max >= uint64(value) {
		return value
	}
	return int64(own.Max)
}

// rlimits returns the limits of each process, in the form that setRlimits takes; ""
// for none.
func (t *Tree) rlimits() string {
	l := t.limits.Load()
	if l == nil || l.OpenFiles == 0 && l.FileSizeBytes == 0 {
		return ""
	}
	return fmt.Sprintf("%d,%d", l.OpenFiles, l.FileSizeBytes)
}

// limit gives a group the controllers that limits need, and sets the limits.
func (r *cgroupRoot) limit(name string, l Limits) (Limits, error) {
	r.mu.Lock() // two trees may enable the same controller
	defer r.mu.Unlock()
	for _, controller := range l.needs() {
		if !r.enabled(controller) {
			if err := r.enable(controller); err != nil {
				return l, fmt.Errorf("enable the controller %s: %w", controller, err)
			}
		}
	}
	return r.setLimits(name, l)
}

// cpuPeriod is the time in which the kernel counts a group's share of the
// processors, in microseconds; it is the kernel's default.
const cpuPeriod = 100_000

// setLimits writes the limits of a group and returns them as the kernel has them.
func (r *cgroupRoot) setLimits(name string, l Limits) (Limits, error) {
	if l.MemoryBytes > 0 {
		if err := r.noSwap(name); err != nil {
			return l, err
		}
		n, err := r.setNumber(name, "memory.max", l.MemoryBytes)
		if err != nil {
			return l, err
		}
		l.MemoryBytes = n
	}
	if l.CPU > 0 {
		if err := r.setCPU(name, l.CPU); err != nil {
			return l, err
		}
		l.CPU = math.Round(l.CPU*cpuPeriod) / cpuPeriod
	}
	if l.PIDs > 0 {
		n, err := r.setNumber(name, "pids.max", l.PIDs)
		if err != nil {
			return l, err
		}
		l.PIDs = n
	}
	return l, nil
}

// noSwap keeps a group from swapping, which would make its memory larger than its
// limit.
func (r *cgroupRoot) noSwap(name string) error {
	err := r.write(name, "memory.swap.max", "0")
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if _, statErr := os.Stat("/proc/swaps"); errors.Is(statErr, fs.ErrNotExist) {
		return nil // this kernel can't swap
	}
	return fmt.Errorf("the kernel does not count swap: %w", err)
}

// setCPU limits the processor time of a group; 0 means no limit.
func (r *cgroupRoot) setCPU(name string, cores float64) error {
	quota := "max"
	if cores > 0 {
		quota = strconv.FormatInt(int64(math.Round(cores*cpuPeriod)), 10)
	}
	return r.write(name, "cpu.max", quota+" "+strconv.Itoa(cpuPeriod))
}

// setNumber writes a number to a file of a group and returns what the kernel made of
// it.
func (r *cgroupRoot) setNumber(name, file string, n int64) (int64, error) {
	if err := r.write(name, file, strconv.FormatInt(n, 10)); err != nil {
		return 0, fmt.Errorf("write %s: %w", file, err)
	}
	got, err := r.reader(name).number(file)
	if err == nil && got > n {
		err = fmt.Errorf("%s is %d, not %d", file, got, n)
	}
	return got, err
}

// liftCPU lets the processes of the tree end as fast as they can. HoldCPU undoes it.
func (t *Tree) liftCPU() {
	l, cg := t.limits.Load(), t.cgroup()
	if l != nil && l.CPU > 0 && cg != nil && !t.cpuLifted.Swap(true) {
		_ = cg.setCPU(t.name, 0) // without it ending takes longer
	}
}

// HoldCPU enforces the limit of processor time again after processes were ended.
func (t *Tree) HoldCPU() error {
	cg := t.cgroup()
	if cg == nil || !t.cpuLifted.Load() || t.dying.Load() {
		return nil
	}
	err := cg.setCPU(t.name, t.limits.Load().CPU)
	t.cpuLifted.Store(err != nil)
	return err
}

// restoreLimits limits a cgroup that was created again.
func (t *Tree) restoreLimits() error {
	l := t.limits.Load()
	if l == nil || !l.grouped() {
		return nil
	}
	cg := t.cgroup()
	if cg == nil {
		return errors.New("the tree has limits, and its cgroup is gone")
	}
	_, err := cg.limit(t.name, *l)
	return err
}

// oomScore makes the kernel kill a process of a tree whose memory is limited before
// others: the processes that keep a session alive must survive. In a cell they have
// that score themselves, and the processes of its session have oomScoreInCell.
const (
	oomScore       = 500
	oomScoreInCell = 800
)

// raiseOOMScore sets the score for a process of a tree whose memory is limited, alone
// or with all others. Its children inherit it.
func (t *Tree) raiseOOMScore(pid int) {
	score := int64(0)
	if l := t.limits.Load(); l != nil && l.MemoryBytes > 0 || t.host.memoryLimited {
		score = oomScore
	}
	if m := t.host.meter; m != nil && m.limits.MemoryBytes > 0 {
		score = oomScoreInCell
	}
	if score == 0 {
		return
	}
	// A process may always raise the score of its user's processes, and one that has
	// exited needs none.
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", strconv.AppendInt(nil, score, 10), 0)
}
