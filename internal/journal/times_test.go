package journal

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// advance advances the clock of the journals of a store.
func (s *Store) advance(d time.Duration) { s.began = s.began.Add(-d) }

// maxTestTime is the longest that a test itself may take.
const maxTestTime = 5 * time.Second

func TestMarks(t *testing.T) {
	j := newJournal(t, Config{})
	if got := j.Marks(0, 1); got != nil {
		t.Errorf("marks of an empty journal: %v", got)
	}
	j.store.advance(time.Hour)
	j.Begin(time.Now())
	hours := func(n int) {
		j.store.advance(time.Duration(n) * time.Hour)
		j.Append(Stdout, []byte("abc"))
	}
	hours(0)
	hours(0) // at once: needs no mark
	if j.times != nil {
		t.Error("a command that writes at once has a table")
	}
	hours(1)
	hours(2)
	got := j.Marks(0, 12)
	for i := range got {
		if over := got[i].At % time.Hour; over > maxTestTime {
			t.Errorf("mark %v has the wrong time", got[i])
		}
		got[i].At = got[i].At.Truncate(time.Hour)
	}
	all := []Mark{{0, 0}, {6, time.Hour}, {9, 3 * time.Hour}}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Error(diff)
	}
	for _, part := range []struct {
		from, to int64
		want     []int64
	}{
		{0, 6, []int64{0}},
		{0, 7, []int64{0, 6}},
		{5, 12, []int64{0, 6, 9}},
		{6, 9, []int64{6}},
		{8, 10, []int64{6, 9}},
		{12, 12, []int64{9}},
	} {
		var offsets []int64
		for _, m := range j.Marks(part.from, part.to) {
			offsets = append(offsets, m.Offset)
		}
		if diff := cmp.Diff(part.want, offsets); diff != "" {
			t.Errorf("from %d to %d: %s", part.from, part.to, diff)
		}
	}
}

// Output that arrived before the start that Begin sets counts as arrived at the
// start.
func TestMarkBeforeTheBeginning(t *testing.T) {
	j := newJournal(t, Config{})
	j.Begin(time.Now().Add(time.Hour))
	j.Append(TTY, []byte("early"))
	if diff := cmp.Diff([]Mark{{0, 0}}, j.Marks(0, 5)); diff != "" {
		t.Error(diff)
	}
}

// However long a command writes, its table is bounded, no byte is reported
// later than it arrived or much earlier, and pauses stay where they were.
func TestMarksAgainstModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		s := NewStore(Config{
			Dir: dir, ExecMemory: rapid.Int64Range(1, 2000).Draw(t, "memory"), ExecQuota: rapid.Int64Range(1, 3000).Draw(t, "quota"),
		})
		defer s.Close()
		s.maxMarks = rapid.IntRange(1, 40).Draw(t, "marks")
		// With a clock that only advance moves, times would be exact; the real
		// clock adds the duration of the test.
		start := time.Now()
		j := s.New()
		defer j.Release()
		j.Begin(start)
		passed := time.Duration(0)
		var arrived []time.Duration // arrival time of each byte
		var pauses []int64          // offsets of the bytes after a pause
		for range rapid.IntRange(1, 300).Draw(t, "writes") {
			pause := rapid.SampledFrom([]time.Duration{0, 0, 3, 11, 50, 1000, 1 << 22}).Draw(t, "pause") * time.Millisecond
			s.advance(pause)
			passed += pause
			if pause == 1<<22*time.Millisecond {
				pauses = append(pauses, int64(len(arrived)))
			}
			n := rapid.IntRange(1, 20).Draw(t, "bytes")
			j.Append(Stream(n%2), make([]byte, n))
			for range n {
				arrived = append(arrived, passed)
			}
		}
		took := time.Since(start) + time.Millisecond
		step := time.Duration(markStep) * time.Millisecond
		if j.times != nil {
			step = time.Duration(j.times.step) * time.Millisecond
			if n := len(j.times.marks); n > s.maxMarks {
				t.Fatalf("%d marks, at most %d", n, s.maxMarks)
			}
		}
		g := j.gap()
		at := func(o int64) time.Duration {
			marks := j.Marks(o, o+1)
			if len(marks) != 1 {
				t.Fatalf("%d marks for the byte at %d", len(marks), o)
			}
			return marks[0].At
		}
		for o := range int64(len(arrived)) {
			if g.start <= o && o < g.end {
				continue
			}
			if got := at(o); got > arrived[o]+took || arrived[o]-got > 2*step+took {
				t.Fatalf("the byte at %d arrived at %v, its mark says %v; the step is %v, the gap %v", o, arrived[o], got, step, g)
			}
		}
		for _, o := range pauses {
			held := o < g.start || o >= g.end
			if held && 1<<22*time.Millisecond >= 2*step && at(o) < arrived[o] && o > 0 {
				t.Fatalf("the pause before %d is not in the marks", o)
			}
		}
		if got := s.memory.Load(); j.charged != got {
			t.Fatalf("%d bytes are charged, %d are used", j.charged, got)
		}
	})
}

// A table that is not full grows to its bound and no further.
func TestMarksAreBounded(t *testing.T) {
	j := newJournal(t, Config{})
	for range 5 * maxMarks {
		j.store.advance(markStep * time.Millisecond)
		j.Append(TTY, []byte("x"))
	}
	if n := cap(j.times.marks); n > maxMarks || len(j.times.marks) < maxMarks/4 {
		t.Errorf("%d marks, capacity %d", len(j.times.marks), n)
	}
	j.Close()
	if got := j.store.Stats().MemoryBytes; got > maxMarks*markSize+7*maxMarks {
		t.Errorf("%d bytes", got)
	}
}

// A daemon that is far past its memory limit thins tables instead of growing
// them.
func TestMarksUnderPressure(t *testing.T) {
	j := newJournal(t, Config{TotalMemory: 1})
	for range 10 * minMarks {
		j.store.advance(markStep * time.Millisecond)
		j.Append(TTY, []byte("x"))
	}
	if n := len(j.times.marks); n > minMarks {
		t.Errorf("%d marks, at most %d", n, minMarks)
	}
}

// Marks of dropped bytes are no reason to thin the others.
func TestMarksOfTheGap(t *testing.T) {
	s := newStore(t, Config{ExecMemory: 1, ExecQuota: 40})
	s.maxMarks = 60
	j := s.New()
	defer j.Release()
	for range 100 * s.maxMarks {
		s.advance(2 * markStep * time.Millisecond)
		j.Append(TTY, []byte("x"))
	}
	if n := len(j.times.marks); j.times.step != markStep || n > s.maxMarks {
		t.Errorf("%d marks at least %d ms apart", n, j.times.step)
	}
	if n := len(j.Marks(j.Size()-20, j.Size())); n != 20 {
		t.Errorf("the last 20 bytes have %d marks", n)
	}
}
