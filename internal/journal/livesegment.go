package journal

import (
	"sync/atomic"
	"unsafe"

	"github.com/terminal-runtime/trl/internal/holder"
)

// LiveSegment says where a running journal can be restored from after its
// process was killed.
type LiveSegment struct {
	Slot   holder.Slot
	Number uint64 // of the journal: segments are reused by later journals
}

// liveSegment is the memory of one running journal: its whole state, and its
// first bytes. It is a mapped memfd that the keeper holds too, so everything
// stored there survives if this process is killed at any instruction. It
// belongs to its journal, guarded by wmu, and to the free list while no journal
// uses it.
//
// Where there is no memfd, it is ordinary memory of this process.
type liveSegment struct {
	file           // fd is -1 if it is ordinary memory
	slot    int64  // where it is kept, or notKept
	mem     []byte // the whole mapping
	header  *header
	head    []run // twice the capacity of the head's index: stop adds the tail's runs to it
	tail    []run // one more than the capacity of the tail's index
	marks   [2][]mark
	ring    []byte
	data    []byte
	base    int64 // where in data the journal's first byte is
	filled  int64 // bytes of data that the last journal wrote
	wipeAll bool  // the last journal also wrote outside of data
}

// file is a descriptor whose position says how far a pull came. The position
// belongs to the open file description, so it survives this process. Guarded by
// the journal's wmu.
type file struct {
	fd  int
	pos int64 // current position
}

// notKept is the slot of a file that only this process has.
const notKept = -1

// header is the start of a live segment. It has two states, of which seq
// selects the valid one: save writes the other, and one atomic store makes that
// valid.
type header struct {
	magic  uint64
	bounds bounds
	number uint64 // of the journal, 0 if there is none
	seq    uint64 // odd: states[1] is valid
	states [2]segmentState
	why    [256]byte // text of Lossy
}

// bounds are the limits that a journal was created with. They can't change
// later, because the location of its bytes depends on them.
type bounds struct {
	data      int64 // bytes that are held in memory, including runs
	headQuota int64 // bytes of a spill file for the head
	ringQuota int64 // bytes of a spill file for the tail's ring, at least 1
}

// valid reports whether bounds from an earlier process are possible results of
// NewStore.
func (b bounds) valid() bool {
	return 0 <= b.data && b.data <= maxSegmentMemory && 0 <= b.headQuota && b.headQuota < never>>2 && 0 < b.ringQuota && b.ringQuota < never>>2
}

// segmentState is the whole state of a running journal except its runs, marks
// and bytes, of which it says how many are valid.
type segmentState struct {
	base, size                int64
	total                     [streams]int64
	headRuns                  int64
	tailFirst, tailRuns       int64
	tailMost                  int64
	origin                    int64 // zero of the times, on the system's monotonic clock
	first                     int64
	marks, half, step         int64
	closed, spilled, filed    int64 // flags
	spill, written            int64 // slot of the spill file, if filed
	ringBase, ringPos         int64
	stopBase                  int64
	ring                      int64 // size of the memory ring; 0 if not stopped
	gapStart, gapEnd          int64
	dropped                   [streams]int64
	why                       int64 // bytes of header.why; 0 if not lossy
	pullFrom, pullTo, pullPos int64 // the pull in progress: its stream or noPull, file and position
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
	maxSegmentMemory = 1 << 30 // the largest ExecMemory that a live segment has room for

	// slack is how far the first byte may be from the start of the data: it may
	// start at the segment's current position, so that a short command needs no
	// seek.
	slack = 2 * pageSize

	// maxSpareBytes is how much memory a spare segment may occupy: as much as a
	// command whose output filled its data, the largest common case. The index
	// pages of a larger one are returned to the system.
	maxSpareBytes = 128 << 10
)

// The header must fit in its page.
var _ [pageSize - unsafe.Sizeof(header{})]byte

func (b bounds) segmentSize() int {
	return int(dataAt + slack + (b.data+pageSize-1)/pageSize*pageSize)
}

// layoutSegment returns a live segment backed by mem.
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

