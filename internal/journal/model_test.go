package journal

import (
	"bytes"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// model is a journal without limits: what was appended, byte by byte.
type model struct {
	data    []byte
	streams []Stream
}

func (m *model) append(st Stream, p []byte) {
	m.data = append(m.data, p...)
	for range p {
		m.streams = append(m.streams, st)
	}
}

// of returns the bytes of st from offset from up to to.
func (m *model) of(st Stream, from, to int64) []byte {
	var b []byte
	for i := from; i < to; i++ {
		if m.streams[i] == st {
			b = append(b, m.data[i])
		}
	}
	return b
}

// changes counts the stream changes.
func (m *model) changes() int {
	n := 0
	for i := range m.streams {
		if i == 0 || m.streams[i] != m.streams[i-1] {
			n++
		}
	}
	return n
}

// checkChunks checks that chunks, read from offset on, agree with the model,
// and returns the gap in them.
func (m *model) checkChunks(t *rapid.T, chunks []Chunk, offset int64) gap {
	var g gap
	for _, chunk := range chunks {
		if chunk.Offset != offset {
			t.Fatalf("chunk at %d, want %d", chunk.Offset, offset)
		}
		switch {
		case chunk.Gap > 0:
			if chunk.Data != nil || !g.none() {
				t.Fatalf("gap with data, or a second one, at %d", offset)
			}
			g = gap{offset, offset + chunk.Gap}
		case len(chunk.Data) == 0:
			t.Fatalf("empty chunk at %d", offset)
		}
		for i, b := range chunk.Data {
			if at := offset + int64(i); m.data[at] != b || m.streams[at] != chunk.Stream {
				t.Fatalf("byte at %d is %d of stream %d, want %d of %d", at, b, chunk.Stream, m.data[at], m.streams[at])
			}
		}
		offset = chunk.End()
	}
	return g
}

func TestAgainstModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			Dir:        dir,
			ExecMemory: rapid.Int64Range(1, 200).Draw(t, "memory"),
			ExecQuota:  rapid.Int64Range(1, 500).Draw(t, "quota"),
			TotalQuota: rapid.SampledFrom([]int64{0, 0, 0, 1, 50, 300}).Draw(t, "total"),
		}
		s := NewStore(cfg)
		s.maxRuns = rapid.SampledFrom([]int{2, 5, 20, maxRuns}).Draw(t, "runs")
		s.tailMemory = rapid.Int64Range(1, 100).Draw(t, "tail")
		s.resumeAfter, s.resumeRoom = 0, rapid.Int64Range(1, 100).Draw(t, "room")
		leastQuota := s.cfg.TotalQuota
		j := s.New()
		defer func() {
			s := j.store
			defer s.Close()
			j.Release()
			if got := s.Stats(); got.MemoryBytes != 0 || got.SpilledBytes != 0 || got.Journals != 0 {
				t.Errorf("after release: %+v", got)
			}
		}()
		m := &model{}
		next := byte(0)
		limits := rapid.OneOf(rapid.IntRange(1, 50), rapid.Just(math.MaxInt))

		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				st := rapid.SampledFrom([]Stream{Stdout, Stderr}).Draw(t, "stream")
				p := make([]byte, rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, 300)).Draw(t, "n"))
				for i := range p {
					p[i] = next
					next++
				}
				j.Append(st, p)
				if !j.Closed() {
					m.append(st, p)
				}
			},
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					t.Skip()
				}
				j.Close()
				j.Append(Stdout, []byte("ignored"))
				if !j.Closed() {
					t.Fatal("not closed")
				}
			},
			"restart": func(t *rapid.T) { j = restarted(t, j) },
			"others come and go": func(t *rapid.T) {
				quota := rapid.Int64Range(1, 2000).Draw(t, "total")
				j.store.cfg.TotalQuota = quota
				leastQuota = min(leastQuota, quota)
			},
			"read": func(t *rapid.T) {
				size := int64(len(m.data))
				offset := rapid.Int64Range(0, size).Draw(t, "offset")
				limit := limits.Draw(t, "limit")
				chunks, next, err := j.Read(offset, limit)
				if err != nil {
					t.Fatal(err)
				}
				m.checkChunks(t, chunks, offset)
				n, end := 0, offset
				for _, chunk := range chunks {
					n, end = n+len(chunk.Data), chunk.End()
				}
				if n > limit || next != end || len(chunks) == 0 && size > offset {
					t.Fatalf("%d bytes of at most %d in %d chunks, next %d, want %d", n, limit, len(chunks), next, end)
				}
			},
			"head and tail": func(t *rapid.T) {
				st := rapid.SampledFrom([]Stream{Stdout, Stderr}).Draw(t, "stream")
				sizes := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 2000))
				head, tail := sizes.Draw(t, "head"), sizes.Draw(t, "tail")
				m.checkHeadTail(t, j, st, head, tail)
			},
			"": func(t *rapid.T) { m.checkAll(t, j, leastQuota, limits.Draw(t, "step")) },
		})
	})
}

