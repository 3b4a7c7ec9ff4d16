package journal

import (
	"sync/atomic"
	"unsafe"

	"github.com/terminal-runtime/trl/internal/holder"
)

// Lane says where a running journal is found again when its process was killed.
type LiveSegment struct {
	Slot   holder.Slot
	Number uint64 // of the journal: a lane is used by one after the other
}

// lane is the memory of one running journal: everything that is to be known of
// it, and its first bytes. It is a file in memory that the keeper holds too,
// mapped, so what was stored there stays when this process is killed at any
// instruction. It belongs to its journal, under wmu, and between two of them to
// the pool.
//
// Where there are no such files it is memory of this process alone.
type liveSegment struct {
	file           // fd is -1 when it is memory of this process alone
	slot    int64  // where it is kept, or notKept
	mem     []byte // all of it
	header  *header
	head    []run // twice what the head's index holds: stop adds the tail's to it
	tail    []run // one more than the tail's index holds
	marks   [2][]mark
	ring    []byte
	data    []byte
	base    int64 // where in data the journal's first byte is
	filled  int64 // bytes of data that a journal which has left wrote to
	wipeAll bool  // it wrote elsewhere in the lane too
}

// file is a descriptor whose position says how far a pull came. The position is
// that of the open file description, so it is still there when this process is
// not. Under the journal's wmu.
type file struct {
	fd  int
	pos int64 // where the position is
}

// notKept is the slot of what only this process has.
const notKept = -1

// header is the start of a lane. There are two states, of which seq names the
// good one: the other is written, and one store makes it the good one.
type header struct {
	magic  uint64
	bounds bounds
	number uint64 // of the journal, 0 while there is none
	seq    uint64 // odd: states[1] is good
	states [2]segmentState
	why    [256]byte // what Lossy says
}

// bounds are what a journal was made with and can't change later: where its
// bytes are depends on them.
type bounds struct {
	data      int64 // bytes that are held in memory, runs included
	headQuota int64 // bytes of a spill file that are head
	ringQuota int64 // bytes of a spill file that are the tail's ring, at least 1
}

// good reports whether bounds of an earlier process are such as NewStore makes.
func (b bounds) valid() bool {
	return 0 <= b.data && b.data <= maxSegmentMemory && 0 <= b.headQuota && b.headQuota < never>>2 && 0 < b.ringQuota && b.ringQuota < never>>2
}

// laneState is everything that is to be known of a running journal but for its runs,
// marks and bytes, of which it says how many are good.
type segmentState struct {
	base, size                int64
	total                     [streams]int64
	headRuns                  int64
	tailFirst, tailRuns       int64
	tailMost                  int64
	origin                    int64 // when times begin, on the clock of the system
	first                     int64
	marks, half, step         int64
	closed, spilled, filed    int64 // flags
	spill, written            int64 // slot of the spill file, if filed
	ringBase, ringPos         int64
	stopBase                  int64
	ring                      int64 // size of the memory ring; 0: not stopped
	gapStart, gapEnd          int64
	dropped                   [streams]int64
	why                       int64 // bytes of header.why; 0: not lossy
	pullFrom, pullTo, pullPos int64 // the pull under way: its stream or noPull, file and position
}

const (
	noPull    = 0
	toSegment = 1
	toSpill   = 2
)

const (
	segmentMagic = 0x31656e616c6c7274 // "trllane1"

	pageSize         = 4 << 10
	headAt           = pageSize
	tailAt           = headAt + 2*maxRuns*runSize
	marksAt          = tailAt + maxRuns*runSize + pageSize
	ringAt           = marksAt + 2*maxMarks*markSize
	dataAt           = ringAt + tailMemory
	maxSegmentMemory = 1 << 30 // the most ExecMemory that a lane has room for

	// slack is by how much the first byte may be behind the start of the data: at
	// the position the lane had, so that a short command needs no seek.
	slack = 2 * pageSize

	// keptPages is what a spare lane may occupy: that of a command whose output
	// filled its data, which is the largest that is common. Pages of the index of
	// one that was worse are given back.
	maxSpareBytes = 128 << 10
)

