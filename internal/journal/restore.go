package journal

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
)

var (
	// errNoSegment means that a slot has no live segment of a journal with that
	// number.
	errNoSegment = errors.New("journal: no such live segment")

	// errDamaged means that the stored state is inconsistent.
	errDamaged = errors.New("journal: stored state is damaged")
)

// Restore brings back a journal that was running when its process was killed,
// from where LiveSegment said it was. A pull in progress counts for as many
// bytes as it had moved. The journal continues with the same offsets; one that
// was sealed is closed.
//
// If there is an error the slots are not changed.
func (s *Store) Restore(at LiveSegment) (*Journal, error) {
	fd, err := s.cfg.Keeper.Take(at.Slot)
	if err != nil {
		return nil, fmt.Errorf("journal: take live segment: %w", err)
	}
	seg, err := s.remapSegment(fd)
	if err != nil {
		return nil, err
	}
	seg.slot = int64(at.Slot)
	j, err := s.restore(seg, at.Number)
	if err != nil {
		seg.close()
		return nil, err
	}
	s.segments.Adopt()
	return j, nil
}

func (s *Store) restore(seg *liveSegment, number uint64) (*Journal, error) {
	h := seg.header
	if h.magic != segmentMagic || number == 0 || h.number != number {
		return nil, errNoSegment
	}
	st := h.states[h.seq&1]
	j := &Journal{store: s, bounds: h.bounds}
	j.wmu.Lock()
	defer j.wmu.Unlock()
	j.mu.Lock()
	err := j.load(seg, &st)
	if err == nil {
		err = j.check()
	}
	j.mu.Unlock()
	if err == nil {
		err = j.readPositions()
	}
	var moved int
	if err == nil {
		moved, err = j.pulled(&st)
	}
	if err != nil {
		if j.spill != nil {
			j.spill.close()
		}
		return nil, err
	}
	j.count()
	if moved > 0 {
		j.arrived(Stream(st.pullFrom-1), st.pullTo, moved)
	} else {
		j.save()
	}
	return j, nil
}

// load sets an empty journal to the state of a live segment.
func (j *Journal) load(seg *liveSegment, st *segmentState) error {
	within := func(n int64, room int) bool { return 0 <= n && n <= int64(room) }
	if !within(st.base, slack) || !within(st.headRuns, len(seg.head)) || !within(st.tailRuns, maxRuns) || !within(st.tailFirst, maxRuns) ||
		!within(st.tailMost, len(seg.tail)) || !within(st.marks, maxMarks) || !within(st.half, 1) || !within(st.first, math.MaxUint32) ||
		!within(st.ring, len(seg.ring)) || !within(st.why, len(seg.header.why)) {
		return errDamaged
	}
	seg.base = st.base
	j.useSegment(seg)
	j.size, j.total, j.closed = st.size, st.total, st.closed != 0
	j.origin, j.first = time.Duration(st.origin-j.store.clock), uint32(st.first)
	j.head.n = int(st.headRuns)
	if st.marks > 0 || st.step > 0 {
		j.times = &times{marks: seg.marks[st.half][:st.marks], step: st.step, half: int(st.half)}
	}
	if st.why > 0 {
		j.lossy = lossyFor(string(seg.header.why[:st.why]))
	}
	inMemory := st.size
	if st.spilled != 0 {
		sp := &spill{
			slot: st.spill, written: st.written, ringBase: st.ringBase, ringPos: st.ringPos, stopBase: st.stopBase,
			tail: index{ring: seg.tail, first: int(st.tailFirst), n: int(st.tailRuns), most: int(st.tailMost)},
			gap:  gap{st.gapStart, st.gapEnd}, dropped: st.dropped,
		}
		if st.ring > 0 {
			sp.ring = seg.ring[:st.ring:st.ring]
		}
		j.spill = sp
		inMemory = st.stopBase
	}
	if st.filed != 0 {
		return j.takeSpill()
	}
	if !within(inMemory, int(j.data)) {
		return errDamaged
	}
	j.mem = j.mem[:inMemory]
	return nil
}

// lossyFor returns the error with the given text.
func lossyFor(text string) error {
	if text == ErrTotalQuota.Error() {
		return ErrTotalQuota
	}
	return errors.New(text)
}

// takeSpill takes the spill file from its slot.
func (j *Journal) takeSpill() error {
	sp := j.spill
	if sp == nil || sp.slot < 0 {
		return errDamaged
	}
	fd, err := j.store.cfg.Keeper.Take(holder.Slot(sp.slot))
	if err != nil {
		return fmt.Errorf("journal: take spill file: %w", err)
	}
	sp.file = os.NewFile(uintptr(fd), "journal")
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errDamaged
	}
	return nil
}

// readPositions reads the current positions of the files.
func (j *Journal) readPositions() error {
	var err error
	if j.segment.pos, err = unix.Seek(j.segment.fd, 0, io.SeekCurrent); err != nil {
		return fmt.Errorf("journal: position in live segment: %w", err)
	}
	if sp := j.spill; sp != nil && sp.file != nil {
		if sp.pos, err = sp.file.Seek(0, io.SeekCurrent); err != nil {
			return fmt.Errorf("journal: position in spill file: %w", err)
		}
	}
	return nil
}

