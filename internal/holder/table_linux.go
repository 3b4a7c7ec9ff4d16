package holder

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// recentExits is how many of the newest exits of untracked processes are
// remembered: a child may end before the daemon that forked it asks to track
// it. This matters only for processes that die within those microseconds, or
// while the daemon is not scheduled at that moment.
const recentExits = 4096

// table is all that the holder knows. Its lock orders messages of the daemon
// and reaping: a process is reaped and recorded in one step.
type table struct {
	mu             sync.Mutex
	slots          map[int]int64      // generations, by number
	lastGeneration int64              // last generation that was used
	tracked        map[int]*exitState // by pid, until forgotten
	recent         map[int]exitState  // exits of untracked processes, by pid
	lastRecent     uint64             // number of the newest exit that was added to recent
	order          []recentExit       // the exits added to recent, as a ring once it is full; some are gone
	oldest         int                // next index of order to overwrite
	orphans        int64
	daemon         int                     // pid of the daemon, 0 if there is none
	died           chan syscall.WaitStatus // its exit status; never blocks the sender
	send           *sendQueue              // to the daemon, nil if there is none
	exitMsg        *record
	cleaner        *cleaner // nil if there is none
	// formerCleaner is the pid of the cleaner from before a re-exec; 0 means
	// that it is gone.
	formerCleaner int
}

// recentExit names an exit in recent. A pid alone does not: it may have been
// reused since.
type recentExit struct {
	pid    int
	number uint64
}

// exitState says whether a process has ended, and how.
type exitState struct {
	pid    int
	exited bool
	status syscall.WaitStatus
	cpu    int64
	number uint64 // in recent: which exit it is
}

func (e *exitState) record() record {
	return record{kind: gotExit, num: int32(e.pid), value: int32(e.status), extra: e.cpu}
}

// lostStatus stands for an exit status that is not known: as if killed.
const lostStatus = syscall.WaitStatus(unix.SIGKILL)

func newTable() *table {
	return &table{
		slots: map[int]int64{}, tracked: map[int]*exitState{}, recent: map[int]exitState{},
		died: make(chan syscall.WaitStatus, 1),
	}
}

// connect makes to the queue to the daemon and sends it everything in the
// table.
func (t *table) connect(to *sendQueue, hello record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.send, t.exitMsg = to, nil
	hello.extra = t.lastGeneration
	to.put(hello, -1)
	for number, generation := range t.slots {
		to.put(slotRecord(gotSlot, newSlot(number, generation)), -1)
	}
	for pid, e := range t.tracked {
		if e.exited {
			to.put(e.record(), -1)
		} else {
			to.put(record{kind: gotTrack, num: int32(pid)}, -1)
		}
	}
	to.put(record{kind: gotReady}, -1)
}

// disconnect removes the queue to the daemon and returns the ExitMode message
// that the daemon sent, or nil.
func (t *table) disconnect() *record {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.send = nil
	return t.exitMsg
}

// handle processes one message of the daemon.
func (t *table) handle(r record, fd int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if (fd != -1) != (r.kind == wantKeep) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return fmt.Errorf("%w: kind %d, with descriptor: %v", errMalformed, r.kind, fd != -1)
	}
	switch r.kind {
	case wantKeep:
		t.refuse(r, t.keep(r, fd))
	case wantDrop:
		t.refuse(r, t.drop(r.slot()))
	case wantTake:
		a := record{kind: gotTake, id: r.id}
		copied, err := t.take(r.slot())
		a.value = int32(err)
		t.send.put(a, copied)
	case wantSync:
		t.send.put(record{kind: gotSync, id: r.id}, -1)
	case wantGroup:
		a := record{kind: gotGroup, id: r.id}
		if err, ok := unix.Setpgid(int(r.num), int(r.num)).(unix.Errno); ok { //nolint:errorlint // it is the bare number
			a.value = int32(err)
		}
		t.send.put(a, -1)
	case wantTrack:
		t.track(int(r.num))
	case wantForget:
		if e := t.tracked[int(r.num)]; e != nil && e.exited {
			delete(t.tracked, e.pid)
		}
	case wantCount:
		t.send.put(record{kind: gotCount, id: r.id, extra: t.orphans}, -1)
	case wantExitMode:
		t.exitMsg = &r
	default:
		return fmt.Errorf("%w: kind %d", errMalformed, r.kind)
	}
	return nil
}

// refuse tells the daemon that a request for a slot was not done, and why. The
// daemon stays connected: the error concerns one slot, and no other has
// changed.
func (t *table) refuse(r record, why unix.Errno) {
	if why != 0 {
		t.send.put(record{kind: gotRefused, flags: uint8(r.kind), num: r.num, value: int32(why), extra: r.extra}, -1)
	}
}

