package process

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// mostLists bounds the descriptors that open lists cost.
	maxLists = 64
	// listLinger is for how long a list that nobody reads stays open. Commands
	// often come one right after another, and each ends with a look at the list.
	listLinger = 50 * time.Millisecond
)

// lists are the process lists (cgroup.procs) of groups that were read a moment
// ago. To open one costs three times as much as to read it, so it stays open
// while commands come and go. An idle group has none.
type procLists struct {
	linger time.Duration // listLinger, but in tests

	mu    sync.Mutex // comes before list.mu
	open  map[string]*procList
	timer *time.Timer // runs while any is open
}

type procList struct {
	used atomic.Bool // since the last look
	mu   sync.Mutex  // held while it is read
	fd   int         // -1: closed
}

// of returns the list of a group, nil if there are too many or no such group.
func (ls *procLists) of(root int, name string) *procList {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.open[name]; l != nil {
		return l
	}
	if len(ls.open) >= maxLists {
		return nil
	}
	fd, err := unix.Openat(root, name+"/cgroup.procs", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	if ls.open == nil {
		ls.open = map[string]*procList{}
		ls.timer = time.AfterFunc(ls.linger, ls.shrink)
	} else if len(ls.open) == 0 {
		ls.timer.Reset(ls.linger)
	}
	l := &procList{fd: fd}
	ls.open[name] = l
	return l
}

// read returns the list as it is now. It is false where it must be read from a
// file of one's own: what fills buf may not be all.
func (l *procList) read(buf []byte) ([]byte, bool) {
	l.used.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd < 0 {
		return nil, false
	}
	n, err := unix.Pread(l.fd, buf, 0)
	if err != nil || n == len(buf) {
		return nil, false
	}
	return buf[:n], true
}

// shrink closes those that were not read since the last time.
func (ls *procLists) shrink() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for name, l := range ls.open {
		if !l.used.Swap(false) {
			ls.close(name)
		}
	}
	if len(ls.open) > 0 {
		ls.timer.Reset(ls.linger)
	}
}

// forget closes the list of a group that is gone.
func (ls *procLists) forget(name string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.close(name)
}

// close closes a list, if it is open. Under mu.
func (ls *procLists) close(name string) {
	l := ls.open[name]
	if l == nil {
		return
	}
	delete(ls.open, name)
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = unix.Close(l.fd)
	l.fd = -1
}

// closeAll closes all for good.
func (ls *procLists) closeAll() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for name := range ls.open {
		ls.close(name)
	}
	if ls.timer != nil {
		ls.timer.Stop()
	}
}
