package journal

import "fmt"

// append appends p as bytes of st. The caller must hold wmu.
func (j *Journal) append(st Stream, p []byte) {
	if j.closed || len(p) == 0 {
		return
	}
	j.attachSegment()
	if j.spill == nil {
		if int64(len(p)) <= j.memoryRoom(st) {
			j.appendMemory(st, p)
			return
		}
		j.toFile()
	}
	for len(p) > 0 {
		if j.spill.ring != nil {
			j.tryResume()
		}
		if j.spill.ring != nil {
			p = p[j.appendRing(st, p):]
		} else {
			p = p[j.appendFile(st, p):]
		}
	}
}

// memoryRoom returns how many more bytes of st may be held in memory. It is
// negative if a new run alone would exceed the limit.
func (j *Journal) memoryRoom(st Stream) int64 {
	s := j.store
	runs := j.head.n
	if !j.head.ends(st) {
		if !s.indexMayGrow(runs) {
			return 0
		}
		runs++
	}
	// A journal that spills keeps its times in memory.
	total := s.cfg.TotalMemory - (s.memory.Load() - j.charged + j.times.memory())
	return min(j.data, max(smallJournal, total)) - int64(len(j.mem)) - runSize*int64(runs)
}

// appendMemory appends p to the live segment.
func (j *Journal) appendMemory(st Stream, p []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mem = append(j.mem, p...)
	j.publish(st, len(p))
}

// appendFile writes as much of p as fits contiguously in the file, and returns
// how much that was. If the file takes no more, it stops the journal and
// returns what was written before.
func (j *Journal) appendFile(st Stream, p []byte) int {
	pos, n := j.reserve(st, len(p))
	if n == 0 {
		j.stop(ErrTotalQuota)
		return 0
	}
	if j.spill.ringBase != never {
		j.save() // so that the overwritten range counts as dropped
	}
	n, err := j.spill.file.WriteAt(p[:n], pos)
	j.commit(st, n)
	if err != nil {
		j.stop(fmt.Errorf("journal: write spill file: %w", err))
	}
	return n
}

// reserve finds the place in the file for up to n next bytes of st, and drops
// what they will overwrite. Dropping comes before writing: a reader that saw
// any byte of the write finds its range dropped when it checks again. It
// returns room 0 when the total quota is reached. The caller must hold wmu.
func (j *Journal) reserve(st Stream, n int) (pos int64, room int) {
	s, sp := j.store, j.spill
	if sp.ringBase == never && (j.size >= j.headQuota || !j.head.ends(st) && !s.indexMayGrow(j.head.n)) {
		j.mu.Lock()
		sp.ringBase = j.size
		j.mu.Unlock()
	}
	v := j.view()
	pos, follow := v.place(j.size)
	if sp.ringBase == never {
		follow = j.headQuota - j.size
	}
	follow = min(follow, int64(n))
	if j.extends() {
		follow = min(follow, max(s.cfg.TotalQuota-s.spilled.Load(), 0))
	}
	if sp.ringBase != never && follow > 0 {
		j.mu.Lock()
		j.makeRoom(st, follow, v.ringSize())
		j.mu.Unlock()
	}
	return pos, int(follow)
}

// extends reports whether the next bytes grow the content of the file, rather
// than overwrite old bytes.
func (j *Journal) extends() bool {
	v := j.view()
	return j.size-v.ringBase < v.ringSize()
}

// commit makes n bytes visible that were written at the place that reserve
// returned. The caller must hold wmu.
func (j *Journal) commit(st Stream, n int) {
	if n <= 0 {
		return
	}
	if j.extends() {
		j.spill.written += int64(n)
		j.store.spilled.Add(int64(n))
	}
	j.mu.Lock()
	j.publish(st, n)
	j.mu.Unlock()
}

// appendRing appends as much of p as fits contiguously in the memory ring.
func (j *Journal) appendRing(st Stream, p []byte) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	in, n := j.reserveRing(st, len(p))
	j.save()
	copy(j.spill.ring[in:], p[:n])
	j.publish(st, n)
	return n
}

// reserveRing is reserve for the memory ring. The caller must hold both locks.
func (j *Journal) reserveRing(st Stream, n int) (in int64, room int) {
	ring := int64(len(j.spill.ring))
	in = (j.size - j.spill.stopBase) % ring
	follow := min(int64(n), ring-in)
	j.makeRoom(st, follow, ring)
	return in, int(follow)
}

// makeRoom drops what n more bytes of st push out of a ring of the given size:
// the bytes they overwrite, and the oldest run if a new run would be one too
// many. The caller must hold both locks.
func (j *Journal) makeRoom(st Stream, n, ring int64) {
	sp := j.spill
	j.drop(j.size + n - ring)
	if x := &sp.tail; x.n > 1 && !x.ends(st) && !j.store.indexMayGrow(x.n) {
		j.drop(x.at(1).start())
	}
}

// publish makes n bytes of st visible that are in place, and wakes the waiters.
// The caller must hold both locks.
func (j *Journal) publish(st Stream, n int) {
	if x := j.next(); !x.ends(st) {
		x.push(newRun(j.size, st))
	}
	j.mark()
	j.size += int64(n)
	j.total[st] += int64(n)
	j.store.captured.Add(int64(n))
	j.charge()
	j.save()
	j.broadcast()
}

// next returns the index that the next bytes belong to. The caller must hold
// both locks.
func (j *Journal) next() *index {
	if j.spill != nil && j.size >= j.spill.tailBase() {
		return &j.spill.tail
	}
	return &j.head
}
