package process

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/nowait"
)

const (
	// maxLists bounds the descriptors used by open lists.
	maxLists = 64
	// listLinger is how long an unused list stays open. Commands often follow
	// each other closely, and each ends with a read of the list.
	listLinger = 50 * time.Millisecond
)

// procLists caches open process lists (cgroup.procs) of groups that were read
// recently. Opening a list costs three times as much as reading it, so it stays
// open while commands come and go. An idle group has none open.
type procLists struct {
	linger time.Duration // listLinger, except in tests

	mu    sync.Mutex // locked before procList.mu
	open  map[string]*procList
	timer *time.Timer // runs while any list is open
}

type procList struct {
	used atomic.Bool // since the last shrink
	mu   sync.Mutex  // held while reading
	fd   int         // -1 means closed
}

// of returns the list of a group; nil means too many lists or no such group.
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

// read returns the current list. False means that the caller must read the file
// itself: a list that fills buf may be incomplete.
func (l *procList) read(buf []byte) ([]byte, bool) {
	l.used.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd < 0 {
		return nil, false
	}
	n, err := nowait.Pread(l.fd, buf, 0)
	if err != nil || n == len(buf) {
		return nil, false
	}
	return buf[:n], true
}

// shrink closes the lists that were not read since the last call.
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

// forget closes the list of a removed group.
func (ls *procLists) forget(name string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.close(name)
}

// close closes a list if it is open. The caller must hold mu.
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

// closeAll closes all lists and stops the timer.
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
