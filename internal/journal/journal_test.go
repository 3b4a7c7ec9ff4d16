package journal

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

type input struct {
	st   Stream
	text string
}

func appendAll(j *Journal, chunks []input) {
	for _, c := range chunks {
		j.Append(c.st, []byte(c.text))
	}
}

func out(offset int64, text string) Chunk {
	return Chunk{Stream: Stdout, Offset: offset, Data: []byte(text)}
}

func errs(offset int64, text string) Chunk {
	return Chunk{Stream: Stderr, Offset: offset, Data: []byte(text)}
}

func TestRead(t *testing.T) {
	both := []input{{Stdout, "abc"}, {Stdout, "de"}, {Stderr, "XY"}, {Stdout, "f"}}
	small := Config{ExecMemory: 2, ExecQuota: 8} // head of 4, ring of 4
	tests := []struct {
		name   string
		cfg    Config
		chunks []input
		offset int64
		max    int
		want   []Chunk
		next   int64
	}{
		{"empty", Config{}, nil, 0, 10, nil, 0},
		{"all", Config{}, both, 0, 100, []Chunk{out(0, "abcde"), errs(5, "XY"), out(7, "f")}, 8},
		{"cut by max", Config{}, both, 1, 5, []Chunk{out(1, "bcde"), errs(5, "X")}, 6},
		{"at the end", Config{}, both, 8, 5, nil, 8},
		{"past the end", Config{}, both, 99, 5, nil, 99},
		{"negative offset", Config{}, both, -5, 2, []Chunk{out(0, "ab")}, 2},
		{"max of nothing", Config{}, both, 0, 0, []Chunk{out(0, "a")}, 1},
		{"from a file", Config{ExecMemory: 1}, both, 1, 100, []Chunk{out(1, "bcde"), errs(5, "XY"), out(7, "f")}, 8},
		{"head and ring full", small, both, 0, 100, []Chunk{out(0, "abcde"), errs(5, "XY"), out(7, "f")}, 8},
		{"gap in the middle", small, append(both, input{Stdout, "ghi"}), 0, 100, []Chunk{out(0, "abcd"), {Offset: 4, Gap: 3}, out(7, "fghi")}, 11},
		{"from inside the gap", small, append(both, input{Stdout, "ghi"}), 5, 2, []Chunk{{Offset: 5, Gap: 2}, out(7, "fg")}, 9},
		{"up to the gap", small, append(both, input{Stdout, "ghi"}), 2, 2, []Chunk{out(2, "cd")}, 4},
		{"one append over the quota", small, []input{{Stdout, "abcdefghijklmnopqrst"}}, 0, 100, []Chunk{out(0, "abcd"), {Offset: 4, Gap: 12}, out(16, "qrst")}, 20},
		{"quota of one byte", Config{ExecQuota: 1}, both, 0, 100, []Chunk{{Offset: 0, Gap: 7}, out(7, "f")}, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := newJournal(t, tt.cfg)
			appendAll(j, tt.chunks)
			got, next, err := j.Read(tt.offset, tt.max)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || next != tt.next {
				t.Errorf("next = %d, want %d; chunks (-want +got):\n%s", next, tt.next, diff)
			}
		})
	}
}

func TestHeadTail(t *testing.T) {
	both := []input{{Stdout, "abc"}, {Stderr, "12"}, {Stdout, "def"}, {Stderr, "345"}, {Stdout, "g"}}
	small := Config{ExecMemory: 2, ExecQuota: 8} // keeps abc1 and 345g
	tests := []struct {
		name       string
		cfg        Config
		chunks     []input
		st         Stream
		head, tail int
		h, t       string
		omitted    int64
	}{
		{"empty", Config{}, nil, Stdout, 5, 5, "", "", 0},
		{"nothing of that stream", Config{}, both, TTY, 5, 5, "", "", 0},
		{"all", Config{}, both, Stdout, 4, 3, "abcdefg", "", 0},
		{"all of the other", Config{}, both, Stderr, 0, 99, "12345", "", 0},
		{"middle left out", Config{}, both, Stdout, 2, 3, "ab", "efg", 2},
		{"head only", Config{}, both, Stderr, 3, 0, "123", "", 2},
		{"tail only", Config{}, both, Stderr, 0, 4, "", "2345", 1},
		{"negative", Config{}, both, Stderr, -1, -1, "", "", 5},
		{"from a file", Config{ExecMemory: 1}, both, Stdout, 2, 3, "ab", "efg", 2},
		{"quota dropped the middle", small, both, Stdout, 99, 99, "abc", "g", 3},
		{"quota dropped and asked for less", small, both, Stderr, 1, 2, "1", "45", 2},
		{"whole on both sides of the gap", small, []input{{Stdout, "ab"}, {Stderr, "123456"}, {Stdout, "cd"}}, Stdout, 9, 9, "abcd", "", 0},
		{"tail reaches over the gap", small, []input{{Stdout, "ab"}, {Stderr, "123456"}, {Stdout, "cd"}}, Stdout, 0, 3, "", "bcd", 1},
		{"all of it dropped", small, []input{{Stdout, "abcd"}, {Stderr, "12"}, {Stdout, "efgh"}}, Stderr, 9, 9, "", "", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := newJournal(t, tt.cfg)
			appendAll(j, tt.chunks)
			h, tl, omitted, err := j.HeadTail(tt.st, tt.head, tt.tail)
			if err != nil {
				t.Fatal(err)
			}
			if string(h) != tt.h || string(tl) != tt.t || omitted != tt.omitted {
				t.Errorf("got %q, %q, %d; want %q, %q, %d", h, tl, omitted, tt.h, tt.t, tt.omitted)
			}
		})
	}
}

