package must

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	floodBytes  = 1 << 30
	floodRate   = 0.5      // of the rate that the same command reaches through a pipe into cat
	floodMemory = 64 << 20 // the daemon must not grow by more than this meanwhile
)

// flood captures a gigabyte. It was seen to fail with a command that writes half
// as much, and with goals of 1.5 × cat and 100 KiB.
func flood(t *testing.T, command string) error {
	r := start(t)
	s := r.create(api.SessionCreateParams{Shell: "dash"})
	r.run(s, "head -c 10000000 /dev/zero") // buffers are allocated once
	plain := timeCat(t, command)

	before := r.stats().Memory
	var res *api.ExecResult
	var took time.Duration
	p := r.peakMemory(func() {
		began := time.Now()
		res = r.run(s, command)
		took = time.Since(began)
	})
	if res.StdoutBytes != floodBytes || !res.Truncated {
		t.Errorf("captured %d bytes (truncated %t), want %d", res.StdoutBytes, res.Truncated, floodBytes)
	}
	r.client.Close()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	speed, grown := gauge.Ratio(plain, took), p.bytes-before
	gauge.Figures(t, "1 GiB of `%s` in %v, %.0f MiB/s = %.2f × through cat (%v); the daemon grew by %.1f MiB (%d samples)",
		command, took.Round(time.Millisecond), floodBytes/took.Seconds()/(1<<20), speed, plain.Round(time.Millisecond),
		float64(grown)/(1<<20), p.samples)
	if speed < floodRate || grown > floodMemory {
		return fmt.Errorf("captured at %.2f × the rate of cat, want at least %.1f; the daemon grew by %d bytes, want at most %d",
			speed, floodRate, grown, floodMemory)
	}
	return nil
}

// peak is the largest memory use of a daemon in a number of samples.
type peak struct {
	bytes   int64
	samples int
	err     error
}

// peakMemory samples the daemon's memory while fn runs.
func (r *rig) peakMemory(fn func()) peak {
	r.t.Helper()
	conn := r.dial()
	defer conn.Close()
	done, sampled := make(chan struct{}), make(chan peak, 1)
	go func() {
		var p peak
		for p.err == nil {
			var st *api.SystemStats
			if st, p.err = conn.Stats(r.ctx); p.err == nil {
				p.bytes = max(p.bytes, st.Memory)
				p.samples++
			}
			select {
			case <-done:
				sampled <- p
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		sampled <- p
	}()
	fn()
	close(done)
	p := <-sampled
	if p.err != nil {
		r.t.Fatal(p.err)
	}
	return p
}

// timeCat returns how long a command takes whose output is discarded.
func timeCat(t *testing.T, command string) time.Duration {
	t.Helper()
	began := time.Now()
	if out, err := exec.Command("sh", "-c", command+" | cat >/dev/null").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return time.Since(began)
}