// checkSlot returns 0 if the slot is in use with its generation, otherwise an
// errno.
func (t *table) checkSlot(slot Slot) unix.Errno {
	generation, ok := t.slots[slot.Number()]
	switch {
	case !ok:
		return unix.EBADF
	case generation != slot.Generation():
		return errnoStale
	}
	return 0
}

// keep stores fd in a slot. It closes fd.
func (t *table) keep(r record, fd int) unix.Errno {
	slot := r.slot()
	if fd == lostFD {
		return unix.EMFILE
	}
	defer unix.Close(fd)
	if slot < 0 || slot.Number() < int(Root) {
		return unix.EBADF
	}
	why := t.checkSlot(slot)
	switch {
	case r.flags&keepNew != 0 && why == unix.EBADF: // the number is free
	case r.flags&keepNew != 0:
		return errnoStale
	case slot == Root: // Root needs no Keep before the first Replace
	case why != 0:
		return why
	}
	if err := dupTo(fd, slot.Number()); err != nil {
		return errnoOf(err)
	}
	t.slots[slot.Number()] = slot.Generation()
	t.lastGeneration = max(t.lastGeneration, slot.Generation())
	return 0
}

// drop releases a slot, if it is in use.
func (t *table) drop(slot Slot) unix.Errno {
	why := t.checkSlot(slot)
	switch why {
	case 0:
		delete(t.slots, slot.Number())
		_ = unix.Close(slot.Number())
	case unix.EBADF:
		return 0
	}
	return why
}

// take returns a copy of the descriptor in a slot, because the slot may be
// dropped before the copy is sent.
func (t *table) take(slot Slot) (fd int, why unix.Errno) {
	if why := t.checkSlot(slot); why != 0 {
		return -1, why
	}
	fd, err := dup(slot.Number())
	if err != nil {
		return -1, errnoOf(err)
	}
	return fd, 0
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return unix.EINVAL
}

// dropAll closes all kept descriptors.
func (t *table) dropAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for number := range t.slots {
		_ = unix.Close(number)
	}
	clear(t.slots)
}

// track records that the daemon wants the exit of a process, and reports it if
// the process has already ended.
func (t *table) track(pid int) {
	known := t.tracked[pid]
	if known != nil && !known.exited {
		return
	}
	e := &exitState{pid: pid}
	if !isChild(pid) { // it has been reaped already
		if recent, ok := t.recent[pid]; ok {
			*e = recent
			t.orphans--
		} else if known != nil {
			e = known
		} else {
			e.exited, e.status = true, lostStatus
		}
		t.send.put(e.record(), -1)
	}
	t.tracked[pid] = e
	delete(t.recent, pid) // it must not be reported for a later process with this pid
}

// remember stores the exit of an untracked process for a while.
func (t *table) remember(e exitState) {
	t.orphans++
	t.lastRecent++
	e.number = t.lastRecent
	t.recent[e.pid] = e
	added := recentExit{e.pid, e.number}
	if len(t.order) < recentExits {
		t.order = append(t.order, added)
		return
	}
	if _, ok := t.recall(t.order[t.oldest]); ok {
		delete(t.recent, t.order[t.oldest].pid)
	}
	t.order[t.oldest] = added
	t.oldest = (t.oldest + 1) % recentExits
}

// recall returns an exit, unless its process has been tracked since or its pid
// has been reused.
func (t *table) recall(r recentExit) (exitState, bool) {
	e, ok := t.recent[r.pid]
	return e, ok && e.number == r.number
}

// isChild reports whether a process is a child of this one, alive or not yet
// reaped.
func isChild(pid int) bool {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}

// reap reaps every dead child.
func (t *table) reap() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, &usage)
		switch {
		case err == syscall.EINTR:
		case pid <= 0:
			return
		case pid == t.daemon:
			t.daemon = 0
			t.died <- status
		case t.cleaner != nil && pid == t.cleaner.pid:
			t.cleaner.pid = 0
			t.cleaner.died <- struct{}{}
		case pid == t.formerCleaner:
			t.formerCleaner = 0
		default:
			t.exited(exitState{pid: pid, exited: true, status: status, cpu: usage.Utime.Nano() + usage.Stime.Nano()})
		}
	}
}

func (t *table) isCleaner(pid int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cleaner != nil && pid == t.cleaner.pid
}

func (t *table) exited(e exitState) {
	known := t.tracked[e.pid]
	if known == nil || known.exited {
		t.remember(e)
		return
	}
	*known = e
	if t.send != nil {
		t.send.put(e.record(), -1)
	}
}
