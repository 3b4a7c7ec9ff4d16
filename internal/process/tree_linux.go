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

// Tree is the set of all descendants of the processes started in it. Its methods
// are safe for concurrent use.
type Tree struct {
	host *Host
	name string
	num  uint32
	// procs are the tracked processes that have not been reaped; guarded by
	// host.mu.
	procs []*Proc
	// dying is set when Kill begins; nothing is started or adopted afterwards.
	dying atomic.Bool
	// tagged is set when the host has cgroups and this tree has none: its cgroup
	// is gone and cannot be recreated.
	tagged atomic.Bool
	alone  alone // see Survivors
	// limits are those of SetLimits; nil means none.
	limits atomic.Pointer[Limits]
	// cpuLifted is set while the limit of processor time is not enforced.
	cpuLifted atomic.Bool
}

// cgroup returns the root that holds the tree's cgroup; nil means that the tree
// has none.
func (t *Tree) cgroup() *cgroupRoot {
	if t.tagged.Load() {
		return nil
	}
	return t.host.cgroup
}

// makeCgroup creates the tree's cgroup. If that is impossible because the host's
// cgroup directory was removed, the tree continues with tags alone.
func (t *Tree) makeCgroup() error {
	cg := t.cgroup()
	if cg == nil {
		return nil
	}
	err := cg.make(t.name)
	if err == nil {
		return t.restoreLimits()
	}
	if errors.Is(err, unix.EEXIST) || cg.has("cgroup.procs") {
		return err
	}
	t.tagged.Store(true)
	if err := t.restoreLimits(); err != nil {
		return err
	}
	t.host.log.Warn("session cgroup is gone and cannot be recreated; tracking processes by tags",
		"event", "cgroup_gone", "tree", t.name, "error", err)
	return nil
}

// withCgroup calls put, which moves a process into the tree's cgroup. If the
// cgroup is gone, it recreates the cgroup and calls put again.
func (t *Tree) withCgroup(put func(cg *cgroupRoot) error) error {
	cg := t.cgroup()
	if cg == nil {
		return t.restoreLimits()
	}
	err := put(cg)
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := t.makeCgroup(); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	if cg = t.cgroup(); cg == nil {
		return t.restoreLimits()
	}
	return put(cg)
}

// NewTree creates an empty tree. The name is for people who look at cgroups.
func (h *Host) NewTree(name string) (*Tree, error) {
	h.mu.Lock()
	num := h.nextTree.Add(1) & maxTree
	for h.trees[num] != nil { // numbers wrap around after 67 million trees
		num = h.nextTree.Add(1) & maxTree
	}
	t := &Tree{host: h, num: num}
	t.name = treeName(name, num)
	h.trees[num] = t
	h.mu.Unlock()
	if err := t.makeCgroup(); err != nil {
		h.forget(t)
		return nil, fmt.Errorf("create cgroup: %w", err)
	}
	return t, nil
}

// treeName returns a name that is unique even if names repeat.
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

// Mark sets the mark of every process that p starts until the next Mark. Zero is
// the mark of a tree's first process; marks wrap around after MaxMark.
func (t *Tree) Mark(p *Proc, mark uint32) error {
	return t.host.tag.set(p.pid, t.host.id, t.num, mark&maxMark)
}

const (
	// MaxMark is the largest mark.
	MaxMark = maxMark - 1
	// UnknownMark is the mark of a process in the tree's cgroup that has lost its
	// tag.
	UnknownMark = maxMark
)

// HasTag reports whether p still carries the tree's tag. Without it, processes
// that p starts cannot be attributed to the tree.
func (t *Tree) HasTag(p *Proc) bool {
	host, tree, _, ok := t.host.tag.read(p.pid)
	return ok && host == t.host.id && tree == t.num
}

// Alive reports whether a process that was started in the tree, or adopted by it,
// has not exited.
func (t *Tree) Alive(pid int) bool {
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	p := t.host.procs[pid]
	return p != nil && p.tree == t && !p.Exited()
}

// PIDs lists the processes of the tree. With cgroups it does not list zombies and
// costs about 2 µs.
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

// Marked lists the live processes that carry a mark, without those in except: the
// process that starts the others carries the mark too.
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
	Busy      bool // running or runnable, not sleeping
}

// Forked reports whether a process lives that has executed no program since it was
// forked.
func Forked(pid int) bool {
	st, err := readStat(pid)
	return err == nil && !st.dead() && st.forked
}

// Describe returns information about those pids that are alive.
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
			// It has no arguments: it is exiting, or about to exec another
			// program.
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

// Parent returns the pid of the process that inherits the tree's orphans: the
// holder, or this process.
func (t *Tree) Parent() int { return t.host.parent }

// Signal signals a process if it is still in the tree, and reports whether it
// did.
func (t *Tree) Signal(pid int, sig unix.Signal) bool {
	return t.host.signalTagged(pid, t.num, sig)
}

// signalTagged signals pid through a pidfd, and only after reading the tree's tag
// behind that pidfd, so a pid that was reused since it was listed is never
// signalled.
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

// TermSent maps the pid of each process that was sent SIGTERM to whether it had
// already executed its program then. A process that a shell has just forked may
// handle the signal as the shell does, and lose it when it executes a program.
type TermSent map[int]bool

// Has reports whether a process was sent SIGTERM.
func (a TermSent) Has(pid int) bool {
	_, has := a[pid]
	return has
}

// Terminate sends SIGTERM to the live processes that pick chooses, and SIGCONT
// because a stopped process handles SIGTERM only once it continues. It does not
// signal a process twice, unless the process has executed another program since.
// It returns all processes that pick chose.
func (t *Tree) Terminate(sent TermSent, pick func(pid int, mark uint32) bool) []int {
	t.liftCPU()
	left := t.pick(pick)
	for _, pid := range left {
		if sent[pid] {
			continue
		}
		st, err := readStat(pid)
		forked := err == nil && st.forked
		if sent.Has(pid) && forked {
			continue
		}
		sent[pid] = !forked
		t.Signal(pid, unix.SIGTERM)
		t.Signal(pid, unix.SIGCONT)
	}
	return left
}

// pick lists the live processes that fn chooses.
func (t *Tree) pick(fn func(pid int, mark uint32) bool) []int { return t.pickExcept(nil, fn) }

// pickExcept lists the live processes that fn chooses, without those in except.
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

// CPU returns the processor time the tree has used; false means that it is
// unknown because the tree has no cgroup.
func (t *Tree) CPU() (time.Duration, bool) {
	cg := t.cgroup()
	if cg == nil {
		return 0, false
	}
	return cg.cpu(t.name)
}