// restarted returns the journal that the next process restores.
func restarted(t *rapid.T, j *Journal) *Journal {
	s := j.store
	after := NewStore(s.cfg)
	after.maxRuns, after.tailMemory = s.maxRuns, s.tailMemory
	after.resumeAfter, after.resumeRoom = s.resumeAfter, s.resumeRoom
	var k *Journal
	var err error
	if seg, ok := j.LiveSegment(); ok {
		k, err = after.Restore(seg)
	} else {
		k, err = after.RestoreValue(j.Value())
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, want := after.Stats(), s.Stats(); got != want {
		t.Fatalf("%+v, before the restart %+v", got, want)
	}
	forget(j)
	return k
}

// forget closes this process's descriptors of a journal, and drops nothing from
// the keeper.
func forget(j *Journal) {
	if j.segment != nil {
		j.segment.close()
	}
	if j.spill != nil {
		j.spill.close()
	}
	j.store.Close()
}

// checkAll reads everything and checks the sizes, that gaps agree with
// FirstHeld, and that no more was dropped than the limits require, given that
// the total quota was once as small as leastQuota.
func (m *model) checkAll(t *rapid.T, j *Journal, leastQuota int64, step int) {
	size := int64(len(m.data))
	if j.Size() != size || j.Total(Stdout)+j.Total(Stderr) != size || j.store.Stats().CapturedBytes != size {
		t.Fatalf("Size %d, totals %d and %d, want %d", j.Size(), j.Total(Stdout), j.Total(Stderr), size)
	}
	var all []Chunk
	for offset := int64(0); offset < size; {
		chunks, next, err := j.Read(offset, step)
		if err != nil || len(chunks) == 0 {
			t.Fatalf("Read(%d): %d chunks, %v", offset, len(chunks), err)
		}
		all, offset = append(all, chunks...), next
	}
	g := m.checkChunks(t, all, 0)
	if first := j.FirstHeld(g.start); !g.none() && first != g.end {
		t.Fatalf("FirstHeld(%d) = %d, want %d", g.start, first, g.end)
	}

	s := j.store
	if m.changes() > s.maxRuns {
		return
	}
	switch lossy := j.Lossy(); {
	case lossy == nil && size <= s.cfg.ExecQuota:
		if !g.none() {
			t.Fatalf("gap %v within the quota", g)
		}
	case lossy == nil:
		if want := (gap{s.newBounds.headQuota, size - s.newBounds.ringQuota}); g != want {
			t.Fatalf("gap %v, want %v", g, want)
		}
	case lossy == ErrTotalQuota:
		if held := size - (g.end - g.start); held < min(size, leastQuota, s.cfg.ExecQuota) {
			t.Fatalf("%d bytes held of %d, with room for %d", held, size, leastQuota)
		}
	default:
		t.Fatal(lossy)
	}
}

// checkHeadTail computes from the gap what HeadTail must return.
func (m *model) checkHeadTail(t *rapid.T, j *Journal, st Stream, head, tail int) {
	size := int64(len(m.data))
	g := j.gap()
	all := m.of(st, 0, size)
	wantHead, wantTail := all, []byte(nil)
	if dropped := m.of(st, g.start, g.end); len(dropped) > 0 {
		wantHead, wantTail = m.of(st, 0, g.start), m.of(st, g.end, size)
		wantHead = wantHead[:min(head, len(wantHead))]
		wantTail = wantTail[max(len(wantTail)-tail, 0):]
	} else if head+tail < len(all) {
		wantHead, wantTail = all[:head], all[len(all)-tail:]
	}
	h, tl, omitted, err := j.HeadTail(st, head, tail)
	if err != nil {
		t.Fatal(err)
	}
	want := int64(len(all) - len(wantHead) - len(wantTail))
	if !bytes.Equal(h, wantHead) || !bytes.Equal(tl, wantTail) || omitted != want {
		t.Fatalf("HeadTail(%d, %d) = %v, %v, %d; want %v, %v, %d", head, tail, h, tl, omitted, wantHead, wantTail, want)
	}
}
