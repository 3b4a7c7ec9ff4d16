package journal

import (
	"math"
	"sort"
	"time"
)

// Mark says when a byte was captured: those from Offset on, up to the next
// mark, came At after the command's start or shortly later.
type Mark struct {
	Offset int64
	At     time.Duration
}

const (
	// markStep is how close marks come at first, in milliseconds: what is
	// written within a hundredth of a second is one picture to who watches it.
	markStep = 10

	// maxMarks bounds the table of one journal to 64 KiB. Forty seconds that
	// never pause have marks as close as they come, an hour of them about one
	// a second; what pauses longer than that keeps every one.
	maxMarks = 4096

	// minMarks is what a table may always hold, however far the daemon is past
	// its memory: a kilobyte, enough to tell the parts of a command apart.
	minMarks = 64
)

// mark is a Mark in the table, its time in milliseconds: 49 days of them fit,
// and what comes later is said to have come then.
type mark struct {
	offset int64
	at     uint32
}

const markSize = 16

func (m mark) public() Mark {
	return Mark{Offset: m.offset, At: time.Duration(m.at) * time.Millisecond}
}

// times is when the bytes of a journal came, except the first of them, which
// Journal.first says: most commands write once, and need no table. It knows
// nothing of where the bytes are.
type times struct {
	marks []mark // in the order of their offsets and of their times
	step  int64  // no two marks are closer, in milliseconds
	half  int    // which of the two tables in the lane marks is
	waste int    // how many marks the other one has had
}

// Begin sets the moment that times are counted from. It is when the journal was
// made, until the owner knows better.
func (j *Journal) Begin(at time.Time) {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.origin = at.Sub(j.store.began)
	j.save()
}

// Marks returns when the bytes from offset from up to to came. The first mark is
// at from or before it; there is none only of an empty journal.
func (j *Journal) Marks(from, to int64) []Mark {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.size == 0 {
		return nil
	}
	var table []mark
	if j.times != nil {
		table = j.times.marks
	}
	i := sort.Search(len(table), func(i int) bool { return table[i].offset > from })
	end := i + sort.Search(len(table)-i, func(k int) bool { return table[i+k].offset >= to })
	marks := make([]Mark, 0, 1+end-i)
	if i == 0 {
		marks = append(marks, mark{at: j.first}.public())
	} else {
		i--
	}
	for _, m := range table[i:end] {
		marks = append(marks, m.public())
	}
	return marks
}

// mark notes when the next byte came, unless a byte shortly before it says so.
// The caller holds both locks.
func (j *Journal) mark() {
	at := clamp((time.Since(j.store.began) - j.origin).Milliseconds(), 0, math.MaxUint32)
	if j.size == 0 {
		j.first = uint32(at)
		return
	}
	last, step := j.first, int64(markStep)
	if t := j.times; t != nil {
		step = t.step
		if n := len(t.marks); n > 0 {
			last = t.marks[n-1].at
		}
	}
	if at-int64(last) < step {
		return
	}
	if j.times == nil {
		j.times = &times{step: markStep, marks: j.segment.marks[0][:0]}
	}
	t := j.times
	if n := len(t.marks); !j.store.marksMayGrow(n) {
		// It is made smaller as a copy, for a restart finds the table whole.
		t.half, t.waste = 1-t.half, max(n, t.waste)
		t.marks = append(j.segment.marks[t.half][:0], t.marks...)
		t.forget(j.gap())
		t.thin(int64(j.first), n*3/4)
		if at-t.last(int64(j.first)) < t.step {
			return
		}
	}
	t.marks = append(t.marks, mark{offset: j.size, at: uint32(at)})
}

// last is when the last mark is, given when the first is.
func (t *times) last(first int64) int64 {
	if n := len(t.marks); n > 0 {
		return int64(t.marks[n-1].at)
	}
	return first
}

// forget lets go of marks of which no byte is held.
func (t *times) forget(g gap) {
	kept := t.marks[:0]
	for i, m := range t.marks {
		if g.start <= m.offset && i+1 < len(t.marks) && t.marks[i+1].offset <= g.end {
			continue
		}
		kept = append(kept, m)
	}
	t.marks = kept
}

// thin doubles the step until at most n marks are left. What follows a longer
// pause keeps its mark.
func (t *times) thin(first int64, n int) {
	for len(t.marks) > n {
		t.step *= 2
		kept, last := t.marks[:0], first
		for _, m := range t.marks {
			if int64(m.at)-last >= t.step {
				kept = append(kept, m)
				last = int64(m.at)
			}
		}
		t.marks = kept
	}
}

// memory is what the table takes.
func (t *times) memory() int64 {
	if t == nil {
		return 0
	}
	return markSize * int64(len(t.marks)+t.waste)
}

// marksMayGrow reports whether a table of n marks may take one more.
func (s *Store) marksMayGrow(n int) bool {
	return n < min(minMarks, s.maxMarks) || n < s.maxMarks && s.memory.Load()/2 < s.cfg.TotalMemory
}
