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

// HostName tells one host from all others, also when it is dead: its cgroup is
// called so, and its number is in the tags of its processes.
type HostName struct {
	Parent int    // pid of the parent of its processes
	Number uint16 // of the host, in the tags
	// Namespace is the one in which that pid means anything: a container that
	// sees our cgroups must not take us for dead because it does not see us.
	Namespace uint64
}

// NameHost names a host of this PID namespace.
func NameHost(parent int, number uint16) HostName {
	var st unix.Stat_t
	_ = unix.Stat("/proc/self/ns/pid", &st) // else all that can't tell are one
	return HostName{Parent: parent, Number: number, Namespace: st.Ino}
}

func (n HostName) String() string { return fmt.Sprintf("%d-%04x-%x", n.Parent, n.Number, n.Namespace) }

var errHostName = errors.New("no name of a host")

// ParseHostName reads what String wrote.
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

// Name of this host.
func (h *Host) Name() HostName { return NameHost(h.parent, h.id) }

// Buried is what Bury has done.
type OrphanReport struct {
	Found int   // processes that were there when it began
	Left  []int // those that the kernel itself holds
	// CgroupLeft says that a cgroup could not be removed.
	CgroupLeft bool
}

// ErrHostLives says that a host that was taken for dead is not.
var ErrHostAlive = errors.New("it lives")

// DyingTime is how long a process that has let go of its descriptors may take to
// be dead: what others see of its end first is that its locks and pipes are free.
const ExitGrace = 5 * time.Second

// lives reports whether the parent of the host's processes does, and goes on to. A
// living process with its number may be another one by now: the host's own has
// children with the host's tag, or one that is told the host's name, its
// undertaker.
func (n HostName) alive(tag tagger) bool {
	if n.Namespace != NameHost(0, 0).Namespace {
		return false // that number means nothing here
	}
	if os.Getppid() == n.Parent {
		return false // this is its undertaker, which it has told to do this
	}
	fd, err := unix.PidfdOpen(n.Parent, 0)
	if err != nil {
		return false
	}
	parent := Handle{n.Parent, fd}
	defer parent.Close()
	return !parent.WaitExit(0) && n.hasChildren(tag) && !parent.WaitExit(ExitGrace)
}

// isOf reports whether the process with the number of the host's parent has
// children of the host.
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

// Bury ends everything that a host left whose processes nobody owns any more:
// what is in its cgroup, and what carries its tag however far it strayed. It
// comes back when nothing is found any more, or at the deadline. It waits for
// no zombie: those are for who has inherited them. It refuses a host that lives,
// with ErrHostLives.
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
	prey := tagKiller{tag: tag, groups: true, trusts: m.trustsTag, matches: func(_ int, host uint16, _, _ uint32) bool { return host == n.Number }}
	for heir := range subreapers() {
		prey.subreapers = append(prey.subreapers, heir)
	}
	if foreign {
		prey.groups = false
		prey.matches = func(pid int, host uint16, _, _ uint32) bool {
			return host == n.Number && n.orphaned(tag, pid, subreapers())
		}
	}
	done.Left = prey.kill(deadline)
	return done, err
}

// mourned is a host that is dead. Nobody is left from whom its processes could
// descend, so one of another uid counts if it descends from one that counts, or
// did when it was first seen.
type deadHost struct {
	HostName
	tag     tagger
	started map[int]time.Duration // the start of those of another uid, by pid
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

// members counts the living processes of the host, and says whether another one
// lives that has the same number: numbers are drawn at random, from 65,536.
func (m *deadHost) members() (ours int, foreign bool) {
	heirs := subreapers()
	for _, pid := range allPIDs() {
		if host, _, _, ok := m.tag.read(pid); !ok || host != m.Number {
			continue
		}
		st, err := readStat(pid)
		if err != nil || st.dead() || !m.trustsTag(pid, st) {
			continue
		}
		if m.orphaned(m.tag, pid, heirs) {
			ours++
		} else {
			foreign = true
		}
	}
	return ours, foreign
}

// orphaned reports whether who would be the parent of a process's tree has died:
// then its topmost process has been inherited by one of heirs, and not by another
// host.
func (n HostName) orphaned(tag tagger, pid int, heirs map[int]bool) bool {
	for {
		st, err := readStat(pid)
		if err != nil || heirs[st.ppid] {
			return true
		}
		// A process that gave up its tag may be the parent of one that has it.
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

// heirs are who inherits the children of a dead relative of ours: the first
// process of all, and the ancestors of this one.
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