// makeSegment returns a new live segment, which the keeper holds if possible.
func (s *Store) makeSegment() (*liveSegment, error) {
	seg, err := s.mapSegment()
	if err != nil {
		s.reportInexact(err)
		return s.layoutSegment(-1, make([]byte, s.newBounds.segmentSize())), nil
	}
	slot, err := s.keep(seg.fd)
	if err != nil {
		s.reportInexact(err)
	}
	seg.slot = slot
	seg.header.magic, seg.header.bounds = segmentMagic, s.newBounds
	return seg, nil
}

// keep gives a copy of fd to the keeper and waits until the keeper has it.
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

// reportInexact calls Config.Inexact, once, with the reason why a journal would
// not survive this process.
func (s *Store) reportInexact(why error) {
	if s.cfg.Inexact != nil {
		s.inexactOnce.Do(func() { s.cfg.Inexact(why) })
	}
}

// putSegment takes back a live segment of which used bytes were in use. It
// wipes the output of the command, because every later command can open the
// segment.
func (s *Store) putSegment(seg *liveSegment, used int64) {
	atomic.StoreUint64(&seg.header.number, 0)
	err := seg.wipe(used)
	// A segment from before a restart may have another size.
	if seg.slot == notKept || seg.header.bounds != s.newBounds || err != nil {
		s.segments.Drop(seg)
		return
	}
	s.segments.Put(seg)
}

// wipe zeroes the bytes of the last journal. A short command has few, and they
// are mapped.
func (seg *liveSegment) wipe(used int64) error {
	if seg.fd < 0 {
		return nil // only this process has it
	}
	if seg.wipeAll || used > maxSpareBytes {
		return seg.clear()
	}
	clear(seg.data[seg.base : seg.base+seg.filled])
	return nil
}

func (s *Store) closeSegment(seg *liveSegment) {
	s.dropSlot(seg.slot)
	seg.close()
}

// Close frees the spare segments of the store. It does not affect journals.
func (s *Store) Close() { s.segments.Close() }

// attachSegment gives the journal a live segment before its first byte. The
// caller must hold wmu.
func (j *Journal) attachSegment() {
	if j.segment != nil {
		return
	}
	seg, _ := j.store.segments.Take() // never fails: makeSegment falls back to ordinary memory
	seg.base = max(seg.pos-dataAt, 0)
	if seg.base > slack {
		seg.base = 0
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.useSegment(seg)
	j.save()
	atomic.StoreUint64(&seg.header.number, j.store.lastSegment.Add(1))
}

// useSegment makes seg the memory of an empty journal. The caller must hold both
// locks.
func (j *Journal) useSegment(seg *liveSegment) {
	j.segment = seg
	j.mem = seg.data[seg.base:seg.base]
	j.head = index{ring: seg.head}
}

// detachSegment copies the content of the live segment to memory of the exact
// size, because journals are retained long after their command, and returns the
// segment, if there is one, with how many bytes of it were used. The caller
// must hold both locks.
func (j *Journal) detachSegment() (seg *liveSegment, used int64) {
	if j.segment == nil {
		return nil, 0
	}
	seg, used = j.segment, j.memoryUse()
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
	return seg, used
}

// recordFilled stores in the segment what must be wiped, before it is detached.
// The caller must hold one of the locks.
func (j *Journal) recordFilled() {
	j.segment.filled, j.segment.wipeAll = min(j.size, j.data), j.spill != nil
}

// exact returns a copy of s without spare capacity.
func exact[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	c := make([]T, len(s))
	copy(c, s)
	return c
}

// LiveSegment returns where the journal is found after a restart, from now on
// until it is closed. It returns false if a restart would not find it: it is
// closed, or the keeper could not keep it.
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

// Slots returns the slots that the keeper holds for the journal.
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

// save atomically stores the state of the journal for a restart. The caller
// must hold wmu, so that nothing changes meanwhile.
func (j *Journal) save() { j.saveWith(noPull, 0, 0) }

// saveWith is save with a pull in progress: bytes of a stream that go to a
// position in a file.
func (j *Journal) saveWith(from, to, pos int64) {
	seg := j.segment
	if seg == nil || seg.slot == notKept {
		return
	}
	h := seg.header
	next := h.seq + 1
	st := &h.states[next&1]
	*st = segmentState{
		base: seg.base, size: j.size, total: j.total, headRuns: int64(j.head.n),
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
		// It is set only once, so existing bytes never change.
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
