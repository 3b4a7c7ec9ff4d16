package process

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Kill kills the whole tree and verifies that it is gone. It returns the
// processes still alive at the deadline: none, unless the kernel itself holds
// one. The tree is then removed and must not be used again.
func (t *Tree) Kill(deadline time.Time) []Info {
	t.dying.Store(true)
	t.liftCPU()
	t.host.awaitStarts()
	var left []int
	if t.cgroup() != nil {
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
	cg := t.cgroup()
	for wait := 100 * time.Microsecond; ; wait = min(wait*2, 5*time.Millisecond) {
		if err := cg.write(t.name, "cgroup.kill", "1"); errors.Is(err, unix.ENOENT) {
			return t.killTagged(deadline) // another process removed it; its processes may be elsewhere
		}
		pids, err := cg.pids(t.name)
		if err == nil && len(pids) == 0 {
			t.awaitReaped(deadline)
			if err := cg.removeGroup(t.name); err == nil || err == unix.ENOENT {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return pids
		}
		time.Sleep(wait)
	}
}

// killTagged kills the tree's processes by their tags, without a cgroup.
func (t *Tree) killTagged(deadline time.Time) []int {
	return t.tagKiller(func(int, uint32) bool { return true }, true).kill(deadline)
}

// KillMarked kills every process for which matches returns true, including those
// that they fork meanwhile. It returns when none is left or at the deadline, with
// the pids that are left.
func (t *Tree) KillMarked(matches func(pid int, mark uint32) bool, deadline time.Time) []int {
	if t.cgroup() != nil {
		return inRounds(deadline, func(round int) ([]int, bool) { return t.killInCgroup(matches, round > 1), false })
	}
	return t.tagKiller(matches, false).kill(deadline)
}

// tagKiller returns a tagKiller for the tree's processes that match. If groups is
// set, it may kill whole process groups.
func (t *Tree) tagKiller(matches func(pid int, mark uint32) bool, groups bool) tagKiller {
	return tagKiller{
		tag: t.host.tag, groups: groups, trusts: t.host.trustsTag, subreapers: []int{t.host.parent},
		matches: func(pid int, host uint16, tree, mark uint32) bool {
			return host == t.host.id && tree == t.num && matches(pid, mark)
		},
	}
}

// inRounds kills in rounds until two in a row have found nothing, because no list
// of processes is atomic. A round returns the processes that were alive, and
// whether the next round must follow at once. inRounds returns what the last
// round found.
func inRounds(deadline time.Time, kill func(round int) (left []int, again bool)) []int {
	empty := 0
	for round := 0; ; round++ {
		left, again := kill(round)
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
			// A killed process needs a moment to exit, and there is nothing to
			// wait on for a process that is not our child.
			time.Sleep(min(time.Duration(round+1)*200*time.Microsecond, 10*time.Millisecond))
		}
	}
}

// killInCgroup kills the matching processes in the tree's cgroup. With freeze it
// freezes the cgroup meanwhile, for processes that fork faster than they are
// killed.
func (t *Tree) killInCgroup(matches func(pid int, mark uint32) bool, freeze bool) []int {
	if freeze {
		cg := t.host.cgroup
		_ = cg.freeze(t.name, true)
		defer func() { _ = cg.freeze(t.name, false) }()
	}
	left := t.pick(matches)
	for _, pid := range left {
		t.Signal(pid, unix.SIGKILL)
	}
	return left
}

// tagKiller kills processes by their tags, without a cgroup.
type tagKiller struct {
	tag     tagger
	matches func(pid int, host uint16, tree, mark uint32) bool
	// trusts reports whether the tag of a process may be trusted.
	trusts func(pid int, st stat) bool
	// groups also kills the process group of a target, in one step that no fork
	// escapes, if all members of the group are targets.
	groups bool
	// subreapers are the processes that inherit a target when its parent exits.
	subreapers []int
}

// kill kills the targets and the processes they fork meanwhile, and returns those
// left at the deadline.
func (h tagKiller) kill(deadline time.Time) []int {
	return inRounds(deadline, func(round int) ([]int, bool) {
		left := h.killRound()
		return left, (round > 0 || len(left) == 0) && h.killInherited(deadline)
	})
}

// killRound walks through all processes and kills each target the moment it is
// seen: a process that is listed first and killed later is often gone, and its
// child not listed yet.
func (h tagKiller) killRound() []int {
	var left []int
	all := allPIDs()
	var groups map[int][]int
	for _, pid := range all {
		if !h.killOne(pid) {
			continue
		}
		left = append(left, pid)
		if !h.groups {
			continue
		}
		if groups == nil {
			groups = groupsOf(all)
		}
		if group, err := unix.Getpgid(pid); err == nil {
			if h.mayKillGroup(group, groups[group]) {
				_ = unix.Kill(-group, unix.SIGKILL)
			}
			delete(groups, group) // check each group once per round
		}
	}
	return left
}

// groupsOf sorts processes by process group.
func groupsOf(pids []int) map[int][]int {
	groups := map[int][]int{}
	for _, pid := range pids {
		if group, err := unix.Getpgid(pid); err == nil {
			groups[group] = append(groups[group], pid)
		}
	}
	return groups
}

// killOne kills a process if it is a target, and reports whether it was alive.
func (h tagKiller) killOne(pid int) bool {
	if !h.isTarget(pid) {
		return false
	}
	st, err := readStat(pid)
	if err != nil || st.dead() || !h.trusts(pid, st) || !h.isTarget(pid) {
		return false
	}
	_ = unix.Kill(pid, unix.SIGKILL) // its tag was read within the last microsecond
	return true
}

func (h tagKiller) isTarget(pid int) bool {
	host, tree, mark, ok := h.tag.read(pid)
	return ok && h.matches(pid, host, tree, mark)
}

// mayKillGroup reports whether a process group may be killed: all of its members
// must be targets. A service may have started, in its own group, a program of a
// user that gave it a session's tag. No other process joins a group of targets
// later: members come by fork, and by setpgid within one setsid session. A member
// that has lost its tag is a target too if it descends from one of the
// subreapers.
func (h tagKiller) mayKillGroup(group int, members []int) bool {
	if len(members) == 0 || group <= 1 || group == unix.Getpgrp() {
		return false
	}
	for _, pid := range members {
		st, err := readStat(pid)
		if err != nil || st.dead() || h.isTarget(pid) && h.trusts(pid, st) {
			continue
		}
		if !h.tag.lowered(pid) || !descends(pid, st, func(ancestor int) bool { return ancestor > 1 && slices.Contains(h.subreapers, ancestor) }) {
			return false
		}
	}
	return true
}

// quietLooks is how many consecutive looks at inherited children must find
// nothing new. Between two steps of a chain its process is always visible. A look
// takes some ten microseconds, a fork and exec some hundred: one look may fall
// into the middle of a step, twenty in a row do not.
const quietLooks = 20

// killInherited kills the targets among the children of the subreapers as they
// appear, and reports whether there were any. A chain in which each process
// starts the next and exits is often a step ahead of a walk through /proc, which
// takes milliseconds. But each process of the chain loses its parent and is
// inherited, and inherited processes are listed in one file.
func (h tagKiller) killInherited(deadline time.Time) (caught bool) {
	seen := map[int]bool{}
	for quiet := 0; quiet < quietLooks && time.Now().Before(deadline); quiet++ {
		for _, subreaper := range h.subreapers {
			for _, pid := range inherited(subreaper) {
				if !seen[pid] && h.killOne(pid) {
					quiet, caught = 0, true
				}
				seen[pid] = true
			}
		}
	}
	return caught
}

// awaitStarts waits until all starts in progress have been registered.
func (h *Host) awaitStarts() {
	h.spawn.Lock()
	h.spawn.Unlock() //nolint:gocritic,staticcheck // the wait is all there is to do
}

// awaitReaped reaps the tracked processes: after Kill returns, its caller must
// not find a zombie.
func (t *Tree) awaitReaped(deadline time.Time) {
	h := t.host
	h.mu.Lock()
	procs := slices.Clone(t.procs)
	h.mu.Unlock()
	for _, p := range procs {
		for !p.Exited() {
			if h.holder == nil {
				h.reapOne(p.pid)
			} else {
				h.pollExit(p)
			}
			if p.Exited() || time.Now().After(deadline) {
				break
			}
			time.Sleep(100 * time.Microsecond) // it was killed and needs a moment to die
		}
	}
}
