package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// HostName identifies a host, even after its death: it names the host's cgroup,
// and its number is in the tags of the host's processes.
type HostName struct {
	Parent int    // pid of the parent of the host's processes
	Number uint16 // the host's number in tags
	// Namespace is the PID namespace of Parent: a container that sees our cgroups
	// must not take us for dead because it does not see our processes.
	Namespace uint64
}

// NameHost returns the name of a host in this PID namespace.
func NameHost(parent int, number uint16) HostName {
	var st unix.Stat_t
	_ = unix.Stat("/proc/self/ns/pid", &st) // on error all hosts share namespace 0
	return HostName{Parent: parent, Number: number, Namespace: st.Ino}
}

// String returns the name in the form that ParseHostName parses.
func (n HostName) String() string { return fmt.Sprintf("%d-%04x-%x", n.Parent, n.Number, n.Namespace) }

var errHostName = errors.New("malformed host name")

// ParseHostName parses what String returned.
func ParseHostName(text string) (HostName, error) {
	parts := strings.Split(text, "-")
	if len(parts) != 3 {
		return HostName{}, errHostName
	}
	parent, err := strconv.ParseUint(parts[0], 10, 31)
	number, numberErr := strconv.ParseUint(parts[1], 16, 16)
	namespace, namespaceErr := strconv.ParseUint(parts[2], 16, 64)
	if err != nil || numberErr != nil || namespaceErr != nil || parent == 0 {
		return HostName{}, errHostName
	}
	return HostName{Parent: int(parent), Number: uint16(number), Namespace: namespace}, nil
}

// Name returns the name of this host.
func (h *Host) Name() HostName { return NameHost(h.parent, h.id) }

// OrphanReport is the result of KillOrphans.
type OrphanReport struct {
	Found int   // processes found when it began
	Left  []int // processes that could not be killed: the kernel holds them
	// CgroupLeft is set if a cgroup could not be removed.
	CgroupLeft bool
}

// ErrHostAlive means that a host that was taken for dead is alive.
var ErrHostAlive = errors.New("still alive")

// ExitGrace is how long a process may take to die after it has closed its
// descriptors: other processes first see that its locks and pipes are free.
const ExitGrace = 5 * time.Second

// alive reports whether the parent of the host's processes is alive and does not
// exit within ExitGrace. Its pid may have been reused: the real parent has
// children with the host's tag, or a child with the host's name in its arguments,
// the cleaner.
func (n HostName) alive(tag tagger) bool {
	if n.Namespace != NameHost(0, 0).Namespace {
		return false // the pid means nothing in this namespace
	}
	if os.Getppid() == n.Parent {
		return false // this is the cleaner, which the parent started to do this
	}
	fd, err := unix.PidfdOpen(n.Parent, 0)
	if err != nil {
		return false
	}
	parent := Handle{n.Parent, fd}
	defer parent.Close()
	return !parent.WaitExit(0) && n.hasChildren(tag) && !parent.WaitExit(ExitGrace)
}

// hasChildren reports whether the process with the pid of the host's parent has
// children that belong to the host.
func (n HostName) hasChildren(tag tagger) bool {
	for _, pid := range Children(n.Parent) {
		if host, _, _, ok := tag.read(pid); ok && host == n.Number {
			return true
		}
		if line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); err == nil &&
			slices.Contains(strings.Split(string(line), "\x00"), n.String()) {
			return true
		}
	}
	return false
}

// KillOrphans kills everything that a dead host left: the processes in its cgroup
// and all processes that carry its tag. It returns when nothing is found any
// more, or at the deadline. It does not wait for zombies: the processes that
// inherited them reap them. It returns ErrHostAlive if the host is alive.
func (n HostName) KillOrphans(deadline time.Time) (OrphanReport, error) {
	tag, err := newTagger()
	if err != nil {
		return OrphanReport{}, err
	}
	if n.alive(tag) {
		return OrphanReport{}, fmt.Errorf("host %s: %w", n, ErrHostAlive)
	}
	m := &deadHost{HostName: n, tag: tag, started: map[int]time.Duration{}}
	ours, foreign := m.members()
	done := OrphanReport{Found: ours}
	candidates, err := cgroupCandidates()
	for _, dir := range candidates {
		path := filepath.Join(dir, cgroupPrefix+n.String())
		if _, statErr := os.Stat(path); !errors.Is(statErr, fs.ErrNotExist) && !killCgroup(path, deadline) {
			done.CgroupLeft = true
		}
	}
	killer := tagKiller{tag: tag, groups: true, trusts: m.trustsTag, matches: func(_ int, host uint16, _, _ uint32) bool { return host == n.Number }}
	for pid := range subreapers() {
		killer.subreapers = append(killer.subreapers, pid)
	}
	if foreign {
		killer.groups = false
		killer.matches = func(pid int, host uint16, _, _ uint32) bool {
			return host == n.Number && n.orphaned(tag, pid, subreapers())
		}
	}
	done.Left = killer.kill(deadline)
	return done, err
}

// deadHost is a host whose parent process is dead. Its processes can no longer
// descend from the parent, so a process of another uid counts if it descends from
// one that counts, or did when it was first seen.
type deadHost struct {
	HostName
	tag     tagger
	started map[int]time.Duration // start time of processes of another uid, by pid
}

func (m *deadHost) trustsTag(pid int, st stat) bool {
	if ownUID(pid) || m.started[pid] == st.start && st.start != 0 {
		return true
	}
	if !descends(pid, st, func(ancestor int) bool {
		host, _, _, ok := m.tag.read(ancestor)
		return ok && host == m.Number && ownUID(ancestor)
	}) {
		return false
	}
	m.started[pid] = st.start
	return true
}

// members counts the live processes of the host, and reports whether another live
// host has the same number: numbers are random, out of 65,536.
func (m *deadHost) members() (ours int, foreign bool) {
	reapers := subreapers()
	for _, pid := range allPIDs() {
		if host, _, _, ok := m.tag.read(pid); !ok || host != m.Number {
			continue
		}
		st, err := readStat(pid)
		if err != nil || st.dead() || !m.trustsTag(pid, st) {
			continue
		}
		if m.orphaned(m.tag, pid, reapers) {
			ours++
		} else {
			foreign = true
		}
	}
	return ours, foreign
}

// orphaned reports whether the parent of a process's tree has died: then the
// topmost process of the tree has been inherited by one of reapers, and not by
// another host.
func (n HostName) orphaned(tag tagger, pid int, reapers map[int]bool) bool {
	for {
		st, err := readStat(pid)
		if err != nil || reapers[st.ppid] {
			return true
		}
		// A process that lost its tag may be the parent of one that has it.
		host, _, _, ok := tag.read(st.ppid)
		if ok && host != n.Number || !ok && !tag.lowered(st.ppid) {
			// The parent that was read may have died since.
			now, err := readStat(pid)
			if err != nil || now.ppid == st.ppid {
				return err != nil || unix.Kill(st.ppid, 0) == unix.ESRCH
			}
			continue
		}
		pid = st.ppid
	}
}

// subreapers returns the processes that inherit the children of a dead relative
// of this process: init and the ancestors of this process.
func subreapers() map[int]bool {
	found := map[int]bool{0: true, 1: true} // 0: outside of this PID namespace
	for pid := os.Getppid(); !found[pid]; {
		found[pid] = true
		st, err := readStat(pid)
		if err != nil {
			break
		}
		pid = st.ppid
	}
	return found
}
