package vt

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// The memory of a typical screen, full of everything but links.
func TestMustStaySmall(t *testing.T) {
	const n = 20
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	screens := make([]*Screen, 0, n)
	before := heap()
	for range n {
		screens = append(screens, New(Config{Rows: 40, Cols: 120, Scrollback: 1000}))
	}
	idle := (heap() - before) / n
	out := slices.Concat([]byte("\x1b[?1049h"), bytes.Repeat([]byte("x"), 5000), []byte("\x1b[?1049l"))
	for i := range 1200 {
		out = fmt.Appendf(out, "\x1b[38;2;%d;%d;7m%s\r\n", i%256, i/256, strings.Repeat("x", 119))
	}
	for _, s := range screens {
		s.Write(out)
	}
	full := (heap() - before) / n
	t.Logf("idle %d kB, full %d kB", idle>>10, full>>10)
	if idle > 128<<10 || full > 3<<20 {
		t.Error("too much memory")
	}
	runtime.KeepAlive(screens)
}

// Printing does not allocate.
func TestMustNotAllocate(t *testing.T) {
	s := New(Config{Rows: 24, Cols: 80, Scrollback: 100})
	out := bytes.Repeat([]byte("\x1b[32mINFO\x1b[0m plain text 日本 \x1b[38;5;208mthat\x1b[m goes by\r\n"), 200)
	s.Write(out) // fills the scrollback
	if n := testing.AllocsPerRun(20, func() { s.Write(out) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// 40 MB/s of plain text is more than any program writes and any pipe carries to a
// terminal; it is a tenth of what an idle machine reaches.
func TestMustBeFast(t *testing.T) {
	// Pieces are shorter than a time slice: some of them are not interrupted,
	// even on a busy machine.
	data := bytes.Repeat([]byte(strings.Repeat("lorem ipsum ", 8)+"\r\n"), 1000)
	s := New(Config{Rows: 24, Cols: 80, Scrollback: 1000})
	best := 0.0
	for range 200 {
		start := time.Now()
		s.Write(data)
		best = max(best, float64(len(data))/1e6/time.Since(start).Seconds())
	}
	t.Logf("%.0f MB/s", best)
	if best < 40 {
		t.Errorf("only %.1f MB/s", best)
	}
}

func BenchmarkWrite(b *testing.B) {
	recordings := corpus(b)
	for name, data := range map[string][]byte{
		"plain": bytes.Repeat([]byte(strings.Repeat("lorem ipsum ", 8)+"\r\n"), 2000),
		"sgr":   bytes.Repeat([]byte("\x1b[32mINFO\x1b[0m \x1b[1;34mpkg\x1b[0m message number \x1b[38;5;208m42\x1b[0m done\r\n"), 2000),
		"wide":  bytes.Repeat([]byte("日本語のテキスト, 漢字\r\n"), 2000),
		"vim":   bytes.Repeat(recordings["real-vim-edit"], 10),
		"top":   bytes.Repeat(recordings["real-top"], 8),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			s := New(Config{Rows: 24, Cols: 80, Scrollback: 1000})
			for b.Loop() {
				for piece := range slices.Chunk(data, 4096) {
					s.Write(piece)
				}
			}
		})
	}
}