// What remains of a HeadTail that the ring overtook while it read.
func TestTear(t *testing.T) {
	spans := []span{{0, 3}, {10, 2}, {20, 3}} // abc, de, fgh
	tests := []struct {
		name       string
		gap        gap
		keep, from int64
		h, t       string
	}{
		{"between two", gap{3, 10}, 8, 8, "whole", ""},
		{"after all", gap{never, never}, 8, 8, "whole", ""},
		{"one in the middle", gap{3, 20}, 8, 0, "abc", "fgh"},
		{"parts of two", gap{2, 11}, 8, 0, "ab", "efgh"},
		{"everything", gap{0, 99}, 8, 0, "", ""},
		{"head and tail smaller than what is left", gap{3, 20}, 2, 7, "ab", "h"},
		{"only in the tail", gap{11, 21}, 3, 3, "abc", "gh"},
		{"only in the head", gap{1, 2}, 5, 5, "a", "fgh"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lo, hi := lost(spans, tt.gap)
			if (lo == hi) != (tt.h == "whole") {
				t.Fatalf("lost from %d to %d", lo, hi)
			}
			if lo == hi {
				return
			}
			h, tl := tear([]byte("abcdefgh"), lo, hi, tt.keep, tt.from)
			if string(h) != tt.h || string(tl) != tt.t {
				t.Errorf("got %q, %q; want %q, %q", h, tl, tt.h, tt.t)
			}
		})
	}
}

func TestFirstHeld(t *testing.T) {
	j := newJournal(t, Config{ExecMemory: 2, ExecQuota: 8})
	j.Append(Stdout, []byte("abcdefghijkl")) // gap from 4 to 8
	got := map[int64]int64{}
	want := map[int64]int64{-3: 0, 0: 0, 3: 3, 4: 8, 7: 8, 8: 8, 11: 11, 12: 12, 99: 12}
	for offset := range want {
		got[offset] = j.FirstHeld(offset)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A program that changes stream with every byte must cost no more than the
// bound of the index, and the gap must be where bytes are missing.
func TestAlternatingStreamsAreBounded(t *testing.T) {
	s := newStore(t, Config{})
	j := s.New()
	defer j.Release()
	const n = 200_000
	for i := range n {
		j.Append(Stream(i%2), []byte{byte(i / 2)})
	}
	if got, bound := s.Stats().MemoryBytes, int64(2*maxRuns*runSize*3/2); got > bound {
		t.Errorf("%d bytes of memory, want at most %d", got, bound)
	}
	var gaps []int64
	for _, chunk := range readAll(t, j, 0, maxRead) {
		if chunk.Gap > 0 {
			gaps = append(gaps, chunk.Offset, chunk.Gap)
		}
		for i, b := range chunk.Data {
			if at := chunk.Offset + int64(i); b != byte(at/2) || chunk.Stream != Stream(at%2) {
				t.Fatalf("wrong byte at %d", at)
			}
		}
	}
	if diff := cmp.Diff([]int64{maxRuns, n - 2*maxRuns}, gaps); diff != "" {
		t.Errorf("gap (-want +got):\n%s", diff)
	}
	h, tl, omitted, err := j.HeadTail(Stderr, 3, 2)
	if err != nil || !bytes.Equal(h, []byte{0, 1, 2}) || !bytes.Equal(tl, []byte{158, 159}) || omitted != n/2-5 {
		t.Errorf("HeadTail = %v, %v, %d, %v", h, tl, omitted, err)
	}
}

func TestManyJournalsShareTheMemory(t *testing.T) {
	const total = 1 << 20
	s := newStore(t, Config{TotalMemory: total})
	text := strings.Repeat("0123456789abcdef", 1<<10) // 16 KiB
	var js []*Journal
	for range 100 {
		j := s.New()
		t.Cleanup(j.Release)
		j.Append(Stdout, []byte(text))
		js = append(js, j)
	}
	got := s.Stats()
	if got.MemoryBytes > total+100*runSize || got.SpilledBytes == 0 {
		t.Errorf("MemoryBytes = %d, SpilledBytes = %d; want at most %d in memory and the rest spilled", got.MemoryBytes, got.SpilledBytes, total)
	}
	for _, j := range js {
		if h, _, _, err := j.HeadTail(Stdout, len(text), 0); err != nil || string(h) != text {
			t.Fatalf("content differs (%v)", err)
		}
		j.Release()
	}
	want := Stats{CapturedBytes: int64(100 * len(text))}
	if diff := cmp.Diff(want, s.Stats()); diff != "" {
		t.Errorf("after release (-want +got):\n%s", diff)
	}
}

func TestWait(t *testing.T) {
	j := newJournal(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Wait(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait on an empty journal: %v, want context.Canceled", err)
	}

	// Fifty readers wait for the end of a journal that grows a byte at a time.
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for at := int64(0); ; {
				if err := j.Wait(t.Context(), at); err != nil {
					t.Errorf("Wait(%d): %v", at, err)
					return
				}
				chunks, next, err := j.Read(at, 1)
				if err != nil {
					t.Errorf("Read(%d): %v", at, err)
					return
				}
				if len(chunks) == 0 {
					if at != 100 {
						t.Errorf("closed at %d, want 100", at)
					}
					return
				}
				at = next
			}
		})
	}
	for range 100 {
		j.Append(TTY, []byte("x"))
	}
	j.Close()
	j.Close()
	wg.Wait()

	j.Append(Stdout, []byte("too late"))
	if got := j.Size(); got != 100 {
		t.Errorf("Size = %d after an append to a closed journal, want 100", got)
	}
	if err := j.Wait(ctx, 1000); err != nil {
		t.Errorf("closed: %v, want nil", err)
	}
}

