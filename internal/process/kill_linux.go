package process

import (
	"errors"
	"slices"
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
			return t.killTagged(deadline) // others removed it; what was in it may be elsewhere
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

// killTagged kills without a cgroup.
func (t *Tree) killTagged(deadline time.Time) []int {
	return t.tagKiller(func(int, uint32) bool { return true }, true).kill(deadline)
}

// KillMarked kills every process for which doomed says yes, and comes back when
// none is left or the deadline is past; it returns the pids that are left. What
// the doomed fork meanwhile dies too.
func (t *Tree) KillMarked(doomed func(pid int, mark uint32) bool, deadline time.Time) []int {
	if t.cgroup() != nil {
		return inRounds(deadline, func(round int) ([]int, bool) { return t.killInCgroup(doomed, round > 1), false })
	}
	return t.tagKiller(doomed, false).kill(deadline)
}

// hunt returns what kills by tags those of the tree that are doomed. groups says
// that whole process groups may be killed.
func (t *Tree) tagKiller(doomed func(pid int, mark uint32) bool, groups bool) tagKiller {
	return tagKiller{
		tag: t.host.tag, groups: groups, trusts: t.host.trustsTag, subreapers: []int{t.host.parent},
		matches: func(pid int, host uint16, tree, mark uint32) bool {
			return host == t.host.id && tree == t.num && doomed(pid, mark)
		},
	}
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
func (t *Tree) killInCgroup(doomed func(pid int, mark uint32) bool, hold bool) []int {
	if hold {
		cg := t.host.cgroup
		_ = cg.freeze(t.name, true)
		defer func() { _ = cg.freeze(t.name, false) }()
	}
	left := t.pick(doomed)
	for _, pid := range left {
		t.Signal(pid, unix.SIGKILL)
	}
	return left
}

// hunt kills processes by what their tags say, without a cgroup.
type tagKiller struct {
	tag     tagger
	matches func(pid int, host uint16, tree, mark uint32) bool
	// counts reports whether the tag of a process may be believed.
	trusts func(pid int, st stat) bool
	// groups kills the process group of the doomed too, in one step, which no
	// fork escapes, if all of its members are doomed.
	groups bool
	// heirs are the processes that inherit the doomed when their parents end.
	subreapers []int
}

// kill kills the doomed and what they fork meanwhile, and returns what is left
// at the deadline.
func (h tagKiller) kill(deadline time.Time) []int {
	return inRounds(deadline, func(round int) ([]int, bool) {
		left := h.killRound()
		return left, (round > 0 || len(left) == 0) && h.killInherited(deadline)
	})
}

// strike walks through all processes and kills what is doomed the moment it is
// seen: what is listed first and killed after is often gone, and its child not
// yet listed.
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
			delete(groups, group) // one look in each round
		}
	}
	return left
}

// groupsOf sorts processes by their groups.
func groupsOf(pids []int) map[int][]int {
	groups := map[int][]int{}
	for _, pid := range pids {
		if group, err := unix.Getpgid(pid); err == nil {
			groups[group] = append(groups[group], pid)
		}
	}
	return groups
}

// strikeOne kills a process if it is doomed, and reports whether it was alive.
func (h tagKiller) killOne(pid int) bool {
	if !h.isTarget(pid) {
		return false
	}
	st, err := readStat(pid)
	if err != nil || st.dead() || !h.trusts(pid, st) || !h.isTarget(pid) {
		return false
	}
	_ = unix.Kill(pid, unix.SIGKILL) // its tag was read this microsecond
	return true
}

func (h tagKiller) isTarget(pid int) bool {
	host, tree, mark, ok := h.tag.read(pid)
	return ok && h.matches(pid, host, tree, mark)
}

// mayStrike reports whether a process group may be killed: all of its members,
// of which some are known, must be doomed. A service may have started, in its
// own group, a program of a user who gave it a session's tag. Nobody else joins
// a group of the doomed later: members come by fork, and by setpgid within one
// setsid session. A member that has given up its tag is doomed with the others
// if it descends from an heir.
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

// quietLooks is how many looks in a row at what was inherited must find nothing
// new. Between two steps of a chain its process is always there to be seen, and
// a look takes some ten microseconds, a fork and exec some hundred: a look may
// come in the middle of a step, twenty in a row do not.
const quietLooks = 20

// strikeInherited kills the doomed among the children of the heirs, as they
// come, and reports whether there were any. A chain in which each process starts
// the next and ends is often a step ahead of a walk through /proc, which takes
// milliseconds. But each process of it loses its parent and is inherited, and
// what a process has inherited is listed in one file.
func (h tagKiller) killInherited(deadline time.Time) (caught bool) {
	seen := map[int]bool{}
	for quiet := 0; quiet < quietLooks && time.Now().Before(deadline); quiet++ {
		for _, heir := range h.subreapers {
			for _, pid := range inherited(heir) {
				if !seen[pid] && h.killOne(pid) {
					quiet, caught = 0, true
				}
				seen[pid] = true
			}
		}
	}
	return caught
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
			if h.holder == nil {
				h.reapOne(p.pid)
			} else {
				h.pollExit(p)
			}
			if p.Exited() || time.Now().After(deadline) {
				break
			}
			time.Sleep(100 * time.Microsecond) // it was killed: it needs a moment to die
		}
	}
}
