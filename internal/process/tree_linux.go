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
	// procs are the tracked processes that have not been reaped; under host.mu.
	procs []*Proc
	// dying is set when Kill begins; nothing is started or adopted after.
	dying atomic.Bool
	// tagged is set when the tree has no cgroup though the host has: it is gone
	// and can't be made again.
	tagged atomic.Bool
}

// cgroup returns where the tree's cgroup is; nil means that it has none.
func (t *Tree) cgroup() *cgroupRoot {
	if t.tagged.Load() {
		return nil
	}
	return t.host.cgroup
}

// makeCgroup makes the tree's cgroup. Where that is impossible because the
// directory of all cgroups was removed, the tree goes on with tags alone.
func (t *Tree) makeCgroup() error {
	cg := t.cgroup()
	if cg == nil {
		return nil
	}
	err := cg.make(t.name)
	if err == nil || errors.Is(err, unix.EEXIST) || cg.has("cgroup.procs") {
		return err
	}
	t.tagged.Store(true)
	t.host.log.Warn("the cgroup of sessions is gone and can't be made again; tracking processes by tags",
		"event", "cgroup_gone", "tree", t.name, "error", err)
	return nil
}

// intoCgroup does what puts a process into the tree's cgroup, which is made anew
// first if it is gone.
func (t *Tree) withCgroup(put func(cg *cgroupRoot) error) error {
	cg := t.cgroup()
	if cg == nil {
		return nil
	}
	err := put(cg)
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := t.makeCgroup(); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	if cg = t.cgroup(); cg == nil {
		return nil
	}
	return put(cg)
}

// NewTree makes an empty tree. The name is for people who look at cgroups.
func (h *Host) NewTree(name string) (*Tree, error) {
	h.mu.Lock()
	num := h.nextTree.Add(1) & maxTree
	for h.trees[num] != nil { // numbers come round after 67 million trees
		num = h.nextTree.Add(1) & maxTree
	}
	t := &Tree{host: h, num: num}
	t.name = treeName(name, num)
	h.trees[num] = t
	h.mu.Unlock()
	if err := t.makeCgroup(); err != nil {
		h.forget(t)
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}
	return t, nil
}

// treeName is unique also where the names are not.
func treeName(name string, num uint32) string { return name + "." + strconv.Itoa(int(num)) }

func (h *Host) forget(t *Tree) {
	if h.cgroup != nil {
		h.cgroup.lists.forget(t.name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.trees, t.num)
	for pid, e := range h.exits {
		if e.tree == t {
			delete(h.exits, pid)
			h.holder.Forget(pid)
		}
	}
}

// Mark numbers what p starts from now on, until the next Mark. Zero is the
// mark of a tree's first process; MaxMark marks exist, then they come round.
func (t *Tree) Mark(p *Proc, mark uint32) error {
	return t.host.tag.set(p.pid, t.host.id, t.num, mark&maxMark)
}

const (
	// MaxMark is the largest mark.
	MaxMark = maxMark - 1
	// UnknownMark is that of a process in the tree's cgroup which has given up
	// its tag.
	UnknownMark = maxMark
)

// Holds reports whether p still carries the tree's tag, without which what it
// starts could not be told.
func (t *Tree) HasTag(p *Proc) bool {
	host, tree, _, ok := t.host.tag.read(p.pid)
	return ok && host == t.host.id && tree == t.num
}

// Lives reports whether a process that was started in the tree, or adopted by it, has
// not ended.
func (t *Tree) Alive(pid int) bool {
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	p := t.host.procs[pid]
	return p != nil && p.tree == t && !p.Exited()
}

// PIDs lists the processes of the tree. With cgroups a zombie is not listed,
// and a list costs about 2 µs.
func (t *Tree) PIDs() []int {
	if cg := t.cgroup(); cg != nil {
		pids, err := cg.pidsCached(t.name)
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

// Marked lists the live processes that carry a mark, but for some: the process
// that starts the others carries it too.
func (t *Tree) Marked(mark uint32, except ...int) []int {
	return t.pickExcept(except, func(_ int, m uint32) bool { return m == mark&maxMark })
}

// Info describes one process.
type Info struct {
	PID, PPID int
	Mark      uint32
	Age       time.Duration
	RSS       int64
	Command   string
	Busy      bool // it runs, or would if it had a processor; it does not sleep
}

// Describe returns what is known of the processes among pids that are alive.
func (t *Tree) Describe(pids []int) []Info {
	infos := make([]Info, 0, len(pids))
	now := SinceBoot()
	for _, pid := range pids {
		st, err := readStat(pid)
		if err != nil || st.dead() {
			continue
		}
		command := commandLine(pid, st.comm)
		if command[0] == '[' {
			// It has no arguments: it is ending, or just becoming another program.
			if st, err = readStat(pid); err != nil || st.dead() || st.exiting {
				continue
			}
		}
		_, _, mark, _ := t.host.tag.read(pid)
		infos = append(infos, Info{
			PID: pid, PPID: st.ppid, Mark: mark, RSS: st.rss,
			Age:     max(0, now-st.start),
			Command: command,
			Busy:    st.state != 'S',
		})
	}
	return infos
}

// Parent is the pid of who inherits what loses its parent: the holder, or this
// process.
func (t *Tree) Parent() int { return t.host.parent }

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
	if host, n, _, ok := h.tag.read(pid); ok && (host != h.id || n != tree) || !ok && !h.tag.lowered(pid) {
		return false
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

// Asked are the processes that were asked to end, each with whether it was then the
// program that it is for. What a shell has just forked may take the signal for its
// own, and forget it when it becomes another program.
type TermSent map[int]bool

// Has reports whether a process was asked.
func (a TermSent) Has(pid int) bool {
	_, has := a[pid]
	return has
}

// Ask asks the live processes that pick chooses to end: SIGTERM, and SIGCONT
// because a stopped process acts on it only when it is continued. Who was asked is
// not asked again, unless it has become another program since. It returns all that
// pick chose.
func (t *Tree) Terminate(asked TermSent, pick func(pid int, mark uint32) bool) []int {
	left := t.pick(pick)
	for _, pid := range left {
		if asked[pid] {
			continue
		}
		st, err := readStat(pid)
		forked := err == nil && st.forked
		if asked.Has(pid) && forked {
			continue
		}
		asked[pid] = !forked
		t.Signal(pid, unix.SIGTERM)
		t.Signal(pid, unix.SIGCONT)
	}
	return left
}

// pick lists the live processes that fn chooses.
func (t *Tree) pick(fn func(pid int, mark uint32) bool) []int { return t.pickExcept(nil, fn) }

// pickBut lists the live processes that fn chooses, but for some.
func (t *Tree) pickExcept(except []int, fn func(pid int, mark uint32) bool) []int {
	return slices.DeleteFunc(t.PIDs(), func(pid int) bool {
		if slices.Contains(except, pid) {
			return true
		}
		_, tree, mark, ok := t.host.tag.read(pid)
		if !ok || tree != t.num {
			if t.cgroup() == nil {
				return true
			}
			mark = UnknownMark
		}
		if !fn(pid, mark) {
			return true
		}
		st, err := readStat(pid)
		return err != nil || st.dead()
	})
}

// CPU is the processor time the tree has used, where cgroups tell.
func (t *Tree) CPU() (time.Duration, bool) {
	cg := t.cgroup()
	if cg == nil {
		return 0, false
	}
	return cg.cpu(t.name)
}