// pulled returns how many bytes the pull in progress has moved.
func (j *Journal) pulled(st *segmentState) (int, error) {
	if st.pullFrom == noPull {
		return 0, nil
	}
	sp := j.spill
	at := j.segment.pos
	var pos, room int64
	switch {
	case st.pullTo == toSegment && sp == nil:
		pos, room = dataAt+j.segment.base+j.size, j.data-j.size
	case st.pullTo == toSegment && sp.ring != nil:
		ring := int64(len(sp.ring))
		in := (j.size - sp.stopBase) % ring
		pos, room = ringAt+in, min(ring-in, ring-j.tailHeld())
	case st.pullTo == toSpill && sp != nil && sp.file != nil && sp.ring == nil:
		at = sp.pos
		v := j.view()
		pos, room = v.place(j.size)
		if sp.ringBase == never {
			room = j.headQuota - j.size
		} else {
			room = min(room, v.ringSize()-j.tailHeld())
		}
	default:
		return 0, errDamaged
	}
	n := at - st.pullPos
	if st.pullFrom < 1 || st.pullFrom > streams || st.pullPos != pos || n < 0 || n > room || j.closed {
		return 0, errDamaged
	}
	if x := j.next(); !x.ends(Stream(st.pullFrom-1)) && n > 0 && x.n >= maxRuns {
		return 0, errDamaged
	}
	return int(n), nil
}

// tailHeld returns how many bytes are in the current ring.
func (j *Journal) tailHeld() int64 {
	sp := j.spill
	return j.size - min(max(sp.gap.end, sp.tailBase()), j.size)
}

// check returns errDamaged if the state of a journal is inconsistent, so that
// no stored value, however wrong, leads out of bounds.
func (j *Journal) check() error {
	ok := j.size >= 0 && j.size < never>>2
	sum := int64(0)
	for _, n := range j.total {
		ok = ok && 0 <= n && n <= j.size
		sum += n
	}
	ok = ok && sum == j.size && j.checkSpill() && j.head.check(0, j.headEnd())
	if t := j.times; ok && t != nil {
		last := mark{at: j.first}
		for i, m := range t.marks {
			ok = ok && m.at >= last.at && m.offset < j.size && (m.offset > last.offset || i == 0 && m.offset >= 0)
			last = m
		}
		ok = ok && t.step >= markStep && t.step <= math.MaxInt64/4 && len(t.marks) <= maxMarks
	}
	if !ok {
		return errDamaged
	}
	return nil
}

// checkSpill is check for everything that is not in memory from 0 on.
func (j *Journal) checkSpill() bool {
	sp := j.spill
	if sp == nil {
		return int64(len(j.mem)) == j.size && j.lossy == nil
	}
	g := sp.gap
	stopped := sp.ring != nil
	v := j.view()
	ok := (!stopped || j.lossy != nil) &&
		0 <= sp.written && sp.written <= j.headQuota+j.ringQuota &&
		j.headQuota <= sp.ringPos && v.ringSize() > 0 &&
		(sp.ringBase == never || 0 <= sp.ringBase && sp.ringBase <= j.size) &&
		0 <= g.start && g.start <= g.end && g.end <= j.size
	switch {
	case !ok:
		return false
	case stopped:
		ok = 0 <= sp.stopBase && sp.stopBase <= j.size && j.tailHeld() <= int64(len(sp.ring))
		if sp.file == nil {
			ok = ok && int64(len(j.mem)) == sp.stopBase && sp.ringBase == never
		}
	default:
		ok = sp.file != nil && len(j.mem) == 0 && sp.stopBase == 0 && j.tailHeld() <= v.ringSize() &&
			(sp.ringBase == never || j.headEnd() <= sp.ringPos)
	}
	if sp.file != nil && sp.ringBase == never {
		end := j.size
		if stopped {
			end = sp.stopBase
		}
		ok = ok && end <= j.headQuota
	}
	sum := int64(0)
	for st, n := range sp.dropped {
		ok = ok && 0 <= n && n <= j.total[st]
		sum += n
	}
	if !ok || sum != g.end-g.start || !g.none() && (sp.tailBase() == never || g.start > sp.tailBase() || g.end < min(sp.tailBase(), j.size)) {
		return false
	}
	from := j.size - j.tailHeld()
	return sp.tail.check(from, j.size)
}

// check reports whether runs are in order and cover the range from from up to
// end.
func (x *index) check(from, end int64) bool {
	if x.n == 0 {
		return from >= end
	}
	last := int64(-1)
	for i := range x.n {
		r := x.at(i)
		if r.start() <= last || r.start() >= end || r.stream() >= streams {
			return false
		}
		last = r.start()
	}
	return x.at(0).start() <= from
}

// count adds a restored journal to the counters of the store.
func (j *Journal) count() {
	s := j.store
	s.journals.Add(1)
	s.captured.Add(j.size)
	if j.lossy != nil {
		s.lossy.Add(1)
	}
	if j.spill != nil {
		s.spilled.Add(j.spill.written)
	}
	j.charge()
}
