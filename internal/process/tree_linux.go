package process

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Tree is everything that descends from what was started in it.
// Its methods may be called by any goroutine.
type Tree struct {
	host *Host
	name string
	num  uint32
	// dying is set when Kill begins; nothing is started or adopted after.
	dying atomic.Bool
}

// NewTree makes an empty tree. The name is for people who look at cgroups.
func (h *Host) NewTree(name string) (*Tree, error) {
	h.mu.Lock()
	num := h.nextTree.Add(1) & maxTree
	for h.trees[num] != nil { // numbers come round after 67 million trees
		num = h.nextTree.Add(1) & maxTree
	}
	t := &Tree{host: h, num: num}
	t.name = name + "." + strconv.Itoa(int(num))
	h.trees[num] = t
	h.mu.Unlock()
	if h.cgroup != nil {
		if err := h.cgroup.make(t.name); err != nil {
			h.forget(t)
			return nil, fmt.Errorf("make a cgroup: %w", err)
		}
	}
	return t, nil
}

func (h *Host) forget(t *Tree) {
	h.mu.Lock()
	delete(h.trees, t.num)
	h.mu.Unlock()
}

// Mark numbers what p starts from now on, until the next Mark. Zero is the
// mark of a tree's first process; MaxMark marks exist, then they come round.
func (t *Tree) Mark(p *Proc, mark uint32) error {
	return t.host.tag.set(p.pid, t.host.id, t.num, mark&maxMark)
}

// MaxMark is the largest mark.
const MaxMark = maxMark - 1

// PIDs lists the processes of the tree. With cgroups a zombie is not listed,
// and a list costs about 5 µs.
func (t *Tree) PIDs() []int {
	if t.host.cgroup != nil {
		pids, err := t.host.cgroup.pids(t.name)
		if err != nil {
			return nil // removed: the tree was killed
		}
		return pids
	}
	var pids []int
	for _, m := range t.host.scans.fresh() {
		if m.tree == t.num {
			pids = append(pids, m.pid)
		}
	}
	return pids
}

// Marked lists the live processes that carry a mark.
func (t *Tree) Marked(mark uint32) []int {
	return t.pick(func(_ int, m uint32) bool { return m == mark&maxMark })
}

// Info describes one process.
type Info struct {
	PID, PPID int
	Mark      uint32
	Age       time.Duration
	RSS       int64
	Command   string
}

// Describe returns what is known of the processes among pids that are alive.
func (t *Tree) Describe(pids []int) []Info {
	infos := make([]Info, 0, len(pids))
	now := sinceBoot()
	for _, pid := range pids {
		st, err := readStat(pid)
		if err != nil || st.dead() {
			continue
		}
		_, _, mark, _ := t.host.tag.read(pid)
		infos = append(infos, Info{
			PID: pid, PPID: st.ppid, Mark: mark, RSS: st.rss,
			Age:     max(0, now-st.start),
			Command: commandLine(pid, st.comm),
		})
	}
	return infos
}

// Signal signals one process, if it is (still) in the tree.
func (t *Tree) Signal(pid int, sig unix.Signal) bool {
	return t.host.signalTagged(pid, t.num, sig)
}

