package api

import "testing"

func TestStatus(t *testing.T) {
	code := func(n int) *int { return &n }
	for _, c := range []struct {
		r         ExecResult
		status    string
		code      int
		succeeded bool
		running   bool
	}{
		{ExecResult{State: ExecRunning, Outcome: OutcomeRunning}, "running", -1, false, true},
		{ExecResult{State: ExecQueued, Outcome: OutcomeRunning}, "running", -1, false, true},
		{ExecResult{State: ExecExited, Outcome: OutcomeExited, ExitCode: code(0)}, "exit 0", 0, true, false},
		{ExecResult{State: ExecExited, Outcome: OutcomeExited, ExitCode: code(2)}, "exit 2", 2, false, false},
		{ExecResult{State: ExecExited, Outcome: OutcomeShellExited, ExitCode: code(0)}, "shell_exited, exit 0", 0, true, false},
		{ExecResult{State: ExecExited, Outcome: OutcomeTimedOut, ExitCode: code(143)}, "timed_out, exit 143", 143, false, false},
		{ExecResult{State: ExecExited, Outcome: OutcomeTimedOut, ExitCode: code(0)}, "timed_out, exit 0", 0, false, false},
		{ExecResult{State: ExecExited, Outcome: OutcomeShellDied}, "shell_died", -1, false, false},
	} {
		if got := c.r.Status(); got != c.status {
			t.Errorf("status %q, want %q", got, c.status)
		}
		if c.r.Code() != c.code || c.r.Succeeded() != c.succeeded || c.r.Running() != c.running {
			t.Errorf("%s: code %d, succeeded %v, running %v", c.status, c.r.Code(), c.r.Succeeded(), c.r.Running())
		}
	}
}
