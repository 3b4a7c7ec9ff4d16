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

// This file holds what differs when a holder is the parent: the holder reaps and
// reports exits, and trees and processes of an earlier daemon are adopted.

// exitInfo is how a process ended, and its tree if that is known.
type exitInfo struct {
	status Status
	tree   *Tree
}

// onExit handles the holder's report that a tracked process has exited.
func (h *Host) onExit(e holder.Exit) {
	status := statusOf(unix.WaitStatus(e.Status), &unix.Rusage{})
	status.CPU = e.CPU
	h.mu.Lock()
	p := h.procs[e.PID]
	exit := exitInfo{status: status}
	if p != nil {
		exit.tree = p.tree
		p.markExited(status)
	}
	h.exits[e.PID] = exit
	h.mu.Unlock()
}

// pollExit checks whether a process is gone when the holder is gone and cannot
// report it. How the process ended is unknown then; it is recorded as killed.
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

// Forget drops the recorded exit of p after the caller has persisted it, so that
// a later daemon does not receive it.
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

// Number returns the number by which a later daemon finds the tree again.
func (t *Tree) Number() uint32 { return t.num }

// AdoptTree takes over a tree of an earlier daemon.
func (h *Host) AdoptTree(name string, num uint32) *Tree {
	t := &Tree{host: h, num: num, name: treeName(name, num)}
	t.tagged.Store(h.cgroup != nil && !h.cgroup.has(t.name)) // it was missing before, or is now
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trees[num] = t
	if next := h.nextTree.Load(); num > next {
		h.nextTree.Store(num)
	}
	return t
}

// FoundTrees returns the numbers of the trees that an earlier daemon created, by
// name; nil without cgroups.
func (h *Host) FoundTrees() map[string]uint32 {
	if h.cgroup == nil {
		return nil
	}
	names, err := h.cgroup.names()
	if err != nil {
		h.log.Warn("cannot list trees of an earlier daemon", "error", err)
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

// AdoptProc takes over a process that an earlier daemon tracked. If it has exited
// meanwhile, its status is known.
func (t *Tree) AdoptProc(pid int) (*Proc, error) {
	h := t.host
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &Proc{pid: pid, tree: t, done: make(chan struct{})}
	if exit, known := h.exits[pid]; known {
		h.exits[pid] = exitInfo{status: exit.status, tree: t}
		p.status = exit.status
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

// KillUnadopted kills the trees of an earlier daemon that were not adopted: those
// it was just starting when it died.
func (h *Host) KillUnadopted() {
	h.killOrphans()
	if h.cgroup == nil {
		return
	}
	names, err := h.cgroup.names()
	if err != nil {
		h.log.Warn("cannot list trees of an earlier daemon", "error", err)
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

// unadoptedTimeout bounds the kill of a tree that was not adopted.
const unadoptedTimeout = 5 * time.Second
