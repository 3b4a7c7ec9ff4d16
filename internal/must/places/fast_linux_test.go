package places

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// ratios are those of a place to baselines measured in the same run.
type ratios struct {
	overLocal float64 // exec.run true in the place, over the same on the host
	underBare float64 // `docker exec` or `ssh` over a connection, over exec.run true
	stream    float64 // rate of a stream from the place, of the rate on the host
	start     float64 // first command in a place that is not running, over `docker exec` or `ssh` without a connection
}

var (
	goals = map[string]ratios{
		"docker": {overLocal: 3, underBare: 15, stream: 0.4, start: 3},
		"ssh":    {overLocal: 2.6, underBare: 20, stream: 0.4, start: 4},
	}
	// limits are what the tests hold. They differ from the goals where these are
	// missed today:
	//
	// overLocal: a command on the host wakes four processes one after the other. In a
	// place there are two more for the second daemon alone, and four by ssh and sshd;
	// docker exec adds its client, dockerd and the shim. 3.4 to 3.7 × was measured over
	// SSH, and 3.7 to 4.1 × in a container.
	//
	// stream: ssh and sshd encrypt and decrypt, on the two cores that the client and two
	// daemons use too. 0.2 to 0.4 × was measured.
	//
	// start: one docker exec starts the daemon while another waits for it as the
	// relay, so it takes as long as two of them and the start of the daemon. 2.0 to
	// 3.0 × was measured, and 0.9 to 1.4 × over SSH, which is slow to log in.
	limits = map[string]ratios{
		"docker": {overLocal: 5.5, underBare: 15, stream: 0.4, start: 4},
		"ssh":    {overLocal: 5, underBare: 15, stream: 0.15, start: 2.5},
	}
)

// enough is after how many rounds a goal may be missed: then the limit counts.
const enough = 60

// subject is a place that is measured, and what it is compared with.
type subject struct {
	runtime string
	bare    []string           // runs true there as people do, over a connection if there can be one
	cold    []string           // the same without a connection
	halt    func(t *testing.T) // stops the place's daemon
}

// haltScript stops the daemon of a place, and leaves what was delivered.
const haltScript = `for d in "$HOME"/.cache/.trl-place-*; do "$d/trl" stop --socket "$d/s.sock"; done`

// subjects returns the places by their kind.
func subjects(t *testing.T) map[string]subject {
	t.Helper()
	e := engines.Docker(t)
	name := e.Container(t, engines.Debian)
	sshd := engines.SSHD(t)
	host := engines.Guest + "@" + engines.SSHHost
	master := []string{"ssh", "-o", "BatchMode=yes", "-S", filepath.Join(t.TempDir(), "master")}
	up := exec.Command(master[0], append(master[1:], "-M", "-N", "-f", host)...)
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command(master[0], append(master[1:], "-O", "exit", host)...).Run() })
	return map[string]subject{
		"docker": {
			runtime: "docker:" + name, bare: []string{"docker", "exec", name, "true"}, cold: []string{"docker", "exec", name, "true"},
			halt: func(t *testing.T) { e.Run(t, "exec", name, "sh", "-c", haltScript) },
		},
		"ssh": {
			runtime: guest, bare: append(master, host, "true"), cold: []string{"ssh", "-o", "BatchMode=yes", host, "true"},
			halt: func(t *testing.T) {
				if _, err := sshd.Try(engines.Guest, "", haltScript); err != nil {
					t.Fatal(err)
				}
			},
		},
	}
}

func command(argv []string) func() error {
	return func() error {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(cmd.Environ(), engines.Env()...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", argv, err, out)
		}
		return nil
	}
}

// TestMustReachPlacesFast compares places with the host, and with what people use
// instead.
func TestMustReachPlacesFast(t *testing.T) {
	of := subjects(t)
	for _, kind := range []string{"docker", "ssh"} {
		t.Run(kind, func(t *testing.T) {
			r := start(t, "")
			t.Run("latency", func(t *testing.T) { placeLatency(t, r, of[kind], goals[kind], limits[kind]) })
			t.Run("stream", func(t *testing.T) {
				gauge.Tries(t, func(t *testing.T) error { return placeStream(t, r, of[kind], goals[kind], limits[kind]) })
			})
			t.Run("start", func(t *testing.T) { placeStart(t, r, of[kind], goals[kind], limits[kind]) })
			r.remove(of[kind].runtime)
			r.stop()
		})
	}
}

