package journal

import (
	"context"
	"sync"
	"time"
)

// Stream is where a byte came from.
type Stream uint8

// The streams of a command. A command has either a terminal or the other two.
const (
	Stdout Stream = iota
	Stderr
	TTY
)

const streams = 3

// Journal is the output of one command. Its pumps append, one for each stream;
// any number of readers read and wait. All methods are safe for concurrent use.
//
// Fields below mu, except wake, change only while both locks are held: an
// appender, which holds wmu, may read them without mu.
type Journal struct {
	store  *Store
	bounds // a restored journal keeps the bounds it was created with

	wmu        sync.Mutex
	grownPipes uint8 // bit per stream: its pipe was asked to grow. Guarded by wmu.
	noSplice   bool  // the file system refused splice. Guarded by wmu.
	stageEmpty bool  // the staging pipe of the terminal is empty. Guarded by wmu.

	// stopped is when the spill file last had no room, as a duration since
	// store.began. tryResume waits some time before it checks again. Guarded by
	// wmu.
	stopped time.Duration

	mu       sync.Mutex
	closed   bool
	released bool
	first    uint32        // when the byte at 0 arrived, in milliseconds after origin
	wake     chan struct{} // closed at the next append; nil if there is no waiter
	size     int64
	total    [streams]int64
	charged  int64         // this journal's part of store.memory
	segment  *liveSegment  // backs the slices below while the journal runs; nil before the first byte and after the end
	mem      []byte        // bytes from 0 on, unless they are in the spill file
	head     index         // runs from 0 on, up to the gap or the runs of the tail
	spill    *spill        // nil while everything is in mem
	lossy    error         // see Lossy
	origin   time.Duration // zero of the times, since store.began
	times    *times        // when later bytes arrived; nil if all arrived with the first
}

// Append appends p to the journal as bytes of st and keeps no reference to it.
// On a closed or released journal it does nothing.
func (j *Journal) Append(st Stream, p []byte) {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	j.append(st, p)
}

// Size returns the offset after the last byte.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size
}

// Total returns how many bytes of st were ever appended.
func (j *Journal) Total(st Stream) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.total[st]
}

// Dropped returns how many bytes of a stream were dropped because of a quota.
func (j *Journal) Dropped(st Stream) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.spill == nil {
		return 0
	}
	return j.spill.dropped[st]
}

// FirstHeld returns the smallest offset from offset on whose byte is held, and
// Size if there is none.
func (j *Journal) FirstHeld(offset int64) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.released {
		return j.size
	}
	offset = max(offset, 0)
	if g := j.gap(); g.start <= offset && offset < g.end {
		offset = g.end
	}
	return min(offset, j.size)
}

// Lossy returns why bytes were dropped, or may be from now on, for a reason
// other than the journal's own quota: a failed write, a spill file that could
// not be created, ErrTotalQuota. It returns nil if there is no such reason.
func (j *Journal) Lossy() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lossy
}

// Wait returns nil as soon as Size is past offset or the journal is closed,
// ErrReleased once it is released, and otherwise the context's error. A Read
// that returns nothing after a Wait that returned nil has reached the end.
func (j *Journal) Wait(ctx context.Context, offset int64) error {
	for {
		j.mu.Lock()
		switch {
		case j.released:
			j.mu.Unlock()
			return ErrReleased
		case j.size > offset || j.closed:
			j.mu.Unlock()
			return nil
		}
		if j.wake == nil {
			j.wake = make(chan struct{})
		}
		wake := j.wake
		j.mu.Unlock()

		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// broadcast wakes every waiter. The caller must hold mu.
func (j *Journal) broadcast() {
	if j.wake != nil {
		close(j.wake)
		j.wake = nil
	}
}

// Seal marks the journal as complete and wakes every waiter. An append that has
// begun is finished first; one that begins later is ignored, so the owner must
// seal only after the pumps are done. Until Close, a restart still finds the
// journal where LiveSegment said: in between, the owner can store its Value.
func (j *Journal) Seal() {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seal()
}

// seal is Seal. The caller must hold both locks.
func (j *Journal) seal() {
	if j.closed {
		return
	}
	j.closed = true
	j.save()
	j.broadcast()
}

// Close seals the journal and releases the live segment: a small journal is now
// only in the memory of this process.
func (j *Journal) Close() {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	j.mu.Lock()
	j.seal()
	seg, used := j.detachSegment()
	j.mu.Unlock()
	if seg != nil {
		j.store.putSegment(seg, used)
	}
}

// Closed reports whether no more bytes will come.
func (j *Journal) Closed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closed
}

// Release closes the journal and frees its memory and its file. A read that has
// begun succeeds or returns ErrReleased; an append that has begun is finished
// first. Size, Total and Lossy keep their values.
func (j *Journal) Release() {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	j.mu.Lock()
	if j.released {
		j.mu.Unlock()
		return
	}
	j.closed, j.released = true, true
	sp, seg, used := j.spill, j.segment, j.memoryUse()
	if seg != nil {
		j.recordFilled()
	}
	j.mem, j.head, j.spill, j.times, j.segment = nil, index{}, nil, nil, nil
	j.charge()
	j.broadcast()
	j.mu.Unlock()

	if seg != nil {
		j.store.putSegment(seg, used)
	}
	if sp != nil {
		j.store.spilled.Add(-sp.written)
		j.store.dropSlot(sp.slot)
		sp.close()
	}
	j.store.journals.Add(-1)
}

// charge updates the store's memory counter with this journal's use. The caller
// must hold mu.
func (j *Journal) charge() {
	if n := j.memoryUse(); n != j.charged {
		j.store.memory.Add(n - j.charged)
		j.charged = n
	}
}

// memoryUse returns how many bytes of memory the journal takes. The caller must
// hold one of the locks.
func (j *Journal) memoryUse() int64 {
	n := int64(len(j.mem)) + runSize*int64(j.head.n) + j.times.memory()
	if sp := j.spill; sp != nil {
		n += runSize*int64(sp.tail.most) + int64(len(sp.ring))
	}
	return n
}
