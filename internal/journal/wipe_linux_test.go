package journal

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A segment contains nothing of its last journal: the keeper has a copy, which
// every later command can open.
func TestLiveSegmentsAreWiped(t *testing.T) {
	const canary = "canary-4711 "
	for name, c := range map[string]struct {
		cfg   Config
		bytes int
	}{
		"short":   {Config{}, 100},
		"full":    {Config{ExecMemory: 64 << 10}, 64 << 10},
		"spilled": {Config{ExecMemory: 4 << 10}, 100_000},
		"ring":    {Config{ExecMemory: 4 << 10, ExecQuota: 10_000}, 100_000},
		"stopped": {Config{ExecMemory: 4 << 10, TotalQuota: 1}, 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, c.cfg)
			for round, leave := range []func(*Journal){(*Journal).Release, (*Journal).Close, (*Journal).Release} {
				j := s.New()
				at, ok := j.LiveSegment()
				if !ok {
					t.Fatal("the journal has no live segment")
				}
				fd, err := s.cfg.Keeper.Take(at.Slot)
				if err != nil {
					t.Fatal(err)
				}
				var pipe [2]int
				if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
					t.Fatal(err)
				}
				text := []byte(strings.Repeat(canary, c.bytes/len(canary)))
				for len(text) > 0 { // by splice, and by write
					n := min(len(text), 3000)
					if _, err := unix.Write(pipe[1], text[:n]); err != nil {
						t.Fatal(err)
					}
					text = text[n:]
					for moved := 0; moved < n; {
						m, err := j.AppendFrom(Stdout, pipe[0])
						if err != nil {
							t.Fatal(err)
						}
						moved += m
					}
					n = min(len(text), 3000)
					j.Append(Stderr, text[:n])
					text = text[n:]
				}
				var st unix.Stat_t
				if err := unix.Fstat(fd, &st); err != nil {
					t.Fatal(err)
				}
				mem, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Contains(mem, []byte(canary)) {
					t.Error("nothing was written to the segment")
				}
				leave(j)
				if n := bytes.Count(mem, []byte("4711")); n > 0 {
					t.Errorf("round %d: the output is there %d times", round, n)
				}
				j.Release()
				for _, fd := range []int{fd, pipe[0], pipe[1]} {
					_ = unix.Close(fd)
				}
				_ = unix.Munmap(mem)
			}
		})
	}
}