func TestRelease(t *testing.T) {
	for _, memory := range []int64{0, 1} {
		j := newJournal(t, Config{ExecMemory: memory})
		j.Append(Stdout, []byte("abc"))
		waited := make(chan error)
		go func() { waited <- j.Wait(context.Background(), 3) }()
		j.Release()
		j.Release()
		if err := <-waited; err != ErrReleased {
			t.Errorf("Wait = %v, want ErrReleased", err)
		}
		j.Append(Stdout, []byte("d"))
		if _, _, err := j.Read(0, 10); err != ErrReleased {
			t.Errorf("Read: %v, want ErrReleased", err)
		}
		if _, _, _, err := j.HeadTail(Stdout, 1, 1); err != ErrReleased {
			t.Errorf("HeadTail: %v, want ErrReleased", err)
		}
		if j.Size() != 3 || j.Total(Stdout) != 3 || j.FirstHeld(0) != 3 || !j.Closed() {
			t.Errorf("Size %d, Total %d, FirstHeld %d, Closed %v", j.Size(), j.Total(Stdout), j.FirstHeld(0), j.Closed())
		}
	}
}

// The cost of ten thousand retained commands.
func TestSmallJournalsAreCheap(t *testing.T) {
	const n = 10_000
	text := []byte(strings.Repeat("x", 100))
	tests := []struct {
		name  string
		fill  func(*Journal)
		bound int64
	}{
		{"empty", func(*Journal) {}, 300},
		{"100 bytes", func(j *Journal) { j.Append(Stdout, text); j.Close() }, 450},
		{"5000 bytes in pieces", func(j *Journal) {
			for range 50 {
				j.Append(Stdout, text)
			}
			j.Close()
		}, 6000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t, Config{})
			keep := make([]*Journal, n)
			goroutines := runtime.NumGoroutine()
			before := heap()
			for i := range keep {
				keep[i] = s.New()
				tt.fill(keep[i])
			}
			each := (heap() - before) / n
			t.Logf("%d bytes each", each)
			if each > tt.bound {
				t.Errorf("%d bytes each, want at most %d", each, tt.bound)
			}
			if got := s.Stats(); got.SpilledBytes != 0 || got.Journals != n || runtime.NumGoroutine() > goroutines {
				t.Errorf("%+v and %d more goroutines", got, runtime.NumGoroutine()-goroutines)
			}
			runtime.KeepAlive(keep)
		})
	}
}

func heap() int64 {
	// A second collection frees what pools kept through the first.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestHeadTailAllocatesItsResultOnly(t *testing.T) {
	j := newJournal(t, Config{})
	appendAll(j, []input{{Stdout, "abc"}, {Stderr, "12"}, {Stdout, "def"}})
	got := testing.AllocsPerRun(100, func() {
		if _, _, _, err := j.HeadTail(Stdout, 2, 2); err != nil {
			t.Fatal(err)
		}
	})
	if got > 1 {
		t.Errorf("%v allocations, want 1", got)
	}
}

func TestStats(t *testing.T) {
	s := newStore(t, Config{ExecMemory: 20})
	j, k := s.New(), s.New()
	defer j.Release()
	defer k.Release()
	j.Append(Stdout, []byte("abc"))
	k.Append(Stderr, bytes.Repeat([]byte("z"), 50))
	want := Stats{SpilledBytes: 50, CapturedBytes: 53, Journals: 2}
	if diff := cmp.Diff(want, s.Stats(), cmpopts.IgnoreFields(Stats{}, "MemoryBytes")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
