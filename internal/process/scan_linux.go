package process

import (
	"os"
	"strconv"
	"sync"
)

// member is one live process of a tree, found by a scan of /proc.
type member struct {
	pid  int
	tree uint32
	mark uint32
}

// scanner walks /proc for processes that carry the host's tag. A walk costs some
// microseconds for each process of the machine, and hundreds of trees may want
// one at the same time, so waiting callers share a walk: each gets the result of
// one that began after its call.
type scanner struct {
	host *Host
	mu   sync.Mutex // serializes walks
	gate sync.Mutex // guards next
	next *scan
}

type scan struct {
	once    sync.Once
	members []member
}

// fresh returns the members of all trees, seen by a walk that started after
// the call. Zombies are not members.
func (s *scanner) fresh() []member {
	s.gate.Lock()
	if s.next == nil {
		s.next = &scan{}
	}
	mine := s.next
	s.gate.Unlock()

	s.mu.Lock()
	defer s.mu.Unlock()
	mine.once.Do(func() {
		s.gate.Lock()
		s.next = nil // later callers need a later walk
		s.gate.Unlock()
		mine.members = s.host.walk(func(uint32) bool { return true })
	})
	return mine.members
}

// walk returns the live processes of the trees for which wanted returns true.
func (h *Host) walk(wanted func(tree uint32) bool) []member {
	var out []member
	ours := map[int]bool{}
	for _, pid := range allPIDs() {
		host, tree, mark, ok := h.strangers.readTag(h.tag, pid)
		if !ok || host != h.id || !wanted(tree) {
			continue
		}
		st, err := readStat(pid)
		// Parents mostly come before their children; then the child's uid need
		// not be read.
		if err != nil || st.dead() || !ours[st.ppid] && !h.trustsTag(pid, st) {
			continue
		}
		ours[pid] = true
		out = append(out, member{pid: pid, tree: tree, mark: mark})
	}
	return out
}

// allPIDs lists the processes of this PID namespace.
func allPIDs() []int { return numbersIn("/proc") }

// numbersIn lists the directory entries whose names are numbers.
func numbersIn(dir string) []int {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil
	}
	numbers := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
