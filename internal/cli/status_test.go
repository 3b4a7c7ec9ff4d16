package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/daemon"
)

func TestCommandStatus(t *testing.T) {
	code := func(n int) *int { return &n }
	for name, c := range map[string]struct {
		result api.ExecResult
		want   int
	}{
		"success":              {api.ExecResult{Outcome: api.OutcomeExited, ExitCode: code(0)}, 0},
		"exit 3":               {api.ExecResult{Outcome: api.OutcomeExited, ExitCode: code(3)}, 3},
		"ended its shell":      {api.ExecResult{Outcome: api.OutcomeShellExited, ExitCode: code(255)}, 255},
		"killed":               {api.ExecResult{Outcome: api.OutcomeSignaled, ExitCode: code(137), Signal: "SIGKILL"}, 137},
		"killed, no code":      {api.ExecResult{Outcome: api.OutcomeSignaled, Signal: "SIGINT"}, 130},
		"timed out":            {api.ExecResult{Outcome: api.OutcomeTimedOut, TimedOut: true, ExitCode: code(143)}, 124},
		"cancelled":            {api.ExecResult{Outcome: api.OutcomeCancelled, Cancelled: true, ExitCode: code(137)}, 137},
		"cancelled, claims 0":  {api.ExecResult{Outcome: api.OutcomeCancelled, Cancelled: true, ExitCode: code(0)}, 143},
		"cancelled, never ran": {api.ExecResult{Outcome: api.OutcomeCancelled, Cancelled: true}, 143},
		"shell lost":           {api.ExecResult{Outcome: api.OutcomeShellDied}, 125},
	} {
		if got := commandStatus(&c.result); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestEnding(t *testing.T) {
	three := 3
	for want, e := range map[string]api.ExecResult{
		"running":                 {State: api.ExecRunning},
		"queued":                  {State: api.ExecQueued},
		"exit 3":                  {State: api.ExecExited, Outcome: api.OutcomeExited, ExitCode: &three},
		"exit 3, ended its shell": {State: api.ExecExited, Outcome: api.OutcomeShellExited, ExitCode: &three},
		"killed by SIGKILL":       {State: api.ExecExited, Outcome: api.OutcomeSignaled, Signal: "SIGKILL"},
		"timed out":               {State: api.ExecExited, Outcome: api.OutcomeTimedOut},
		"cancelled":               {State: api.ExecExited, Outcome: api.OutcomeCancelled},
	} {
		if got := outcomeText(&e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// invoke runs a command line in this process. Nothing listens on its socket.
func invoke(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	dir := t.TempDir()
	a := &app{
		stdin: strings.NewReader(""), stdout: &out, stderr: &err,
		environment: daemon.Environment{Home: dir, Variables: []string{"TRL_SOCKET=" + dir + "/none.sock"}},
		exit:        func(int) { t.Error("the process was asked to exit") },
	}
	return a.main(args), out.String(), err.String()
}

func TestUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"frobnicate":                   `trl has no command "frobnicate"`,
		"sesion":                       "did you mean session?",
		"session lst":                  "did you mean list?",
		"run":                          "COMMAND is missing",
		"run --":                       "COMMAND is missing",
		"run --frob -- true":           "--frob",
		"run --timeout soon -- true":   "300ms, 30s or 1h30m",
		"run -s s-1 --shell sh -- ls":  "s-1 already has its shell",
		"run --env =x -- true":         "NAME=VALUE",
		"run --env NO_SUCH_Z -- true":  "NO_SUCH_Z",
		"session info":                 "SESSION is missing",
		"session info a b":             `unexpected argument "b"`,
		"session destroy":              "SESSION is missing",
		"session create x":             "after --",
		"exec output":                  "EXEC is missing",
		"info x":                       `unexpected argument "x"`,
		"serve --max-sessions none":    "whole number",
		"serve --log-level loud":       "debug, info, warn, error",
		"serve extra":                  `unexpected argument "extra"`,
		"exec output e-1 --from there": "there",
	} {
		status, stdout, stderr := invoke(t, strings.Fields(line)...)
		if status != statusUsage || stdout != "" || !strings.HasPrefix(stderr, "trl: ") ||
			!strings.Contains(stderr, want) || !strings.Contains(stderr, "\nhint: run `trl") || strings.Contains(stderr, "Usage:") {
			t.Errorf("trl %s: status %d, stdout %q, stderr:\n%s", line, status, stdout, stderr)
		}
	}
}

func TestNoDaemon(t *testing.T) {
	for line, want := range map[string]int{
		"run -- true": statusRunFailed, "info": statusFailed, "stats": statusFailed, "session list": statusFailed,
		"session create": statusFailed, "session info s-1": statusFailed, "exec list s-1": statusFailed,
		"exec output e-1": statusFailed, "exec cancel e-1": statusFailed, "session destroy s-1": statusFailed,
	} {
		status, stdout, stderr := invoke(t, strings.Fields(line)...)
		if status != want || stdout != "" || !strings.Contains(stderr, "none.sock — start one with `trl serve`") {
			t.Errorf("trl %s: status %d, want %d; stdout %q, stderr:\n%s", line, status, want, stdout, stderr)
		}
	}
	_, _, stderr := invoke(t, "--socket", "/no such/sock", "info")
	if !strings.Contains(stderr, "`trl serve --socket '/no such/sock'`") {
		t.Errorf("the hint does not name the requested socket:\n%s", stderr)
	}
	_, _, stderr = invoke(t, "--json", "info")
	var e api.Error
	if err := e.UnmarshalJSON([]byte(stderr)); err != nil || e.Code != api.CodeRuntimeUnavailable {
		t.Errorf("%v: %s", err, stderr)
	}
}

func TestDescribeError(t *testing.T) {
	e := api.Errorf(api.CodeSessionBusy, "the session\x1b[2J is busy").With("exec_id", "e-1\n").
		WithHint("pass wait: true, or call exec.cancel first")
	want := "trl: the session\\x1b[2J is busy [SESSION_BUSY] (exec_id: e-1\\n)\n" +
		"hint: pass --wait, or call `trl exec cancel` first\n"
	if diff := cmp.Diff(want, describe(e, true)); diff != "" {
		t.Error(diff)
	}
	if got := describe(&api.Error{Message: "no"}, false); got != "trl: no\n" {
		t.Errorf("%q", got)
	}
}

func TestVariables(t *testing.T) {
	here := []string{"PASSED=from here", "PATH=/here", "VIRTUAL_ENV=/venv", "LANG=C", "TERM=vt100", "GITHUB_TOKEN=secret"}
	for name, c := range map[string]struct {
		flags shellFlags
		want  map[string]string
	}{
		"none":          {shellFlags{}, nil},
		"env":           {shellFlags{env: []string{"A=1", "B=", "C=x=y", "PASSED", "A=2"}}, map[string]string{"A": "2", "B": "", "C": "x=y", "PASSED": "from here"}},
		"env-from-here": {shellFlags{envFromHere: true}, map[string]string{"PATH": "/here", "VIRTUAL_ENV": "/venv", "LANG": "C"}},
		"both":          {shellFlags{envFromHere: true, env: []string{"LANG=de", "TERM"}}, map[string]string{"PATH": "/here", "VIRTUAL_ENV": "/venv", "LANG": "de", "TERM": "vt100"}},
	} {
		got, err := c.flags.environment(here)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// fakeJournal is the daemon's side of outputCopier.copy: it returns a few bytes
// of the text per call.
type fakeJournal struct {
	text    string
	after   string // written by processes that the command left running
	step    int
	polls   int
	exitsAt int // the first poll at which the command has ended
}

func (j *fakeJournal) Output(_ context.Context, p api.ExecOutputParams) (*api.ExecOutputResult, error) {
	j.polls++
	state, all := api.ExecRunning, j.text
	if j.polls >= j.exitsAt {
		state, all = api.ExecExited, j.text+j.after
	}
	end := min(p.From+int64(j.step), int64(len(all)))
	result := &api.ExecOutputResult{State: state, Next: end}
	if end > p.From {
		kind := api.ChunkStdout
		if j.polls%2 == 0 {
			kind = api.ChunkStderr
		}
		result.Chunks = []api.Chunk{{Type: kind, Offset: p.From, Data: all[p.From:end]}}
	}
	return result, nil
}

func (j *fakeJournal) ExecInfo(context.Context, api.ExecParams) (*api.ExecResult, error) {
	zero := 0
	return &api.ExecResult{State: api.ExecExited, ExitCode: &zero, StdoutBytes: int64(len(j.text))}, nil
}

func TestCopyOutput(t *testing.T) {
	const text = "0123456789"
	for _, follow := range []bool{true, false} {
		for exitsAt := 1; exitsAt < 8; exitsAt++ {
			t.Run(fmt.Sprintf("follow %t, ends at %d", follow, exitsAt), func(t *testing.T) {
				j := &fakeJournal{text: text, step: 3, exitsAt: exitsAt, after: strings.Repeat("x", 1000)}
				var out bytes.Buffer
				o := outputCopier{client: j, to: chunkWriter{stdout: &out, stderr: &out}, follow: follow}
				result, err := o.copy(t.Context())
				if err != nil || !strings.HasPrefix(out.String(), text) || out.Len() > len(text)+j.step {
					t.Errorf("%q, %v", &out, err)
				}
				if follow && result == nil {
					t.Error("copy did not wait for the end of the command")
				}
			})
		}
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestChunks(t *testing.T) {
	var stdout, stderr bytes.Buffer
	w := chunkWriter{stdout: &stdout, stderr: &stderr}
	for _, chunk := range []api.Chunk{
		{Type: api.ChunkStdout, Data: "out\x1b[0m"},
		{Type: api.ChunkStderr, Data: "/wA=", Encoding: api.Base64},
		{Type: api.ChunkTTY, Data: " tty"},
		{Type: api.ChunkGap, Bytes: 7},
	} {
		if err := w.write(chunk); err != nil {
			t.Error(err)
		}
	}
	if stdout.String() != "out\x1b[0m tty" || !strings.HasPrefix(stderr.String(), "\xff\x00trl: 7 bytes") {
		t.Errorf("stdout %q, stderr %q", &stdout, &stderr)
	}
	w.stdout = closedPipe{}
	if err := w.write(api.Chunk{Type: api.ChunkStdout, Data: "x"}); err == nil {
		t.Error("a failed write returned no error")
	} else if _, ok := errors.AsType[*writeError](err); !ok {
		t.Errorf("%T %v", err, err)
	}
}
