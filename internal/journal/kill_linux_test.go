package journal

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// kills returns how many owners a test kills.
func kills(n int) int {
	if os.Getenv("TRL_LONG") != "" {
		return 5 * n
	}
	return n
}

// checkStream checks that j holds the bytes of st that the writer wrote,
// completely unless a gap says what is missing.
func checkStream(t *testing.T, j *Journal, st Stream, wr *writer) {
	t.Helper()
	n, want := wr.end(t)
	if got := j.Total(st); got != n {
		t.Fatalf("%d bytes of stream %d, %d were written", got, st, n)
	}
	src, sum := newSource(wr.seed), sha256.New()
	buf, made := make([]byte, maxRead), make([]byte, maxRead)
	whole := true
	for at := int64(0); at < j.Size(); {
		chunks, next, err := j.ReadInto(at, buf)
		if err != nil {
			t.Fatal(err)
		}
		for _, chunk := range chunks {
			if chunk.Gap > 0 {
				whole = false
				if j.Total(st) != j.Size() {
					t.Fatalf("a gap of %d in two streams, which can't be checked", chunk.Gap)
				}
				_, _ = io.CopyN(io.Discard, src.rnd, chunk.Gap)
			}
			if chunk.Gap > 0 || chunk.Stream != st {
				continue
			}
			p := made[:len(chunk.Data)]
			_, _ = src.rnd.Read(p)
			if !bytes.Equal(p, chunk.Data) {
				t.Fatalf("bytes of stream %d differ between %d and %d of %d", st, chunk.Offset, chunk.End(), j.Size())
			}
			sum.Write(chunk.Data)
		}
		at = next
	}
	if got := fmt.Sprintf("%x", sum.Sum(nil)); whole && got != want {
		t.Errorf("sum %s, want %s", got, want)
	}
}

// maxOwnerLife is the longest that an owner runs before it is killed at random,
// including its start.
const maxOwnerLife = 50 * time.Millisecond

func TestMustKeepAKilledOwnersBytes(t *testing.T) {
	large := Config{ExecMemory: 64 << 10, ExecQuota: 4 << 30, TotalQuota: 8 << 30}
	const all = 1 << 30
	tests := []struct {
		name       string
		sc         scenario
		kills      int
		most, step int
	}{
		{"pipe", scenario{cfg: large}, 60, all, 100_000},
		{"terminal", scenario{cfg: large, terminal: true}, 60, all, 5000},
		{"two pipes", scenario{cfg: large, both: true}, 60, all, 100_000}, // in steps large enough for the index
		{"memory", scenario{cfg: Config{ExecMemory: 512 << 20, ExecQuota: 4 << 30, TotalQuota: 8 << 30}}, 20, all, 20_000},
		{"ring", scenario{cfg: Config{ExecMemory: 64 << 10, ExecQuota: 300_001, TotalQuota: 8 << 30}}, 20, all, 50_000},
		{"ring in memory", scenario{cfg: Config{ExecMemory: 64 << 10, ExecQuota: 4 << 30, TotalQuota: 200_000}}, 20, all, 50_000},
		{"room comes and goes", scenario{cfg: Config{ExecMemory: 64 << 10, ExecQuota: 3_000_001, TotalQuota: 200_000}, flap: 500 * time.Microsecond}, 20, all, 50_000},
		{"room comes at once", scenario{cfg: Config{ExecMemory: 64 << 10, ExecQuota: 4 << 30, TotalQuota: 200_000}, flap: 1}, 20, all, 50_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			const seed = 1
			var h *harness
			var writers []*writer
			if tt.sc.terminal {
				master, slave := rawTerminal(t)
				r, w := pipeFiles(t)
				h = newHarness(t, "owner", tt.sc, master, r, w)
				writers = append(writers, startWriter(t, slave, seed, tt.most, tt.step))
			} else {
				r, w := pipeFiles(t)
				files := []*os.File{r}
				writers = append(writers, startWriter(t, w, seed, tt.most, tt.step))
				if tt.sc.both {
					r, w := pipeFiles(t)
					files = append(files, r)
					writers = append(writers, startWriter(t, w, seed+1, tt.most, tt.step))
				}
				h = newHarness(t, "owner", tt.sc, files...)
			}
			rnd := rand.New(rand.NewPCG(seed, 2))
			for range kills(tt.kills) {
				if h.runOwner(1 + time.Duration(rnd.Int64N(int64(maxOwnerLife)))) {
					break // everything is written
				}
			}
			for _, wr := range writers {
				wr.stop.Close()
			}
			if !h.runOwner(0) {
				t.Fatal("the last owner did not finish")
			}
			if h.crashes < tt.kills {
				t.Errorf("everything was written after %d kills, want %d", h.crashes, tt.kills)
			}
			t.Logf("%d killed", h.crashes)
			j := h.journal()
			if tt.sc.terminal {
				checkStream(t, j, TTY, writers[0])
				return
			}
			for i, wr := range writers {
				checkStream(t, j, Stream(i), wr)
			}
		})
	}
}

