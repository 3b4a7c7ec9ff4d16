package journal

import (
	"fmt"
	"math"
	"os"
)

// spill is what a journal has beyond its slice once it has outgrown it: the
// file, the tail, the gap. It follows the locking rule of Journal's fields,
// except written, which belongs to wmu.
//
// The bytes from 0 on are in the file at their own offset, up to ringBase;
// from there on they are in the file's ring. After stop, bytes from stopBase
// on are in the memory ring instead, and the file changes no more.
type spill struct {
	file     *os.File // nil when none could be made: the head stays in Journal.mem
	written  int64    // bytes in the file, counted in store.spilled
	ringBase int64    // offset of the first byte of the file's ring, never while the head is open
	ring     []byte   // the memory ring; nil until stop
	stopBase int64    // offset of the first byte of the memory ring
	tail     index    // runs of what is in a ring, from the gap's end on
	gap      gap
	dropped  [streams]int64
}

// never is an offset that is not reached.
const never = math.MaxInt64

// gap is the bytes from start up to end that were dropped; none if end is 0.
type gap struct{ start, end int64 }

func (g gap) none() bool { return g.end == 0 }

// gap returns the journal's gap. The caller holds mu.
func (j *Journal) gap() gap {
	if j.spill == nil {
		return gap{}
	}
	return j.spill.gap
}

// tailBase returns where the ring that bytes are appended to begins.
func (sp *spill) tailBase() int64 {
	if sp.ring != nil {
		return sp.stopBase
	}
	return sp.ringBase
}

// toFile moves the content from memory to a new spill file. When that fails
// the journal is stopped with its content as the head. The caller holds wmu.
func (j *Journal) toFile() {
	s := j.store
	sp := &spill{ringBase: never}
	err := func() error {
		if s.spilled.Load()+int64(len(j.mem)) > s.cfg.TotalQuota {
			return ErrTotalQuota
		}
		f, err := openUnlinked(s.cfg.Dir)
		if err != nil {
			return fmt.Errorf("journal: make spill file: %w", err)
		}
		if _, err := f.WriteAt(j.mem, 0); err != nil {
			f.Close()
			return fmt.Errorf("journal: write spill file: %w", err)
		}
		sp.file = f
		return nil
	}()

	j.mu.Lock()
	j.spill = sp
	if sp.file != nil {
		sp.written = int64(len(j.mem))
		s.spilled.Add(sp.written)
		j.mem = nil
		j.charge()
	}
	j.mu.Unlock()
	if err != nil {
		j.stop(err)
	}
}

// stop ends writing to the file for good: what it holds stays, new bytes go to
// a small ring in memory. It is for good because an interrupted file that went
// on would need a second gap. The caller holds wmu.
func (j *Journal) stop(reason error) {
	s, sp := j.store, j.spill
	n := min(s.tailMemory, s.ringQuota)
	if s.memory.Load()+n > s.cfg.TotalMemory {
		n = min(n, smallJournal)
	}
	ring := make([]byte, n)

	j.mu.Lock()
	if sp.gap.none() {
		// Everything is held from 0 on; the file's ring, if begun, becomes
		// part of the head.
		j.head.runs = append(j.head.runs, sp.tail.live()...)
	} else {
		// Keeping the file's ring behind the gap would make the next drop a
		// second gap. This is a failed overwrite of blocks that exist: rare
		// enough to lose the ring's bytes for.
		j.drop(j.size)
	}
	sp.tail = index{}
	sp.ring, sp.stopBase = ring, j.size
	j.lossy = reason
	j.charge()
	j.mu.Unlock()
	s.lossy.Add(1)
}

// drop lets go of the tail's bytes before offset to, which grows the gap. The
// caller holds both locks.
func (j *Journal) drop(to int64) {
	sp := j.spill
	from := max(sp.gap.end, sp.tailBase())
	if to <= from {
		return
	}
	runs := sp.tail.live()
	for i, r := range runs {
		end := j.size
		if i+1 < len(runs) {
			end = runs[i+1].start()
		}
		sp.dropped[r.stream()] += min(end, to) - r.start()
		if end > to || i+1 == len(runs) {
			runs[i] = newRun(to, r.stream())
			break
		}
		sp.tail.first++
	}
	if sp.gap.none() {
		sp.gap.start = from
	}
	sp.gap.end = to
}

// filePlace returns where in the file the byte at offset is, and how many bytes
// from there on follow each other in the file too.
func (s *Store) filePlace(ringBase, offset int64) (pos, room int64) {
	if offset < ringBase {
		return offset, ringBase - offset
	}
	in := (offset - ringBase) % s.ringQuota
	return s.headQuota + in, s.ringQuota - in
}

// takeRing copies what of the bytes from offset on is in the memory ring to its
// place in dst, and returns the part of dst that comes before it and is still
// to be read. The caller holds mu: the ring is overwritten in place.
func (sp *spill) takeRing(dst []byte, offset int64) []byte {
	if sp == nil || sp.ring == nil || offset+int64(len(dst)) <= sp.stopBase {
		return dst
	}
	before := max(sp.stopBase-offset, 0)
	in := (offset + before - sp.stopBase) % int64(len(sp.ring))
	n := copy(dst[before:], sp.ring[in:])
	copy(dst[before:][n:], sp.ring)
	return dst[:before]
}

func (sp *spill) close() {
	if sp.file != nil {
		sp.file.Close()
	}
}
