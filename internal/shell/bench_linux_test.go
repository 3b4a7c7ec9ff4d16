package shell

import (
	"os"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/process"
)

// BenchmarkTrue is the bare round trip of the driver.
func BenchmarkTrue(b *testing.B) {
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			host, err := process.NewHost(process.Config{})
			if err != nil {
				b.Fatal(err)
			}
			driver, err := OpenDriver(DriverConfig{})
			if err != nil {
				b.Fatal(err)
			}
			tree, err := host.NewTree("bench")
			if err != nil {
				b.Fatal(err)
			}
			program, _ := Find(name)
			s, err := driver.Open(b.Context(), Config{Tree: tree, Program: program, Env: os.Environ()})
			if err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				if _, err := s.Run(Command{Text: "true", Stdout: os.DevNull, Stderr: os.DevNull, Mark: uint32(i%1000) + 1}); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			s.Abandon()
			tree.Kill(time.Now().Add(5 * time.Second))
			s.Close()
			driver.Close()
			host.Close()
		})
	}
}