// The header must fit its page.
var _ [pageSize - unsafe.Sizeof(header{})]byte

func (b bounds) segmentSize() int {
	return int(dataAt + slack + (b.data+pageSize-1)/pageSize*pageSize)
}

// newLane lays a lane out in mem.
func (s *Store) layoutSegment(fd int, mem []byte) *liveSegment {
	runs := func(at, n int) []run { return unsafe.Slice((*run)(unsafe.Pointer(&mem[at])), n) }
	marks := unsafe.Slice((*mark)(unsafe.Pointer(&mem[marksAt])), 2*maxMarks)
	return &liveSegment{
		file: file{fd: fd}, slot: notKept, mem: mem,
		header: (*header)(unsafe.Pointer(&mem[0])),
		head:   runs(headAt, 2*maxRuns), tail: runs(tailAt, maxRuns+1),
		marks: [2][]mark{marks[:maxMarks:maxMarks], marks[maxMarks:]},
		ring:  mem[ringAt:dataAt:dataAt],
		data:  mem[dataAt:],
	}
}

// makeLane returns a new lane, kept if that can be done.
func (s *Store) makeSegment() (*liveSegment, error) {
	l, err := s.mapSegment()
	if err != nil {
		s.reportInexact(err)
		return s.layoutSegment(-1, make([]byte, s.newBounds.segmentSize())), nil
	}
	slot, err := s.keep(l.fd)
	if err != nil {
		s.reportInexact(err)
	}
	l.slot = slot
	l.header.magic, l.header.bounds = segmentMagic, s.newBounds
	return l, nil
}

// keep gives a copy of fd to the keeper and waits until it is there.
func (s *Store) keep(fd int) (int64, error) {
	slot, err := s.cfg.Keeper.Keep(fd)
	if err != nil {
		return notKept, err
	}
	if err := s.cfg.Keeper.Sync(); err != nil {
		s.cfg.Keeper.Drop(slot)
		return notKept, err
	}
	return int64(slot), nil
}

func (s *Store) dropSlot(slot int64) {
	if slot != notKept {
		s.cfg.Keeper.Drop(holder.Slot(slot))
	}
}

// inexact tells the owner, once, why a journal would not survive this process.
func (s *Store) reportInexact(why error) {
	if s.cfg.Inexact != nil {
		s.inexactOnce.Do(func() { s.cfg.Inexact(why) })
	}
}

// putLane takes back a lane, of which so many bytes were used. What a command
// wrote is not left where every later one can open it.
func (s *Store) putSegment(l *liveSegment, used int64) {
	atomic.StoreUint64(&l.header.number, 0)
	err := l.wipe(used)
	// One from before a restart may be of another size.
	if l.slot == notKept || l.header.bounds != s.newBounds || err != nil {
		s.segments.Drop(l)
		return
	}
	s.segments.Put(l)
}

// wipe makes the bytes zero that a journal has left. Those of a short command are
// few, and mapped.
func (l *liveSegment) wipe(used int64) error {
	if l.fd < 0 {
		return nil // only this process has it
	}
	if l.wipeAll || used > maxSpareBytes {
		return l.clear()
	}
	clear(l.data[l.base : l.base+l.filled])
	return nil
}

func (s *Store) closeSegment(l *liveSegment) {
	s.dropSlot(l.slot)
	l.close()
}

// Close gives back what the store has in reserve. Its journals stay as they are.
func (s *Store) Close() { s.segments.Close() }

