package journal

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkPipe measures how much of a pipe's speed is left when it ends in a
// journal: the same producer writes to cat >/dev/null, and to a journal that is
// in a file and wraps its ring, in turn. "of-cat" is the ratio of the two rates
// over all rounds.
//
//	go test ./internal/journal -run '^$' -bench Pipe -benchtime 5x
func BenchmarkPipe(b *testing.B) {
	const size = 1 << 30
	for _, bench := range []struct{ name, producer string }{
		{"zero", "head -c 1073741824 /dev/zero"},
		{"yes", "yes | head -c 1073741824"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := newStore(b, Config{})
			var cat, own time.Duration
			b.SetBytes(size)
			for range b.N {
				b.StopTimer()
				start := time.Now()
				if err := exec.Command("sh", "-c", bench.producer+" | cat >/dev/null").Run(); err != nil {
					b.Fatal(err)
				}
				cat += time.Since(start)

				j := s.New()
				b.StartTimer()
				start = time.Now()
				capture(b, j, exec.Command("sh", "-c", bench.producer))
				own += time.Since(start)
				b.StopTimer()
				if j.Size() != size || j.Lossy() != nil {
					b.Fatal(j.Size(), j.Lossy())
				}
				j.Release()
				b.StartTimer()
			}
			b.ReportMetric(cat.Seconds()/own.Seconds(), "of-cat")
		})
	}
}

// capture runs cmd with its output going to j, and waits in the runtime's
// poller as the daemon does.
func capture(b *testing.B, j *Journal, cmd *exec.Cmd) {
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	w.Close()
	conn, err := r.SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	end := error(nil)
	err = conn.Read(func(fd uintptr) bool {
		for end == nil {
			_, end = j.AppendFrom(Stdout, int(fd))
		}
		if end == unix.EAGAIN {
			end = nil
			return false
		}
		return true
	})
	if err != nil || end != io.EOF {
		b.Fatal(err, end)
	}
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkAppendFrom measures one pull of a given number of bytes, and the
// write before it. A journal in memory is a new one each time, closed and
// released, as for most commands.
func BenchmarkAppendFrom(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 64 << 10} {
		for _, memory := range []bool{true, false} {
			if memory && size == 64<<10 {
				continue // does not fit
			}
			name := fmt.Sprintf("%d/file", size)
			if memory {
				name = fmt.Sprintf("%d/memory", size)
			}
			b.Run(name, func(b *testing.B) {
				p := make([]byte, size)
				fd, w := pipe(b)
				to := int(w.Fd())
				cfg := Config{}
				if !memory {
					cfg.ExecMemory, cfg.ExecQuota = 1, 16<<20
				}
				s := newStore(b, cfg)
				j := s.New()
				b.SetBytes(int64(size))
				for range b.N {
					if n, err := unix.Write(to, p); n != size || err != nil {
						b.Fatal(n, err)
					}
					for pulled := 0; pulled < size; { // the end of the ring splits a pull
						n, err := j.AppendFrom(Stdout, fd)
						if err != nil {
							b.Fatal(err)
						}
						pulled += n
					}
					if memory {
						j.Close()
						j.Release()
						j = s.New()
					}
				}
				j.Release()
			})
		}
	}
}

// BenchmarkAppend measures a line of output without a waiting reader.
func BenchmarkAppend(b *testing.B) {
	line := []byte("the quick brown fox jumps over the lazy dog, again and again\n")
	for _, bench := range []struct {
		name string
		cfg  Config
	}{
		{"memory", Config{ExecMemory: 1 << 40, TotalMemory: 1 << 40, ExecQuota: 1 << 42}},
		{"file", Config{ExecMemory: 1}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			j := newJournal(b, bench.cfg)
			b.SetBytes(int64(len(line)))
			for range b.N {
				j.Append(Stdout, line)
			}
		})
	}
}

// BenchmarkHeadTail measures HeadTail of a small journal, of a large one, and
// of the worst one that the bound of the index allows.
func BenchmarkHeadTail(b *testing.B) {
	for _, bench := range []struct {
		name string
		fill func(*Journal)
	}{
		{"small", func(j *Journal) { j.Append(Stdout, make([]byte, 1000)) }},
		{"100MiB", func(j *Journal) { j.Append(Stdout, make([]byte, 100<<20)) }},
		{"alternating", func(j *Journal) {
			for i := range 4 * maxRuns {
				j.Append(Stream(i%2), []byte{0})
			}
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			j := newJournal(b, Config{})
			bench.fill(j)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, _, err := j.HeadTail(Stdout, 16<<10, 16<<10); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