// placeLatency measures commands one after the other.
func placeLatency(t *testing.T, r *rig, s subject, goal, limit ratios) {
	local, there := r.runs(""), r.runs(s.runtime)
	bare := &gauge.Series{N: 2, Do: command(s.bare)}
	var over, under float64
	for i := range gauge.Rounds {
		if err := errors.Join(local.Round(), there.Round(), bare.Round()); err != nil {
			t.Fatal(err)
		}
		over, under = gauge.Ratio(there.Best, local.Best), gauge.Ratio(bare.Best, there.Best)
		if meets := func(r ratios) bool { return over <= r.overLocal && under >= r.underBare }; i >= gauge.RoundsLeast && meets(goal) || i >= enough && meets(limit) {
			break
		}
	}
	gauge.Figures(t, "exec.run true p50 %v (in all rounds %v) = %.2f × on the host (%v), %.1f × faster than %s (%v); the goals are %.1f and %.0f",
		there.Best, gauge.Median(there.All), over, local.Best, under, s.bare[0], bare.Best, goal.overLocal, goal.underBare)
	if over > limit.overLocal || under < limit.underBare {
		t.Errorf("exec.run true is %.2f × the host, want at most %.1f, and %.1f × faster than %v, want at least %.1f",
			over, limit.overLocal, under, s.bare, limit.underBare)
	}
}

// streamBytes is how much is streamed: more does not change the rate, and takes long
// over SSH.
func streamBytes() int64 {
	if long {
		return 256 << 20
	}
	return 64 << 20
}

// placeStream measures how fast a client receives what a command writes.
func placeStream(t *testing.T, r *rig, s subject, goal, limit ratios) error {
	size := streamBytes()
	took := map[string]time.Duration{}
	for range 3 {
		for _, runtime := range []string{"", s.runtime} {
			d := r.stream(runtime, size)
			if best, ok := took[runtime]; !ok || d < best {
				took[runtime] = d
			}
		}
	}
	of := gauge.Ratio(took[""], took[s.runtime])
	rate := func(d time.Duration) float64 { return float64(size>>20) / d.Seconds() }
	gauge.Figures(t, "%d MiB streamed at %.0f MiB/s = %.2f × on the host (%.0f MiB/s); the goal is %.1f", size>>20, rate(took[s.runtime]), of, rate(took[""]), goal.stream)
	if of < limit.stream {
		return fmt.Errorf("a stream has %.2f × the rate on the host, want at least %.2f", of, limit.stream)
	}
	return nil
}

// stream returns how long it takes to stream so many bytes.
func (r *rig) stream(runtime string, size int64) time.Duration {
	r.t.Helper()
	s := r.create(api.SessionCreateParams{Runtime: runtime, Shell: "dash"})
	began := time.Now()
	st, err := r.client.Stream(r.t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{
		SessionID: s.SessionID, Command: fmt.Sprintf("yes 'a line of text, as a build prints them' | head -c %d", size),
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	var got int64
	for chunk, err := range st.Chunks() {
		if err != nil {
			r.t.Fatal(err)
		}
		got += int64(len(chunk.Data))
	}
	took := time.Since(began)
	if got != size {
		r.t.Errorf("%d bytes, want %d", got, size)
	}
	r.call(api.MethodSessionDestroy, api.SessionDestroyParams{SessionID: s.SessionID, Force: true}, nil)
	return took
}

const startRoundsLeast, startRounds = 3, 12

// placeStart measures the first command in a place that has the program, but no
// daemon, and to which nothing is connected: from the call of session.create to the
// answer of exec.run.
func placeStart(t *testing.T, r *rig, s subject, goal, limit ratios) {
	r.create(api.SessionCreateParams{Runtime: s.runtime}) // delivers
	first := &gauge.Series{N: 1, Do: func() error {
		created, err := r.client.CreateSession(t.Context(), api.SessionCreateParams{Runtime: s.runtime, Shell: "dash"})
		if err == nil {
			_, err = r.client.Run(t.Context(), runParams(created.SessionID, "true"))
		}
		return err
	}}
	bare := &gauge.Series{N: 3, Do: command(s.cold)}
	var over float64
	for i := range startRounds {
		r.again()
		s.halt(t)
		if err := errors.Join(bare.Round(), first.Round()); err != nil {
			t.Fatal(err)
		}
		if over = gauge.Ratio(first.Best, bare.Best); i >= startRoundsLeast && over <= goal.start {
			break
		}
	}
	gauge.Figures(t, "the first command after %v (in all rounds %v) = %.2f × %s (%v); the goal is %.1f",
		first.Best, gauge.Median(first.All), over, s.cold[0], bare.Best, goal.start)
	if over > limit.start {
		t.Errorf("the first command takes %.2f × as long as %v, want at most %.1f", over, s.cold, limit.start)
	}
}
