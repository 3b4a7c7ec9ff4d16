package process

import (
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// strangers remembers processes of other users that have no tag. Only root can ask
// the kernel for their limits; reading them from a file takes ten times as long, and
// a machine has hundreds of such processes. A process inherits its tag when it is
// forked, so one without a tag never gets one. The zero value is ready to use. It is
// safe for concurrent use.
type strangers struct {
	mu    sync.Mutex
	known map[int]procInode
}

// procInode identifies a process as long as the machine runs: /proc has a new inode
// for a process that gets the number of another one.
type procInode struct {
	number  uint64
	created unix.Timespec
}

func procInodeOf(pid int) (procInode, bool) {
	var st unix.Stat_t
	err := unix.Stat("/proc/"+strconv.Itoa(pid), &st)
	return procInode{st.Ino, st.Ctim}, err == nil
}

// maxStrangers bounds the memory; those that have exited are not removed one by one.
const maxStrangers = 10_000

// readTag returns the tag of a process as tagger.read does.
func (s *strangers) readTag(t tagger, pid int) (host uint16, tree, mark uint32, ok bool) {
	rl, err := t.limit(pid)
	if err == nil {
		return parseTag(rl)
	}
	// The inode first: a process that takes over the number later has another.
	inode, found := procInodeOf(pid)
	if err != unix.EPERM || !found {
		return 0, 0, 0, false
	}
	s.mu.Lock()
	known, hit := s.known[pid]
	s.mu.Unlock()
	if hit && known == inode {
		return 0, 0, 0, false
	}
	rl, read := t.readFile(pid)
	if !read {
		return 0, 0, 0, false
	}
	if host, tree, mark, ok = parseTag(rl); ok {
		return host, tree, mark, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxStrangers {
		s.known = map[int]procInode{}
	}
	s.known[pid] = inode
	return 0, 0, 0, false
}
