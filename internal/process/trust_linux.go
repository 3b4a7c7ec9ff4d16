package process

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A tag alone proves nothing: every user may lower a limit of their own to any
// value, and /proc/PID/limits shows which value a session has. So a process
// counts by its tag only if its real uid is this process's, or if it descends
// from the parent of the host's processes, as a program of a session does that
// has changed its uid. Nobody else can become such a descendant: the parent is
// a subreaper, and a process is only ever inherited upwards.

// counts reports whether a process that carries this host's tag may be taken
// for one of its processes.
func (h *Host) trustsTag(pid int, st stat) bool {
	if st.ppid == h.parent || ownUID(pid) || descends(pid, st, func(ancestor int) bool { return ancestor == h.parent }) {
		return true
	}
	if _, err := readStat(pid); err != nil {
		return false // it has ended meanwhile, and nothing is known of it
	}
	h.foreign.Do(func() {
		h.log.Warn("ignoring processes of another user that carry a session's tag", "event", "foreign_tag", "pid", pid)
	})
	return false
}

// ownUID reports whether the real uid of a process is that of this one. Neither
// the effective uid nor the owner of /proc/PID will do: they are those of a
// setuid program that another user has started.
func ownUID(pid int) bool {
	var small [1024]byte
	b, err := readKernelFile(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/status", small[:])
	if err != nil {
		return false
	}
	const field = "\nUid:\t" // a name can't fake it: newlines in it are escaped
	i := bytes.Index(b, []byte(field))
	if i < 0 {
		return false
	}
	text, _, _ := bytes.Cut(b[i+len(field):], []byte("\t"))
	uid, err := strconv.Atoi(string(text))
	return err == nil && uid == os.Getuid()
}

// maxAncestry bounds a walk up the ancestors of a process, those included that
// end during the walk.
const maxAncestry = 4096

// descends reports whether one of the ancestors of a process, whose stat was
// just read, is one that is asked for.
func descends(pid int, st stat, from func(ancestor int) bool) bool {
	for range maxAncestry {
		if from(st.ppid) {
			return true
		}
		if st.ppid <= 1 {
			return false
		}
		above, err := readStat(st.ppid)
		// The parent may have ended, and its number may be another process's by
		// now: it is the parent only if the child still says so.
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
