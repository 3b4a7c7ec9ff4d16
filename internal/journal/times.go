package journal

import (
	"math"
	"sort"
	"time"
)

// Mark says when bytes were captured: those from Offset up to the next mark
// arrived At after the command's start or shortly later.
type Mark struct {
	Offset int64
	At     time.Duration
}

const (
	// markStep is the initial minimum distance of marks, in milliseconds: a
	// viewer sees bytes that are written within 10 ms as one change.
	markStep = 10

	// maxMarks bounds the table of one journal to 64 KiB. Forty seconds of
	// continuous output have marks at the minimum distance, an hour has about
	// one a second; output with longer pauses keeps every mark.
	maxMarks = 4096

	// minMarks is what a table may always hold, however far the daemon is past
	// its memory: a kilobyte, enough to tell the parts of a command apart.
	minMarks = 64
)

// mark is a Mark in the table, with its time in milliseconds: 49 days fit, and
// later times are cut to that.
type mark struct {
	offset int64
	at     uint32
}

const markSize = 16

func (m mark) public() Mark {
	return Mark{Offset: m.offset, At: time.Duration(m.at) * time.Millisecond}
}

// times stores when the bytes of a journal arrived, except the first of them,
// for which Journal.first is used: most commands write once and need no table.
// It does not depend on where the bytes are.
type times struct {
	marks []mark // ordered by offset and by time
	step  int64  // minimum distance of two marks, in milliseconds
	half  int    // which of the two tables in the live segment marks is
	waste int    // how many marks the other table has had
}

// Begin sets the zero of the times. Until the owner calls it, that is when the
// journal was created.
func (j *Journal) Begin(at time.Time) {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.origin = at.Sub(j.store.began)
	j.save()
}

// Marks returns when the bytes from offset from up to to arrived. The first
// mark is at from or before it; only an empty journal has none.
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

// mark records when the next byte arrived, unless the last mark is recent
// enough. The caller must hold both locks.
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
		// Thin a copy, because a restart must find a complete table.
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

// last returns the time of the last mark, or first if there is none.
func (t *times) last(first int64) int64 {
	if n := len(t.marks); n > 0 {
		return int64(t.marks[n-1].at)
	}
	return first
}

// forget removes marks of which no byte is held.
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

// thin doubles the step until at most n marks are left. Marks after a longer
// pause are kept.
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

// memory returns how many bytes the table takes.
func (t *times) memory() int64 {
	if t == nil {
		return 0
	}
	return markSize * int64(len(t.marks)+t.waste)
}

// marksMayGrow reports whether a table of n marks may get one more.
func (s *Store) marksMayGrow(n int) bool {
	return n < min(minMarks, s.maxMarks) || n < s.maxMarks && s.memory.Load()/2 < s.cfg.TotalMemory
}
