package journal

import (
	"math"
	"testing"
)

// Offsets and sizes come from clients: no value must cause a panic, an
// unbounded allocation, or a reader to miss or repeat a byte.
func FuzzRead(f *testing.F) {
	for _, offset := range []int64{0, -1, 3, 40, 99, 100, 101, math.MaxInt64, math.MinInt64} {
		for _, limit := range []int{0, 1, -1, 50, math.MaxInt, math.MinInt} {
			f.Add(offset, limit, limit, uint8(offset))
		}
	}
	var js []*Journal
	for _, cfg := range []Config{{}, {ExecMemory: 1}, {ExecQuota: 40}, {TotalQuota: 30, ExecMemory: 1}} {
		cfg.Dir = f.TempDir()
		s := NewStore(cfg)
		s.tailMemory = 20
		j := s.New()
		f.Cleanup(j.Release)
		for i := range 100 {
			j.Append(Stream(i/7%2), []byte{byte(i)})
		}
		js = append(js, j)
	}
	f.Fuzz(func(t *testing.T, offset int64, limit, tail int, which uint8) {
		j := js[int(which)%len(js)]
		chunks, next, err := j.Read(offset, limit)
		if err != nil {
			t.Fatal(err)
		}
		at := clamp(offset, 0, never)
		if len(chunks) == 0 && at < j.Size() {
			t.Fatalf("no chunks at %d", at)
		}
		for _, chunk := range chunks {
			if chunk.Offset != at {
				t.Fatalf("chunk at %d, want %d", chunk.Offset, at)
			}
			for i, b := range chunk.Data {
				if b != byte(at)+byte(i) {
					t.Fatalf("wrong byte at %d", at+int64(i))
				}
			}
			at = chunk.End()
		}
		if next != at {
			t.Fatalf("next = %d, want %d", next, at)
		}
		if first := j.FirstHeld(offset); first < 0 || first > j.Size() {
			t.Fatalf("FirstHeld = %d", first)
		}
		h, tl, omitted, err := j.HeadTail(Stdout, limit, tail)
		if err != nil || int64(len(h)+len(tl))+omitted != j.Total(Stdout) {
			t.Fatalf("HeadTail: %d, %d, %d, %v", len(h), len(tl), omitted, err)
		}
	})
}