// signalTagged signals pid through a pidfd, and only after the tag behind that
// pidfd was seen to be the tree's: a pid that was reused since it was listed
// is never hit.
func (h *Host) signalTagged(pid int, tree uint32, sig unix.Signal) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if host, n, _, ok := h.tag.read(pid); !ok || host != h.id || n != tree {
		return false
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

// Ask asks the live processes that pick chooses to end: SIGTERM, and SIGCONT
// because a stopped process acts on it only when it is continued. Who is in
// asked is not asked again. It returns all that pick chose.
func (t *Tree) Ask(asked map[int]bool, pick func(pid int, mark uint32) bool) []int {
	left := t.pick(pick)
	for _, pid := range left {
		if !asked[pid] {
			asked[pid] = true
			t.Signal(pid, unix.SIGTERM)
			t.Signal(pid, unix.SIGCONT)
		}
	}
	return left
}

// pick lists the live processes that fn chooses.
func (t *Tree) pick(fn func(pid int, mark uint32) bool) []int {
	return slices.DeleteFunc(t.PIDs(), func(pid int) bool {
		_, tree, mark, ok := t.host.tag.read(pid)
		if !ok || tree != t.num || !fn(pid, mark) {
			return true
		}
		st, err := readStat(pid)
		return err != nil || st.dead()
	})
}

// KillMarked kills every process that carries one of the marks for which
// doomed says yes, and comes back when none is left or the deadline is past;
// it returns the pids that are left. What the doomed fork meanwhile dies too:
// while they fork faster than they are killed, the tree is held still.
func (t *Tree) KillMarked(doomed func(pid int, mark uint32) bool, deadline time.Time) []int {
	for round := 0; ; round++ {
		hold := round > 1
		if hold {
			t.hold(true)
		}
		left := t.killRound(doomed)
		if hold {
			t.hold(false)
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		// A killed process needs a moment to go; there is nothing to wait on
		// for a process that is not our child.
		time.Sleep(min(time.Duration(round+1)*200*time.Microsecond, 10*time.Millisecond))
	}
}

func (t *Tree) killRound(doomed func(pid int, mark uint32) bool) []int {
	left := t.pick(doomed)
	for _, pid := range left {
		t.Signal(pid, unix.SIGKILL)
	}
	return left
}

// hold keeps every process of the tree from running, by the cgroup freezer;
// without cgroups KillMarked relies on its rounds alone, as Kill does.
func (t *Tree) hold(on bool) {
	if t.host.cgroup != nil {
		_ = t.host.cgroup.freeze(t.name, on)
	}
}

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
			t.host.reap()
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

// killTagged kills without a cgroup. Killing what is seen would lose against a
// storm of forks, so what is seen is first stopped, until a whole walk finds
// nothing that still runs; then all is killed. A walk of /proc is not atomic:
// only two empty ones in a row prove the tree gone.
func (t *Tree) killTagged(deadline time.Time) []int {
	empty := 0
	stopped := map[int]bool{}
	for {
		fresh := 0
		pids := t.PIDs()
		for _, pid := range pids {
			if !stopped[pid] {
				stopped[pid] = true
				fresh++
				t.Signal(pid, unix.SIGSTOP)
			}
		}
		if fresh == 0 {
			for _, pid := range pids {
				t.Signal(pid, unix.SIGKILL)
			}
			clear(stopped)
		}
		if len(pids) == 0 {
			if empty++; empty == 2 {
				t.host.reap()
				return nil
			}
		} else {
			empty = 0
		}
		if time.Now().After(deadline) {
			for _, pid := range pids {
				t.Signal(pid, unix.SIGKILL)
			}
			return pids
		}
		if fresh == 0 && len(pids) > 0 {
			time.Sleep(200 * time.Microsecond)
		}
	}
}

// awaitStarts waits until the starts that are under way have been registered.
func (h *Host) awaitStarts() {
	h.spawn.Lock()
	h.spawn.Unlock() //nolint:gocritic,staticcheck // the wait is all there is to do
}

// awaitReaped waits until the reaper has taken the tracked processes: a caller
// that was told "gone" must not find a zombie.
func (t *Tree) awaitReaped(deadline time.Time) {
	t.host.mu.Lock()
	var procs []*Proc
	for _, p := range t.host.procs {
		if p.tree == t {
			procs = append(procs, p)
		}
	}
	t.host.mu.Unlock()
	if len(procs) == 0 {
		return
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for _, p := range procs {
		select {
		case <-p.done:
		case <-timer.C:
			return
		}
	}
}

// CPU is the processor time the tree has used, where cgroups tell.
func (t *Tree) CPU() (time.Duration, bool) {
	if t.host.cgroup == nil {
		return 0, false
	}
	return t.host.cgroup.cpu(t.name)
}
