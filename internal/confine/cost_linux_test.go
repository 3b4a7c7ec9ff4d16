//go:build linux && (amd64 || arm64)

package confine

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// startRatio bounds how much longer a start with all mechanisms takes than one
// through a launcher that does nothing but execute the program. It was 2 when it
// was chosen, on a kernel in a virtual machine.
const startRatio = 6

func TestStartCost(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		plain := script("")
		plain.NoNewPrivs = true
		confined := script("")
		confined.Files, confined.Network = &Files{PrivateTmp: true}, NetworkLoopback
		confined.Processes, confined.NoNewPrivs, confined.Seccomp = true, true, true
		confined.OpenFiles, confined.OOMScoreAdj = 1024, 500
		if os.Getuid() == 0 {
			confined.User = &User{UID: testUser, GID: testUser}
		}
		median := func(s Spec) time.Duration {
			var took []time.Duration
			for range 9 {
				began := time.Now()
				run(t, s)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			return took[len(took)/2]
		}
		trltest.Undisturbed(t, func() error {
			without, with := median(plain), median(confined)
			t.Logf("%s without, %s with all mechanisms", without.Round(time.Microsecond), with.Round(time.Microsecond))
			if with > startRatio*without {
				return fmt.Errorf("a confined start takes %s, a plain one %s", with, without)
			}
			return nil
		})
	})
}
