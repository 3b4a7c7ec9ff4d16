package process

import (
	"golang.org/x/sys/unix"
)

// reapLoop is the only place in the daemon that waits for children.
func (h *Host) reapLoop() {
	for {
		select {
		case <-h.stop:
			return
		case <-h.sigs:
			h.reap()
		}
	}
}

// reap takes every dead child that is ours: tracked processes, whose status
// goes to their owner, and tagged orphans, whose status nobody wants. A dead
// child that is neither (started by code outside this package) is left for
// whoever started it.
func (h *Host) reap() {
	for {
		var si siginfo
		err := si.wait(unix.P_ALL, 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
		if err != nil || si.pid() == 0 {
			return
		}
		if !h.reapOne(si.pid()) {
			// A stranger's zombie hides what is behind it in the kernel's
			// list: ask for ours one by one instead.
			h.reapTracked()
			return
		}
	}
}

// reapOne reaps pid if it is ours, and says whether it was.
func (h *Host) reapOne(pid int) bool {
	h.spawn.Lock()
	defer h.spawn.Unlock()
	h.mu.Lock()
	p := h.procs[pid]
	h.mu.Unlock()
	if p == nil && !h.ownsTag(pid) {
		return false
	}
	var ws unix.WaitStatus
	var ru unix.Rusage
	got, err := unix.Wait4(pid, &ws, unix.WNOHANG, &ru)
	if err != nil || got != pid {
		return err == nil || p != nil
	}
	if p == nil {
		h.orphans.Add(1)
		return true
	}
	h.mu.Lock()
	delete(h.procs, pid)
	h.mu.Unlock()
	p.status = statusOf(ws, &ru)
	close(p.done)
	return true
}

func (h *Host) reapTracked() {
	h.mu.Lock()
	pids := make([]int, 0, len(h.procs))
	for pid := range h.procs {
		pids = append(pids, pid)
	}
	h.mu.Unlock()
	for _, pid := range append(pids, ownChildren()...) {
		var si siginfo
		err := si.wait(unix.P_PID, pid, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
		if err == nil && si.pid() == pid {
			h.reapOne(pid)
		}
	}
}

// ownsTag reports whether pid, a zombie or not, descends from a tree of ours.
func (h *Host) ownsTag(pid int) bool {
	host, _, _, ok := h.tag.read(pid)
	return ok && host == h.id
}
