package must

import (
	"fmt"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	terminalBytes = 64 << 20
	terminalRate  = 0.6 // of the rate that a bare reader of a pseudo-terminal reaches
)

// TestMustReadTerminals measures how fast a command on a terminal can write.
func TestMustReadTerminals(t *testing.T) {
	command := textCommand(terminalBytes)
	gauge.Tries(t, func(t *testing.T) error {
		plain, err := drain(command, func() {})
		if err != nil {
			t.Fatal(err)
		}
		r := start(t)
		s := r.create(api.SessionCreateParams{Shell: "dash", TTY: &api.TTYSize{Rows: 24, Cols: 80}})
		began := time.Now()
		res := r.run(s, command)
		took := time.Since(began)
		// Every line is longer by a carriage return.
		if res.StdoutBytes <= terminalBytes || *res.ExitCode != 0 {
			t.Errorf("%d bytes, exit code %d", res.StdoutBytes, *res.ExitCode)
		}
		r.client.Close()
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		rate := gauge.Ratio(plain, took)
		gauge.Figures(t, "%d MiB on a terminal in %v, %.0f MiB/s = %.2f × a bare reader (%v)",
			terminalBytes>>20, took, (terminalBytes>>20)/took.Seconds(), rate, plain)
		if rate < terminalRate {
			return fmt.Errorf("%.2f × the rate of a bare reader, want at least %.1f", rate, terminalRate)
		}
		return nil
	})
}
