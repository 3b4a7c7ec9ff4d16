package process

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// reapPause bounds the pause between two passes of the reaper.
const reapPause = 50 * time.Millisecond

// reapLoop reaps when children have died. The kernel goes through all children
// for each pass, which takes a millisecond or two with ten thousand of them, so
// the pause after a pass is four times the duration of the pass. Callers that
// wait for a particular process do not wait for a pass: see Tree.Kill.
func (h *Host) reapLoop() {
	for {
		select {
		case <-h.stop:
			return
		case <-h.sigs:
		}
		begin := time.Now()
		h.reap()
		pause := time.NewTimer(min(4*time.Since(begin), reapPause))
		select {
		case <-h.stop:
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// reap reaps every dead child that is ours: tracked processes, whose status goes
// to their Proc, and tagged orphans, whose status is dropped. A dead child that
// is neither (started by code outside this package) is left for its owner.
func (h *Host) reap() {
	for {
		var si siginfo
		err := si.wait(unix.P_ALL, 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
		if err != nil || si.pid() == 0 {
			return
		}
		if !h.reapOne(si.pid()) {
			// A zombie that is not ours hides the ones behind it in the kernel's
			// list: ask for ours one by one instead.
			h.reapTracked()
			return
		}
	}
}

// reapExiting reaps processes that were killed and are not quite dead: they have
// left their cgroup and are not zombies yet.
func (h *Host) reapExiting() {
	deadline := time.Now().Add(time.Second) // the kernel itself may hold one
	for _, pid := range ownChildren() {
		for time.Now().Before(deadline) {
			if st, err := readStat(pid); err != nil || !st.exiting && !st.dead() || !h.reapOne(pid) {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// reapOne reaps pid if it is ours, and reports whether it was.
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
	p.markExited(statusOf(ws, &ru))
	h.mu.Unlock()
	return true
}

// markExited removes p from the tracked processes after setting its status, so a
// caller that no longer finds it there can read how it ended. The caller must
// hold the host's mu.
func (p *Proc) markExited(status Status) {
	p.status = status
	close(p.done)
	delete(p.tree.host.procs, p.pid)
	p.tree.procs = slices.DeleteFunc(p.tree.procs, func(o *Proc) bool { return o == p })
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

// ownsTag reports whether pid, a zombie or not, descends from one of our trees. A
// process that has lowered the limit that holds its tag does too: any other
// process that we start has our own limit, which is infinity.
func (h *Host) ownsTag(pid int) bool {
	host, _, _, ok := h.tag.read(pid)
	return ok && host == h.id || !ok && h.tag.lowered(pid)
}
