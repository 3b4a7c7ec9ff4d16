package journal

import (
	"fmt"
	"math"
	"os"
	"time"
)

// spill is the state of a journal that has outgrown memory: the file, the tail,
// the gap. It follows the locking rule of Journal's fields, except written,
// which is guarded by wmu.
//
// Bytes from 0 up to ringBase are in the file at their own offset; from there
// on they are in the file's ring. After stop, bytes from stopBase on are in the
// memory ring instead, and the file does not change until resume.
type spill struct {
	file     *os.File // nil if none could be created: the head stays in Journal.mem
	slot     int64    // where the file is kept
	pos      int64    // current position of the file. Guarded by wmu.
	written  int64    // bytes in the file, counted in store.spilled
	ringBase int64    // offset of the first byte of the file's ring, never while the head is open
	ringPos  int64    // where in the file its ring begins; it ends at the quota
	ring     []byte   // the memory ring; nil unless stopped
	stopBase int64    // offset of the first byte of the memory ring
	tail     index    // runs of the bytes in a ring, from the end of the gap on
	gap      gap
	dropped  [streams]int64
}

// never is an offset that is never reached.
const never = math.MaxInt64

// gap is the range of bytes from start up to end that were dropped; there is
// none if end is 0.
type gap struct{ start, end int64 }

func (g gap) none() bool { return g.end == 0 }

// gap returns the journal's gap. The caller must hold mu.
func (j *Journal) gap() gap {
	if j.spill == nil {
		return gap{}
	}
	return j.spill.gap
}

// tailBase returns the offset of the first byte of the current ring.
func (sp *spill) tailBase() int64 {
	if sp.ring != nil {
		return sp.stopBase
	}
	return sp.ringBase
}

// toFile moves the content from memory to a new spill file. If that fails, the
// journal is stopped with its content as the head. The caller must hold wmu.
func (j *Journal) toFile() {
	sp := &spill{ringBase: never, ringPos: j.headQuota, slot: notKept, tail: index{ring: j.segment.tail}}
	f, slot, err := j.makeFile()
	j.mu.Lock()
	j.spill = sp
	if err == nil {
		j.setFile(f, slot)
		j.charge()
		reached(beforeSwitch)
		j.save()
		reached(afterSwitch)
	}
	j.mu.Unlock()
	if err != nil {
		j.stop(err)
	}
}

// makeFile creates a spill file with the bytes in memory and gives it to the
// keeper. The caller must hold wmu.
func (j *Journal) makeFile() (f *os.File, slot int64, err error) {
	s := j.store
	if s.spilled.Load()+int64(len(j.mem)) > s.cfg.TotalQuota {
		return nil, notKept, ErrTotalQuota
	}
	f, err = openUnlinked(s.cfg.Dir)
	if err != nil {
		return nil, notKept, fmt.Errorf("journal: make spill file: %w", err)
	}
	// Write moves the position to where the next pull begins.
	if _, err := f.Write(j.mem); err != nil {
		f.Close()
		return nil, notKept, fmt.Errorf("journal: write spill file: %w", err)
	}
	if slot, err = s.keep(int(f.Fd())); err != nil {
		s.reportInexact(fmt.Errorf("journal: keep spill file: %w", err))
	}
	return f, slot, nil
}

// setFile makes f, which has all bytes of mem, the spill file. The caller must
// hold both locks.
func (j *Journal) setFile(f *os.File, slot int64) {
	n := int64(len(j.mem))
	j.spill.file, j.spill.slot, j.spill.pos = f, slot, n
	j.setWritten(n)
	j.mem = nil
}

// setWritten sets how many bytes the file holds.
func (j *Journal) setWritten(n int64) {
	j.store.spilled.Add(n - j.spill.written)
	j.spill.written = n
}

// stop ends writing to the file until there is room again: its content stays,
// and new bytes go to a small ring in memory. The caller must hold wmu.
func (j *Journal) stop(reason error) {
	s, sp := j.store, j.spill
	n := min(s.tailMemory, j.ringQuota)
	if s.memory.Load()+n > s.cfg.TotalMemory {
		n = min(n, smallJournal)
	}
	ring := j.segment.ring[:n:n]
	base := j.size
	all := sp.gap.none() && j.head.n+sp.tail.n <= len(j.segment.head)
	if !all {
		// Keeping the file's ring after the gap would make the next drop a
		// second gap. Only its newest bytes are kept, in memory.
		base -= min(n, j.tailHeld())
		if v := j.view(); v.read(ring[:j.size-base], base) != nil {
			base = j.size
		}
	}

	j.mu.Lock()
	if all {
		// Everything is held from 0 on; the file's ring, if begun, becomes part
		// of the head.
		j.tailToHead()
	} else {
		j.drop(base)
	}
	sp.ring, sp.stopBase = ring, base
	if j.lossy == nil {
		j.lossy = reason
		s.lossy.Add(1)
	}
	j.stopped = time.Since(s.began)
	j.charge()
	reached(beforeStop)
	j.save()
	j.mu.Unlock()
	if s.cfg.Stopped != nil {
		s.cfg.Stopped(reason)
	}
}

