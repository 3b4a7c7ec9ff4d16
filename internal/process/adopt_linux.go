package process

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
)

// This file is what is different where a holder is the parent: it reaps, and
// tells; and what an earlier process of ours started is taken over.

// end is how a process ended, and of which tree it was if that is known.
type exitInfo struct {
	status Status
	tree   *Tree
}

// ended hears from the holder that a tracked process is gone.
func (h *Host) onExit(e holder.Exit) {
	status := statusOf(unix.WaitStatus(e.Status), &unix.Rusage{})
	status.CPU = e.CPU
	h.mu.Lock()
	p := h.procs[e.PID]
	over := exitInfo{status: status}
	if p != nil {
		over.tree = p.tree
		p.markExited(status)
	}
	h.exits[e.PID] = over
	h.mu.Unlock()
}

// endWithoutHolder finds out by itself that a process is gone, when nobody is
// there to tell. How it ended is not known then; it was killed.
func (h *Host) pollExit(p *Proc) {
	select {
	case <-h.holder.Done():
	default:
		return
	}
	if st, err := readStat(p.pid); err != nil || st.dead() {
		h.mu.Lock()
		known := h.procs[p.pid] == p
		h.mu.Unlock()
		if known {
			h.onExit(holder.Exit{PID: p.pid, Status: syscall.WaitStatus(unix.SIGKILL)})
		}
	}
}

// Forget says that the end of p has been noted, so that a later process of ours
// need not hear of it.
func (p *Proc) Forget() { p.tree.host.forgetExit(p.pid) }

func (h *Host) forgetExit(pid int) {
	h.mu.Lock()
	_, known := h.exits[pid]
	delete(h.exits, pid)
	h.mu.Unlock()
	if known {
		h.holder.Forget(pid)
	}
}

// Number is by which a later process of ours finds the tree again.
func (t *Tree) Number() uint32 { return t.num }

// AdoptTree takes over a tree of an earlier process of ours.
func (h *Host) AdoptTree(name string, num uint32) *Tree {
	t := &Tree{host: h, num: num, name: treeName(name, num)}
	t.tagged.Store(h.cgroup != nil && !h.cgroup.has(t.name)) // it was gone, or it is
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trees[num] = t
	if next := h.nextTree.Load(); num > next {
		h.nextTree.Store(num)
	}
	return t
}

// FoundTrees returns the numbers of the trees that an earlier process of ours made,
// by their names, where cgroups tell.
func (h *Host) FoundTrees() map[string]uint32 {
	if h.cgroup == nil {
		return nil
	}
	names, err := h.cgroup.names()
	if err != nil {
		h.log.Warn("what an earlier daemon left can't be listed", "error", err)
		return nil
	}
	found := map[string]uint32{}
	for _, have := range names {
		dot := strings.LastIndexByte(have, '.')
		if n, err := strconv.ParseUint(have[dot+1:], 10, 32); dot > 0 && err == nil {
			found[have[:dot]] = uint32(n)
		}
	}
	return found
}

// AdoptProc takes over a process that was tracked before. It may have ended
// meanwhile; how is known.
func (t *Tree) AdoptProc(pid int) (*Proc, error) {
	h := t.host
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &Proc{pid: pid, tree: t, done: make(chan struct{})}
	if over, known := h.exits[pid]; known {
		h.exits[pid] = exitInfo{status: over.status, tree: t}
		p.status = over.status
		close(p.done)
		return p, nil
	}
	host, tree, _, tagged := h.tag.read(pid)
	if !slices.Contains(h.holder.Hello().Tracked, pid) || tagged && host == h.id && tree != t.num {
		return nil, fmt.Errorf("adopt %d: %w", pid, errNotOurs)
	}
	h.procs[pid] = p
	t.procs = append(t.procs, p)
	return p, nil
}

// EndStrangers ends what an earlier process of ours left and nobody has taken
// over: what it was just starting when it died.
func (h *Host) KillUnadopted() {
	h.killOrphans()
	if h.cgroup == nil {
		return
	}
	names, err := h.cgroup.names()
	if err != nil {
		h.log.Warn("what an earlier daemon left can't be listed", "error", err)
		return
	}
	for _, name := range names {
		dot := strings.LastIndexByte(name, '.')
		num, err := strconv.ParseUint(name[dot+1:], 10, 32)
		if err != nil {
			continue
		}
		h.mu.Lock()
		known := h.trees[uint32(num)] != nil
		h.mu.Unlock()
		if !known {
			h.AdoptTree(name[:max(dot, 0)], uint32(num)).Kill(time.Now().Add(unadoptedTimeout))
		}
	}
}

// strangerTime bounds the end of a tree that nobody has taken over.
const unadoptedTimeout = 5 * time.Second
