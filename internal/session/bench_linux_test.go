package session

import (
	"os/exec"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// BenchmarkTrue compares a command through the pool with a new shell for each.
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