// Owners that die between two steps, always at the same place, lose nothing
// either.
func TestMustKeepBytesBetweenSteps(t *testing.T) {
	bounds := map[string]scenario{
		"file":           {cfg: Config{ExecMemory: 8 << 10, ExecQuota: 1 << 30, TotalQuota: 8 << 30}},
		"ring":           {cfg: Config{ExecMemory: 4 << 10, ExecQuota: 100_001, TotalQuota: 8 << 30}},
		"ring in memory": {cfg: Config{ExecMemory: 4 << 10, ExecQuota: 1 << 30, TotalQuota: 100_000}},
		"room comes":     {cfg: Config{ExecMemory: 4 << 10, ExecQuota: 600_000, TotalQuota: 100_000}, flap: 1},
	}
	ended := make([]int, points)
	for name, sc := range bounds {
		t.Run(name, func(t *testing.T) {
			for p := crashPoint(1); p < points; p++ {
				r, w := pipeFiles(t)
				wr := startWriter(t, w, 7, 1<<20, 20_000)
				sc.point = p
				h := newHarness(t, "owner", sc, r)
				done := false
				for i := 0; i < kills(6) && !done; i++ {
					h.sc.count = 1 + i%3
					done = h.runOwner(0)
				}
				ended[p] += h.crashes
				h.sc.point = 0
				if !h.runOwner(0) {
					t.Fatal("the last owner did not finish")
				}
				checkStream(t, h.journal(), Stdout, wr)
			}
		})
	}
	t.Logf("owners ended at each point: %v", ended[1:])
	for p := crashPoint(1); p < points; p++ {
		if ended[p] == 0 {
			t.Errorf("no owner ended at point %d", p)
		}
	}
}

// An owner that reads and writes does lose bytes: the tests above can fail.
func TestNaiveOwnerLosesBytes(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (r, w *os.File){"pipe": pipeFiles, "terminal": rawTerminal} {
		t.Run(name, func(t *testing.T) {
			r, w := open(t)
			out, err := openUnlinked(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			h := newHarness(t, "naive", scenario{}, r, out)
			wr := startWriter(t, w, 3, 1<<30, 100_000)
			rnd := rand.New(rand.NewPCG(3, 3))
			for i := range kills(30) {
				after := 1 + time.Duration(rnd.Int64N(int64(maxOwnerLife)))
				if h.sc.count = i % 3; h.sc.count > 0 {
					after = 0 // it kills itself: on a busy machine no other may get that far
				}
				if h.runOwner(after) {
					break
				}
			}
			wr.stop.Close()
			h.sc.count = 0
			h.runOwner(0)
			n, _ := wr.end(t)
			st, err := out.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if st.Size() >= n {
				t.Errorf("%d of %d bytes are there after %d kills: nothing was lost", st.Size(), n, h.crashes)
			}
			t.Logf("%d of %d bytes lost in %d kills", n-st.Size(), n, h.crashes)
		})
	}
}
