package journal

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
)

// byteAt and streamAt are what the journals of these tests hold at an offset.
func byteAt(offset int64) byte {
	x := uint64(offset) * 0x9e3779b97f4a7c15
	return byte(x >> 56)
}

func streamAt(offset int64) Stream { return Stream(offset / 700 % 2) }

// Readers that a small ring constantly overtakes see correct bytes or a gap,
// never bytes of another offset.
func TestOvertakenReaders(t *testing.T) {
	const size = 4 << 20
	j := newJournal(t, Config{ExecMemory: 1, ExecQuota: 64 << 10})
	var wg sync.WaitGroup
	for r := range 20 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(r)))
			for at, gaps := int64(0), 0; ; {
				if err := j.Wait(t.Context(), at); err != nil {
					t.Error(err)
					return
				}
				chunks, next, err := j.Read(at, 1+rnd.IntN(40<<10))
				if err != nil {
					t.Error(err)
					return
				}
				if len(chunks) == 0 {
					if at != size {
						t.Errorf("end at %d, want %d", at, size)
					}
					return
				}
				for _, chunk := range chunks {
					if chunk.Offset != at {
						t.Errorf("chunk at %d, want %d", chunk.Offset, at)
						return
					}
					if chunk.Gap > 0 {
						gaps++
					}
					for i, b := range chunk.Data {
						if o := at + int64(i); b != byteAt(o) || chunk.Stream != streamAt(o) {
							t.Errorf("wrong byte at %d after %d gaps", o, gaps)
							return
						}
					}
					at = chunk.End()
				}
				if at != next {
					t.Errorf("next = %d, want %d", next, at)
					return
				}
				if r%4 == 0 {
					checkEnds(t, j, rnd.IntN(50<<10), rnd.IntN(50<<10))
				}
				if r%5 == 0 {
					at = max(at-int64(rnd.IntN(30<<10)), 0) // some go back, as a second client does
				}
				if r%5 == 0 && j.Closed() {
					return
				}
			}
		})
	}
	p := make([]byte, 700)
	for at := int64(0); at < size; {
		n := min(700-at%700, size-at)
		for i := range p[:n] {
			p[i] = byteAt(at + int64(i))
		}
		j.Append(streamAt(at), p[:n])
		at += n
	}
	j.Close()
	wg.Wait()
}

// checkEnds checks that the bytes HeadTail returns for stdout are its first,
// and that its last are consecutive: their offset is not known.
func checkEnds(t *testing.T, j *Journal, head, tail int) {
	before := j.Total(Stdout)
	h, tl, omitted, err := j.HeadTail(Stdout, head, tail)
	if err != nil {
		t.Error(err)
		return
	}
	// The n-th byte of stdout is at this offset.
	at := func(n int64) int64 { return n/700*1400 + n%700 }
	for i, b := range h {
		if b != byteAt(at(int64(i))) {
			t.Errorf("head differs at %d of %d", i, len(h))
			return
		}
	}
	total := int64(len(h)) + omitted + int64(len(tl))
	if total < before {
		t.Errorf("%d bytes accounted for, want at least %d", total, before)
	}
	for i, b := range tl {
		if n := total - int64(len(tl)) + int64(i); b != byteAt(at(n)) {
			t.Errorf("tail differs at %d of %d", i, len(tl))
			return
		}
	}
}

// Two pumps pull from real pipes and twenty readers of different speed follow.
// Every eight bytes contain their stream and a sequence number: the bounds are
// multiples of eight, so a reader never sees a partial record.
func TestPumpsAndReaders(t *testing.T) {
	const records = 200_000
	j := newJournal(t, Config{ExecMemory: 8 << 10, ExecQuota: 1 << 20})
	var readers, pumps sync.WaitGroup
	for _, st := range []Stream{Stdout, Stderr} {
		fd, w := pipe(t)
		pumps.Go(func() {
			if err := pump(j, st, fd); err != nil {
				t.Error(err)
			}
		})
		pumps.Go(func() { writeRecords(w, st, records) })
	}
	for r := range 20 {
		readers.Go(func() {
			if err := followRecords(t, j, 8*(1+r*r*r), records); err != nil {
				t.Errorf("reader %d: %v", r, err)
			}
		})
	}
	pumps.Wait()
	j.Close()
	readers.Wait()
	if got := j.Size(); got != 2*8*records {
		t.Errorf("Size = %d, want %d", got, 2*8*records)
	}
}

func writeRecords(w io.WriteCloser, st Stream, n uint64) {
	defer w.Close()
	rnd := rand.New(rand.NewPCG(2, uint64(st)))
	var buf []byte
	for i := range n {
		buf = binary.LittleEndian.AppendUint64(buf, i<<8|uint64(st))
		if rnd.IntN(1000) == 0 || i == n-1 {
			w.Write(buf)
			buf = buf[:0]
		}
	}
}

// followRecords reads to the end, step bytes at a time, and checks that the
// records of each stream come in order, each once, and without a hole unless a
// gap was reported.
func followRecords(t *testing.T, j *Journal, step int, records uint64) error {
	var expect [2]uint64
	gap := false
	for at := int64(0); ; {
		if err := j.Wait(t.Context(), at); err != nil {
			return err
		}
		chunks, next, err := j.Read(at, step)
		if err != nil {
			return err
		}
		if len(chunks) == 0 {
			break
		}
		for _, chunk := range chunks {
			gap = gap || chunk.Gap > 0
			for b := chunk.Data; len(b) > 0; b = b[8:] {
				rec := binary.LittleEndian.Uint64(b)
				st, n := Stream(rec&0xff), rec>>8
				if st != chunk.Stream || n < expect[st] || n > expect[st] && !gap {
					return errors.New("record out of order")
				}
				expect[st] = n + 1
			}
		}
		at = next
	}
	if !gap && (expect[0] != records || expect[1] != records) {
		return errors.New("records are missing and no gap was reported")
	}
	return nil
}

// Release is safe while pumps and readers are running.
func TestReleaseBesideAll(t *testing.T) {
	for range 20 {
		j := newJournal(t, Config{ExecMemory: 1 << 10, ExecQuota: 100 << 10})
		fd, w := pipe(t)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer w.Close()
			for range 50 {
				w.Write(make([]byte, 10_000))
			}
		})
		wg.Go(func() {
			if err := pump(j, Stdout, fd); err != nil {
				t.Error(err)
			}
		})
		for range 4 {
			wg.Go(func() {
				for at := int64(0); ; {
					err := j.Wait(t.Context(), at)
					if err == nil {
						_, at, err = j.Read(at, 5000)
					}
					if err == nil {
						_, _, _, err = j.HeadTail(Stdout, 100, 5000)
					}
					if err == ErrReleased {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		if err := j.Wait(t.Context(), 150_000); err != nil {
			t.Error(err)
		}
		j.Release()
		wg.Wait()
		if got := j.store.Stats(); got.MemoryBytes != 0 || got.SpilledBytes != 0 {
			t.Errorf("%+v", got)
		}
	}
}
