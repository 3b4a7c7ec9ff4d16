package limits

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// In a cell, whose limits the daemon outside enforces, a command that reaches one says
// so as in any session, and the session lives on. That the daemon died changes nothing.
func TestGuestCell(t *testing.T) {
	const memory, pids, spare = 64 << 20, 20, 64 << 20 // the spare is more than what the TRL in the cell may use
	r := start(t)
	made, err := r.client.CreateSession(t.Context(), api.SessionCreateParams{
		Shell: "dash", Limits: &api.Limits{MemoryBytes: memory, PIDs: pids}, Isolation: &api.Isolation{NoNewPrivs: true},
	})
	if err != nil {
		t.Fatal(err, api.AsError(err).Details)
	}
	s := &session{rig: r, Session: made}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.run("mark=set")
	alive := func() {
		t.Helper()
		if res := s.run("echo $mark"); res.Stdout != "set\n" || len(res.LimitHit) > 0 || res.Outcome != api.OutcomeExited {
			t.Errorf("the session afterwards: %+v", res)
		}
	}
	check := func(when string) {
		t.Helper()
		res := s.run(fmt.Sprintf("%s=%d %s", eatVariable, memory+spare, self))
		if res.Outcome != api.OutcomeOOMKilled || !slices.Equal(res.LimitHit, []api.Limit{api.LimitMemory}) {
			t.Errorf("%s, beyond the memory: %s, limits %v", when, res.Outcome, res.LimitHit)
		}
		if res.Usage == nil || res.Usage.MemoryPeakBytes < memory || res.Usage.MemoryPeakBytes > memory+spare {
			t.Errorf("%s: usage %+v", when, res.Usage)
		}
		alive()
	}
	check("at first")
	// The kernel must not take the TRL in the cell for what uses too much.
	if score := s.run("cat /proc/self/oom_score_adj").Stdout; score != "800\n" {
		t.Errorf("oom_score_adj of a command is %s", score)
	}
	r.restart()
	check("after the death of the daemon")
	// The subshell ends when it can't fork.
	res := s.run(`(while :; do sleep 600 & done) 2>&1`)
	if !slices.Contains(res.LimitHit, api.LimitPIDs) || res.Usage == nil || res.Usage.PIDsPeak < pids {
		t.Errorf("beyond the processes: %s, limits %v, usage %+v", res.Outcome, res.LimitHit, res.Usage)
	}
	s.end()
}
