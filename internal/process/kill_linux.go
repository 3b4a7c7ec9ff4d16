package process

import (
	"bytes"
	"errors"
	"os"
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

// killTagged kills without a cgroup. A walk of /proc is not atomic, so only two
// empty ones in a row prove the tree gone.
func (t *Tree) killTagged(deadline time.Time) []int {
	return t.killRounds(func(int, uint32) bool { return true }, true, deadline)
}

// KillMarked kills every process for which doomed says yes, and comes back when
// none is left or the deadline is past; it returns the pids that are left. What
// the doomed fork meanwhile dies too.
func (t *Tree) KillMarked(doomed func(pid int, mark uint32) bool, deadline time.Time) []int {
	return t.killRounds(doomed, false, deadline)
}

// killRounds kills in rounds. While the doomed fork faster than they are killed,
// the tree is held still by the cgroup freezer, or where there is none, what is
// new is chased. groups says that whole process groups may be killed, which the
// kernel does in one step that no fork escapes.
func (t *Tree) killRounds(doomed func(pid int, mark uint32) bool, groups bool, deadline time.Time) []int {
	empty := 0
	for round := 0; ; round++ {
		hold := round > 1 && t.host.cgroup != nil
		if hold {
			_ = t.host.cgroup.freeze(t.name, true)
		}
		left := t.pick(doomed)
		for _, pid := range left {
			if groups {
				t.killGroup(pid)
			}
			t.Signal(pid, unix.SIGKILL)
		}
		if hold {
			_ = t.host.cgroup.freeze(t.name, false)
		}
		caught := 0
		if t.host.cgroup == nil && (round > 1 || len(left) == 0) {
			// A walk can miss what moves; what was missed shows up in a chase.
			caught = t.chase(doomed, deadline)
		}
		if len(left)+caught > 0 {
			empty = 0
		} else if empty++; empty == 2 {
			return nil
		}
		if time.Now().After(deadline) {
			return left
		}
		if len(left) > 0 && caught == 0 {
			// A killed process needs a moment to go; there is nothing to wait
			// on for a process that is not our child.
			time.Sleep(min(time.Duration(round+1)*200*time.Microsecond, 10*time.Millisecond))
		}
	}
}

// killGroup kills the process group of a member. A group of the tree's holds
// members of the tree only: it was made in it, and who is in another can't
// join. The daemon's own group is none of them.
func (t *Tree) killGroup(pid int) {
	group, err := unix.Getpgid(pid)
	if err != nil || group <= 1 || group == unix.Getpgrp() {
		return
	}
	if host, tree, _, ok := t.host.tag.read(group); ok && (host != t.host.id || tree != t.num) {
		return // its leader's number was used again
	}
	if _, tree, _, ok := t.host.tag.read(pid); ok && tree == t.num {
		_ = unix.Kill(-group, unix.SIGKILL)
	}
}

const (
	// chaseLooks is for how many looks nothing new must come before a chase
	// ends: a look takes some ten microseconds, a fork and exec some hundred.
	chaseLooks = 200
	// chaseAhead is how many process numbers one look goes through at the most.
	chaseAhead = 4096
)

// chase kills processes as they appear. A chain in which each process starts
// the next and is gone is always a step ahead of a walk through /proc, which
// takes milliseconds; but process numbers are given out in order, and the
// kernel tells the last, so what is new can be looked at within microseconds.
// It returns how many it caught.
func (t *Tree) chase(doomed func(pid int, mark uint32) bool, deadline time.Time) (caught int) {
	last, top := lastPID(), maxPID()
	if last == 0 || top == 0 {
		return 0
	}
	for quiet := 0; quiet < chaseLooks && time.Now().Before(deadline); quiet++ {
		now := lastPID()
		for n := 0; last != now && n < chaseAhead; n++ {
			if last++; last >= top {
				last = 1
			}
			host, tree, mark, ok := t.host.tag.read(last)
			if ok && host == t.host.id && tree == t.num && doomed(last, mark) {
				_ = unix.Kill(last, unix.SIGKILL)
				quiet = 0
				caught++
			}
		}
		last = now
	}
	return caught
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
			h.reapOne(p.pid)
			if p.Exited() || time.Now().After(deadline) {
				break
			}
			time.Sleep(100 * time.Microsecond) // it was killed: it needs a moment to die
		}
	}
}
