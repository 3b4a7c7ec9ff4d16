package process

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Kill kills the whole tree and proves it gone. It returns what was alive at
// the deadline: nothing, unless the kernel itself holds a process. The tree is
// then removed and must not be used again.
func (t *Tree) Kill(deadline time.Time) []Info {
	t.dying.Store(true)
	t.host.awaitStarts()
	var left []int
	if t.host.cgroup != nil {
		left = t.killCgroup(deadline)
	} else {
		left = t.killTagged(deadline)
	}
	t.awaitReaped(deadline)
	t.host.forget(t)
	if len(left) == 0 {
		return nil
	}
	return t.Describe(left)
}

func (t *Tree) killCgroup(deadline time.Time) []int {
	cg := t.host.cgroup
	for wait := 100 * time.Microsecond; ; wait = min(wait*2, 5*time.Millisecond) {
		if err := cg.write(t.name, "cgroup.kill", "1"); errors.Is(err, unix.ENOENT) {
			return nil
		}
		pids, err := cg.pids(t.name)
		if err == nil && len(pids) == 0 {
			t.awaitReaped(deadline)
			if err := cg.drop(t.name); err == nil || err == unix.ENOENT {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return pids
		}
		time.Sleep(wait)
	}
}

// killTagged kills without a cgroup.
func (t *Tree) killTagged(deadline time.Time) []int {
	return t.killRounds(func(int, uint32) bool { return true }, true, deadline)
}

// KillMarked kills every process for which doomed says yes, and comes back when
// none is left or the deadline is past; it returns the pids that are left. What
// the doomed fork meanwhile dies too.
func (t *Tree) KillMarked(doomed func(pid int, mark uint32) bool, deadline time.Time) []int {
	return t.killRounds(doomed, false, deadline)
}

// killRounds kills what is doomed. groups says that whole process groups may be
// killed.
func (t *Tree) killRounds(doomed func(pid int, mark uint32) bool, groups bool, deadline time.Time) []int {
	if t.host.cgroup != nil {
		return inRounds(deadline, func(round int) ([]int, bool) { return t.killHeld(doomed, round > 1), false })
	}
	prey := hunt{tag: t.host.tag, groups: groups, doomed: func(pid int, host uint16, tree, mark uint32) bool {
		return host == t.host.id && tree == t.num && doomed(pid, mark)
	}}
	return prey.kill(deadline)
}

// inRounds kills in rounds, until two in a row have found nothing: no list of
// processes is atomic. A round returns what was alive, and whether the next one
// must come at once. What the last round found is returned.
func inRounds(deadline time.Time, strike func(round int) (left []int, again bool)) []int {
	empty := 0
	for round := 0; ; round++ {
		left, again := strike(round)
		if again {
			empty = 0
			continue
		}
		if len(left) > 0 {
			empty = 0
		} else if empty++; empty == 2 {
			return nil
		}
		if time.Now().After(deadline) {
			return left
		}
		if len(left) > 0 {
			// A killed process needs a moment to go; there is nothing to wait
			// on for a process that is not our child.
			time.Sleep(min(time.Duration(round+1)*200*time.Microsecond, 10*time.Millisecond))
		}
	}
}

// killHeld kills what is doomed in the tree's cgroup. With hold, while it forks
// faster than it is killed, the freezer keeps all of it still meanwhile.
func (t *Tree) killHeld(doomed func(pid int, mark uint32) bool, hold bool) []int {
	if hold {
		_ = t.host.cgroup.freeze(t.name, true)
		defer func() { _ = t.host.cgroup.freeze(t.name, false) }()
	}
	left := t.pick(doomed)
	for _, pid := range left {
		t.Signal(pid, unix.SIGKILL)
	}
	return left
}

// hunt kills processes by what their tags say, without a cgroup.
type hunt struct {
	tag    tagger
	doomed func(pid int, host uint16, tree, mark uint32) bool
	// groups kills the process group of the doomed in one step, which no fork
	// escapes: a group that was made in a tree has no others in it.
	groups bool
}

// kill kills the doomed and what they fork meanwhile, and returns what is left
// at the deadline.
func (h hunt) kill(deadline time.Time) []int {
	return inRounds(deadline, func(round int) ([]int, bool) {
		left := h.strike()
		return left, (round > 0 || len(left) == 0) && h.chase(deadline)
	})
}

// strike walks through all processes and kills what is doomed the moment it is
// seen: what is listed first and killed after is often gone, and its child not
// yet listed.
func (h hunt) strike() []int {
	var left []int
	for _, pid := range allPIDs() {
		if h.strikeOne(pid) {
			left = append(left, pid)
		}
	}
	return left
}

// strikeOne kills a process if it is doomed, and says whether it was alive.
func (h hunt) strikeOne(pid int) bool {
	host, tree, mark, ok := h.tag.read(pid)
	if !ok || !h.doomed(pid, host, tree, mark) {
		return false
	}
	if h.groups {
		if group, err := unix.Getpgid(pid); err == nil && group > 1 && group != unix.Getpgrp() {
			_ = unix.Kill(-group, unix.SIGKILL)
		}
	}
	_ = unix.Kill(pid, unix.SIGKILL) // its tag was read this microsecond
	st, err := readStat(pid)
	return err == nil && !st.dead()
}

const (
	// chaseLooks is for how many looks nothing new must come before a chase
	// ends: a look takes some ten microseconds, a fork and exec some hundred.
	chaseLooks = 200
	// chaseAhead is how many process numbers one look goes through at the most.
	chaseAhead = 4096
)

// chase kills processes as they appear, and says whether it caught any. A chain
// in which each process starts the next and is gone is always a step ahead of a
// walk through /proc, which takes milliseconds; but process numbers are given
// out in order, and the kernel tells the last, so what is new can be looked at
// within microseconds. A chase that has to wait for a processor is lost, so it
// runs with real-time priority where that is allowed.
func (h hunt) chase(deadline time.Time) (caught bool) {
	last, top := lastPID(), maxPID()
	if last == 0 || top == 0 {
		return false
	}
	release := firstInLine()
	defer release()
	for quiet := 0; quiet < chaseLooks && time.Now().Before(deadline); quiet++ {
		now := lastPID()
		for n := 0; last != now && n < chaseAhead; n++ {
			if last++; last >= top {
				last = 1
			}
			if h.strikeOne(last) {
				quiet, caught = 0, true
			}
		}
		last = now
	}
	return caught
}

// firstInLine gives this goroutine a thread with real-time priority, if it may
// have one, until the function it returns is called.
func firstInLine() (release func()) {
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if unix.SchedSetAttr(0, &attr, 0) != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		normal := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
		if unix.SchedSetAttr(0, &normal, 0) == nil {
			runtime.UnlockOSThread() // else the thread ends with the goroutine
		}
	}
}

// lastPID is the process number that was given out last.
func lastPID() int {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(string(bytes.TrimSpace(b[bytes.LastIndexByte(b, ' ')+1:])))
	return n
}

// maxPID is where process numbers begin anew.
func maxPID() int {
	b, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(string(bytes.TrimSpace(b)))
	return n
}

// awaitStarts waits until the starts that are under way have been registered.
func (h *Host) awaitStarts() {
	h.spawn.Lock()
	h.spawn.Unlock() //nolint:gocritic,staticcheck // the wait is all there is to do
}

// awaitReaped reaps the tracked processes: a caller that was told "gone" must
// not find a zombie.
func (t *Tree) awaitReaped(deadline time.Time) {
	h := t.host
	h.mu.Lock()
	procs := slices.Clone(t.procs)
	h.mu.Unlock()
	for _, p := range procs {
		for !p.Exited() {
			if h.held == nil {
				h.reapOne(p.pid)
			} else {
				h.endWithoutHolder(p)
			}
			if p.Exited() || time.Now().After(deadline) {
				break
			}
			time.Sleep(100 * time.Microsecond) // it was killed: it needs a moment to die
		}
	}
}
