package process

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A tag alone proves nothing: every user may lower their own limits to any value,
// and /proc/PID/limits shows the value of a session. So a process's tag is
// trusted only if its real uid is that of this process, or if it descends from
// the parent of the host's processes, as a session's program does that has
// changed its uid. No other process can become such a descendant: the parent is a
// subreaper, and orphans are only ever reparented upwards.

// trustsTag reports whether a process that carries this host's tag is really one
// of its processes.
func (h *Host) trustsTag(pid int, st stat) bool {
	if st.ppid == h.parent || ownUID(pid) || descends(pid, st, func(ancestor int) bool { return ancestor == h.parent }) {
		return true
	}
	if _, err := readStat(pid); err != nil {
		return false // it has exited meanwhile, and nothing is known about it
	}
	h.foreign.Do(func() {
		h.log.Warn("ignoring processes of another user that carry a session's tag", "event", "foreign_tag", "pid", pid)
	})
	return false
}

// ownUID reports whether the real uid of a process is that of this one. The
// effective uid or the owner of /proc/PID would be wrong: they belong to the
// program's owner when another user runs a setuid program.
func ownUID(pid int) bool {
	var small [1024]byte
	b, err := readKernelFile(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/status", small[:])
	if err != nil {
		return false
	}
	const field = "\nUid:\t" // a process name can't fake it: newlines in it are escaped
	i := bytes.Index(b, []byte(field))
	if i < 0 {
		return false
	}
	text, _, _ := bytes.Cut(b[i+len(field):], []byte("\t"))
	uid, err := strconv.Atoi(string(text))
	return err == nil && uid == os.Getuid()
}

// maxAncestry bounds a walk up the ancestors of a process, including those that
// exit during the walk.
const maxAncestry = 4096

// descends reports whether from returns true for one of the ancestors of a
// process. st is the stat of pid, just read.
func descends(pid int, st stat, from func(ancestor int) bool) bool {
	for range maxAncestry {
		if from(st.ppid) {
			return true
		}
		if st.ppid <= 1 {
			return false
		}
		above, err := readStat(st.ppid)
		// The parent may have exited and its pid may have been reused: it is the
		// parent only if the child still names it.
		now, childErr := readStat(pid)
		switch {
		case childErr != nil:
			return false
		case err != nil || now.ppid != st.ppid:
			st = now
		default:
			pid, st = st.ppid, above
		}
	}
	return false
}

// InTree reports whether a process, or one that it descends from, is in a tree of
// this host that fn returns true for. A process that is gone counts as one: what it
// was is unknown.
func (h *Host) InTree(pid int, fn func(tree uint32) bool) bool {
	if pid <= 0 {
		return false // in a PID namespace outside of ours, where no tree is
	}
	in := func(pid int) bool {
		host, tree, _, ok := h.tag.read(pid)
		return ok && host == h.id && fn(tree)
	}
	st, err := readStat(pid)
	return err != nil || st.dead() || in(pid) || descends(pid, st, in)
}
