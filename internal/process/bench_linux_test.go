package process

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/pty"
)

// BenchmarkStart measures each way to start a process, until it is tracked.
func BenchmarkStart(b *testing.B) {
	h, err := NewHost(Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	tree, err := h.NewTree("bench")
	if err != nil {
		b.Fatal(err)
	}
	defer tree.Kill(time.Now().Add(10 * time.Second))
	master, slave, err := pty.Open(pty.Size{Rows: 24, Cols: 80})
	if err != nil {
		b.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	term, err := tree.NewTerminal(slave)
	if err != nil {
		b.Fatal(err)
	}
	defer term.Close()
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(null)
	spec := Spec{Path: "/bin/sleep", Argv: []string{"sleep", "1000"}, Env: os.Environ(), Files: [3]int{null, null, null}}
	for _, way := range []struct {
		name  string
		start func(Spec) (*Proc, error)
	}{{"direct", func(s Spec) (*Proc, error) { return tree.fork(s) }}, {"gated", tree.startGated}, {"terminal", term.Start}} {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				p, err := way.start(spec)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				p.Signal(unix.SIGKILL)
				<-p.Done()
				b.StartTimer()
			}
		})
	}
}