// enter gives the journal a lane, before its first byte. The caller holds wmu.
func (j *Journal) attachSegment() {
	if j.segment != nil {
		return
	}
	l, _ := j.store.segments.Take() // there always is one, if not one that is kept
	l.base = max(l.pos-dataAt, 0)
	if l.base > slack {
		l.base = 0
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.useSegment(l)
	j.save()
	atomic.StoreUint64(&l.header.number, j.store.lastSegment.Add(1))
}

// inhabit makes an empty journal's memory that of l. The caller holds both
// locks.
func (j *Journal) useSegment(l *liveSegment) {
	j.segment = l
	j.mem = l.data[l.base:l.base]
	j.head = index{ring: l.head}
}

// leave moves what is in the lane to memory of its exact size, for journals are
// retained long after their command, and returns the lane, if there is one, with
// how many bytes of it were used. The caller holds both locks.
func (j *Journal) detachSegment() (l *liveSegment, used int64) {
	if j.segment == nil {
		return nil, 0
	}
	l, used = j.segment, j.memoryUse()
	j.recordFilled()
	j.mem = exact(j.mem)
	j.head = indexOf(j.head.runs())
	if sp := j.spill; sp != nil {
		sp.tail = indexOf(sp.tail.runs())
		sp.ring = exact(sp.ring)
	}
	if j.times != nil {
		j.times.marks, j.times.waste = exact(j.times.marks), 0
	}
	j.segment = nil
	j.charge()
	return l, used
}

// sayFilled says in the lane, before it is left, what there is to be wiped. The
// caller holds a lock.
func (j *Journal) recordFilled() {
	j.segment.filled, j.segment.wipeAll = min(j.size, j.data), j.spill != nil
}

// exact returns a copy of s without spare room.
func exact[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	c := make([]T, len(s))
	copy(c, s)
	return c
}

// Lane says where the journal is found after a restart, from now on until it is
// closed. It says false when it is nowhere: it was closed, or nothing could be
// kept.
func (j *Journal) LiveSegment() (LiveSegment, bool) {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	if !j.closed {
		j.attachSegment()
	}
	if j.segment == nil || j.segment.slot == notKept {
		return LiveSegment{}, false
	}
	return LiveSegment{Slot: holder.Slot(j.segment.slot), Number: j.segment.header.number}, true
}

// Slots are what is kept of the journal.
func (j *Journal) Slots() []holder.Slot {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	var slots []holder.Slot
	if j.segment != nil && j.segment.slot != notKept {
		slots = append(slots, holder.Slot(j.segment.slot))
	}
	if j.spill != nil && j.spill.slot != notKept {
		slots = append(slots, holder.Slot(j.spill.slot))
	}
	return slots
}

// save makes what is known of the journal that which a restart finds, in one
// step. The caller holds wmu, so that nothing changes meanwhile.
func (j *Journal) save() { j.saveWith(noPull, 0, 0) }

// saveWith is save with a pull under way: bytes of a stream that go to a place
// in a file.
func (j *Journal) saveWith(from, to, pos int64) {
	l := j.segment
	if l == nil || l.slot == notKept {
		return
	}
	h := l.header
	next := h.seq + 1
	st := &h.states[next&1]
	*st = segmentState{
		base: l.base, size: j.size, total: j.total, headRuns: int64(j.head.n),
		origin: int64(j.origin) + j.store.clock, first: int64(j.first),
		closed:   flag(j.closed),
		pullFrom: from, pullTo: to, pullPos: pos,
	}
	if t := j.times; t != nil {
		st.marks, st.half, st.step = int64(len(t.marks)), int64(t.half), t.step
	}
	if sp := j.spill; sp != nil {
		st.tailFirst, st.tailRuns, st.tailMost = int64(sp.tail.first), int64(sp.tail.n), int64(sp.tail.most)
		st.spilled, st.filed = 1, flag(sp.file != nil)
		st.spill, st.written = sp.slot, sp.written
		st.ringBase, st.ringPos, st.stopBase, st.ring = sp.ringBase, sp.ringPos, sp.stopBase, int64(len(sp.ring))
		st.gapStart, st.gapEnd, st.dropped = sp.gap.start, sp.gap.end, sp.dropped
	}
	if j.lossy != nil {
		// It is set once, so what is there already stays the same.
		st.why = int64(copy(h.why[:], j.lossy.Error()))
	}
	atomic.StoreUint64(&h.seq, next)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
