package session

import (
	"os/exec"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// BenchmarkTrue is a command through the pool, and a new shell for each beside
// it.
func BenchmarkTrue(b *testing.B) {
	b.Run("session", func(b *testing.B) {
		p := newPool(b, Config{})
		s := create(b, p, api.SessionCreateParams{Shell: "dash"})
		for b.Loop() {
			sh(b, p, s, "true")
		}
	})
	b.Run("fork-exec", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/sh", "-c", "true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
