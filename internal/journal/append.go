package journal

import "fmt"

// append adds p as bytes of st. The caller holds wmu.
func (j *Journal) append(st Stream, p []byte) {
	if j.closed || len(p) == 0 {
		return
	}
	if j.spill == nil {
		if j.fits(st, len(p)) {
			j.appendMemory(st, p)
			return
		}
		j.toFile()
	}
	for len(p) > 0 {
		if j.spill.ring != nil {
			p = p[j.appendRing(st, p):]
		} else {
			p = p[j.appendFile(st, p):]
		}
	}
}

// fits reports whether n more bytes of st may be held in memory.
func (j *Journal) fits(st Stream, n int) bool {
	s := j.store
	runs := len(j.head.runs)
	if !j.head.ends(st) {
		if !s.indexMayGrow(runs) {
			return false
		}
		runs++
	}
	need := int64(len(j.mem)) + int64(n) + runSize*int64(runs)
	if need > s.cfg.ExecMemory {
		return false
	}
	// A journal that spills keeps its times.
	return need <= smallJournal || s.memory.Load()-j.charged+j.times.memory()+need <= s.cfg.TotalMemory
}

// appendMemory adds p to the slice.
func (j *Journal) appendMemory(st Stream, p []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if need := len(j.mem) + len(p); need > cap(j.mem) {
		// The first allocation is exact, for most commands write once; later
		// ones double, but not beyond what may be held anyway.
		room := max(need, int(min(2*int64(cap(j.mem)), j.store.cfg.ExecMemory)))
		j.mem = append(make([]byte, 0, room), j.mem...)
	}
	j.mem = append(j.mem, p...)
	j.publish(st, len(p))
}

// appendFile writes as much of p as follows without a break in the file, and
// returns how much that was. When the file takes no more it stops the journal
// and returns what was written before.
func (j *Journal) appendFile(st Stream, p []byte) int {
	pos, n := j.reserve(st, len(p))
	if n == 0 {
		j.stop(ErrTotalQuota)
		return 0
	}
	n, err := j.spill.file.WriteAt(p[:n], pos)
	j.commit(st, n)
	if err != nil {
		j.stop(fmt.Errorf("journal: write spill file: %w", err))
	}
	return n
}

// reserve finds the place in the file for up to n next bytes of st, and lets go
// of what they will overwrite. Dropping comes before writing: a reader that
// saw any byte of the write finds its range dropped when it looks again. It
// returns no bytes when the total quota is reached. The caller holds wmu.
func (j *Journal) reserve(st Stream, n int) (pos int64, room int) {
	s, sp := j.store, j.spill
	if sp.ringBase == never && (j.size >= s.headQuota || !j.head.ends(st) && !s.indexMayGrow(len(j.head.runs))) {
		j.mu.Lock()
		sp.ringBase = j.size
		j.mu.Unlock()
	}
	pos, follow := s.filePlace(sp.ringBase, j.size)
	if sp.ringBase == never {
		follow = s.headQuota - j.size
	}
	follow = min(follow, int64(n))
	if j.extends() {
		follow = min(follow, max(s.cfg.TotalQuota-s.spilled.Load(), 0))
	}
	if sp.ringBase != never && follow > 0 {
		j.mu.Lock()
		j.makeRoom(st, follow, s.ringQuota)
		j.mu.Unlock()
	}
	return pos, int(follow)
}

// extends reports whether the next bytes make the file hold more, rather than
// overwrite old ones.
func (j *Journal) extends() bool {
	return j.size-j.spill.ringBase < j.store.ringQuota
}

// commit makes the n bytes written at the place that reserve gave visible. The
// caller holds wmu.
//
// A process that keeps the spill file across a crash of this one would be told
// size, gap and new run here, between the write and its visibility.
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

// appendRing adds as much of p as follows without a break in the memory ring.
func (j *Journal) appendRing(st Stream, p []byte) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	sp := j.spill
	in := (j.size - sp.stopBase) % int64(len(sp.ring))
	n := min(len(p), len(sp.ring)-int(in))
	j.makeRoom(st, int64(n), int64(len(sp.ring)))
	copy(sp.ring[in:], p[:n])
	j.publish(st, n)
	return n
}

// makeRoom drops what n more bytes of st push out of a ring of the given size:
// the bytes they overwrite, and the oldest run when theirs is one too many. The
// caller holds both locks.
func (j *Journal) makeRoom(st Stream, n, ring int64) {
	sp := j.spill
	j.drop(j.size + n - ring)
	if runs := sp.tail.live(); len(runs) > 1 && !sp.tail.ends(st) && !j.store.indexMayGrow(len(runs)) {
		j.drop(runs[1].start())
	}
}

// publish makes n bytes of st that are in place visible and wakes the waiters.
// The caller holds both locks.
func (j *Journal) publish(st Stream, n int) {
	x := &j.head
	if j.spill != nil && j.size >= j.spill.tailBase() {
		x = &j.spill.tail
	}
	if !x.ends(st) {
		x.push(j.size, st)
	}
	j.mark()
	j.size += int64(n)
	j.total[st] += int64(n)
	j.store.captured.Add(int64(n))
	j.charge()
	j.broadcast()
}