const (
	// resumeAfter is how long to wait before trying again after the file took
	// no more: the check is cheap, but a full disk seldom has room at once.
	resumeAfter = 250 * time.Millisecond

	// resumeRoom is how much space must be free then. With less, the file would
	// soon be stopped again, and hold less than the memory ring would.
	resumeRoom = 16 * tailMemory
)

// tryResume resumes writing to the file if there is room again. The caller must
// hold wmu, and the journal must be stopped.
func (j *Journal) tryResume() {
	s := j.store
	now := time.Since(s.began)
	if now-j.stopped < s.resumeAfter {
		return
	}
	j.stopped = now
	if s.cfg.TotalQuota-s.spilled.Load() < s.resumeRoom || freeSpace(s.cfg.Dir) < s.resumeRoom {
		return
	}
	j.resume()
}

// resume moves the memory ring to the file and continues there, with one gap as
// before. The file's new ring begins where nothing is held, so a reader or a
// restart that only knows the stopped state still finds all bytes. On error the
// journal stays stopped. The caller must hold wmu.
func (j *Journal) resume() {
	s, sp := j.store, j.spill
	f, slot := sp.file, sp.slot
	if f == nil {
		var err error
		if f, slot, err = j.makeFile(); err != nil {
			return
		}
	}
	from, head := j.size-j.tailHeld(), j.headEnd()
	next := view{store: s, bounds: j.bounds, file: f, ringBase: from, ringPos: max(j.headQuota, head)}
	whole := sp.gap.none() && sp.ringBase == never && j.size <= j.headQuota && j.head.n+sp.tail.n <= s.maxRuns
	if whole {
		next.ringBase, next.ringPos = never, j.headQuota // nothing was lost: the head continues
	}
	// The head must be at its own offsets, including what was the file's ring
	// before.
	inPlace := head <= sp.ringBase || sp.ringBase == sp.ringPos
	if !inPlace || next.ringSize() < int64(len(sp.ring)) || j.moveRing(next, from) != nil {
		if sp.file == nil {
			s.dropSlot(slot)
			f.Close()
		}
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if sp.file == nil {
		j.setFile(f, slot)
	}
	if whole {
		j.tailToHead()
	}
	sp.ringBase, sp.ringPos = next.ringBase, next.ringPos
	sp.ring, sp.stopBase = nil, 0
	j.setWritten(head + j.size - from)
	j.charge()
	reached(beforeResume)
	j.save()
}

// tailToHead moves the runs of the tail to the head. The caller must hold both
// locks.
func (j *Journal) tailToHead() {
	sp := j.spill
	for i := range sp.tail.n {
		j.head.push(sp.tail.at(i))
	}
	sp.tail = index{ring: j.segment.tail, most: sp.tail.most}
}

// moveRing writes the bytes of the memory ring, from an offset on, to their
// place in the file.
func (j *Journal) moveRing(to view, from int64) error {
	sp := j.spill
	for from < j.size {
		pos, room := to.place(from)
		in := (from - sp.stopBase) % int64(len(sp.ring))
		n := min(room, j.size-from, int64(len(sp.ring))-in)
		if _, err := to.file.WriteAt(sp.ring[in:in+n], pos); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// drop drops the tail's bytes before offset to, which grows the gap. The caller
// must hold both locks.
func (j *Journal) drop(to int64) {
	sp := j.spill
	from := max(sp.gap.end, sp.tailBase())
	if to <= from {
		return
	}
	for x := &sp.tail; x.n > 0; x.pop() {
		r, end := x.at(0), j.size
		if x.n > 1 {
			end = x.at(1).start()
		}
		sp.dropped[r.stream()] += min(end, to) - max(r.start(), from)
		if end > to {
			break
		}
	}
	if sp.gap.none() {
		sp.gap.start = from
	}
	sp.gap.end = to
}

// takeMemory copies those bytes from offset on that are in memory to their
// place in dst, and returns the part of dst before them that must still be read
// from the file. The caller must hold mu: the ring is overwritten in place, and
// the live segment is reused by another journal.
func (j *Journal) takeMemory(dst []byte, offset int64) []byte {
	sp := j.spill
	if sp != nil && sp.ring != nil && offset+int64(len(dst)) > sp.stopBase {
		before := max(sp.stopBase-offset, 0)
		in := (offset + before - sp.stopBase) % int64(len(sp.ring))
		n := copy(dst[before:], sp.ring[in:])
		copy(dst[before:][n:], sp.ring)
		dst = dst[:before]
	}
	if sp != nil && sp.file != nil {
		return dst
	}
	if len(dst) > 0 {
		copy(dst, j.mem[offset:])
	}
	return nil
}

func (sp *spill) close() {
	if sp.file != nil {
		sp.file.Close()
	}
}
