package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// State is the verdict on one run of a case.
type State string

// The verdicts. Degraded counts as a pass; only a case with a followup_degraded
// can get it.
const (
	Pass     State = "PASS"
	Degraded State = "DEGRADED"
	Fail     State = "FAIL"
)

// Verdict is the state of one run and, unless it passed, the reason.
type Verdict struct {
	State State
	Why   string
	// Late means that the run failed only because it was too slow, which a busy
	// machine can cause: such a case is worth another try.
	Late bool
}

// Runner runs cases against the TRL behind a socket. It keeps no state: runs
// may be concurrent, but never two of the same case, because some cases count
// processes by name.
type Runner struct {
	// Socket is the path of the Unix socket.
	Socket string
	// ShellPath maps a shell of the table to the value to send as `shell`;
	// default: its name.
	ShellPath map[string]string
	// Create is merged into the params of session.create.
	Create map[string]any
	// Terminal runs the cases in sessions on a terminal, where all output is
	// one stream and lines end in CR LF; see Expect.onTerminal.
	Terminal bool
	// Merge runs the commands with both streams merged; see Expect.merged.
	Merge bool
	// Leftovers, if set, is called after session.destroy and returns the
	// processes of that run that are still alive. Each has TokenVariable=token
	// in its environment. For a TRL on this machine it double-checks survivors.
	Leftovers func(token string) []string
}

// TokenVariable is the environment variable that holds the token of the run in
// every session of the runner. Its name must not look like one of TRL's own:
// the table checks that none of those reach a command.
const TokenVariable = "CONFORMANCE_RUN"

// stepTimeoutMS is the timeout of set-up commands and follow-ups. None takes
// longer than a few seconds, and their max_ms is far below.
const stepTimeoutMS = 10_000

// answerSlack is how long an answer may take beyond the command's own timeout:
// the grace period between SIGTERM and SIGKILL, and a busy machine.
const answerSlack = 60 * time.Second

// Run runs one case in one shell, in a new session. The token must be decimal,
// and neither equal to nor a prefix of the token of any other run.
func (r *Runner) Run(ctx context.Context, c Case, shell, token string) Verdict {
	c, err := c.With(token)
	if err != nil {
		return failed("case: %v", err)
	}
	if r.Terminal {
		c = c.onTerminal()
	}
	if r.Merge {
		c = c.merged()
	}
	rpc, err := dial(ctx, r.Socket)
	if err != nil {
		return failed("%v", err)
	}
	defer rpc.close()

	var session struct {
		SessionID string `json:"session_id"`
	}
	if err := within(ctx, rpc, answerSlack, "session.create", r.createParams(shell, token), &session); err != nil {
		return failed("%v", err)
	}
	if session.SessionID == "" {
		return failed("session.create: no session_id")
	}
	verdict := r.inSession(ctx, rpc, c, session.SessionID)
	if err := r.destroy(ctx, session.SessionID, token); err != nil && verdict.State != Fail {
		return failed("%v", err)
	}
	return verdict
}

func (r *Runner) createParams(shell, token string) map[string]any {
	params := map[string]any{"shell": shell}
	if path := r.ShellPath[shell]; path != "" {
		params["shell"] = path
	}
	if r.Terminal {
		params["tty"] = map[string]any{"rows": 24, "cols": 80}
	}
	maps.Copy(params, r.Create)
	env := map[string]any{TokenVariable: token}
	if given, ok := params["env"].(map[string]any); ok {
		maps.Copy(env, given)
	}
	params["env"] = env
	return params
}

// inSession runs the set-up, the command, the follow-up and the check for late
// output.
func (r *Runner) inSession(ctx context.Context, rpc *caller, c Case, session string) Verdict {
	for _, command := range c.Setup {
		if _, _, err := r.run(ctx, rpc, session, command, stepTimeoutMS); err != nil {
			return failed("setup: %v", err)
		}
	}
	result, took, err := r.run(ctx, rpc, session, c.Command, c.TimeoutMS)
	if err != nil {
		return failed("%v", err)
	}
	if err := Judge(c.Expect, result, took); err != nil {
		return judged("%v", err)
	}
	verdict := Verdict{State: Pass}
	if err := r.step(ctx, rpc, session, c.Followup); err != nil {
		if c.FollowupDegraded == nil || r.step(ctx, rpc, session, *c.FollowupDegraded) != nil {
			return judged("follow-up: %v", err)
		}
		verdict = Verdict{State: Degraded, Why: fmt.Sprintf("follow-up: %v", err)}
	}
	if c.Late != nil {
		if err := late(ctx, rpc, result.ExecID, *c.Late); err != nil {
			return failed("late output: %v", err)
		}
	}
	return verdict
}

func (r *Runner) step(ctx context.Context, rpc *caller, session string, s Step) error {
	result, took, err := r.run(ctx, rpc, session, s.Command, stepTimeoutMS)
	if err != nil {
		return err
	}
	return Judge(s.Expect, result, took)
}

func (r *Runner) run(ctx context.Context, rpc *caller, session, command string, timeoutMS int64) (Result, time.Duration, error) {
	params := map[string]any{"session_id": session, "command": command, "timeout_ms": timeoutMS}
	if r.Merge {
		params["merge"] = true
	}
	var result Result
	began := time.Now()
	err := within(ctx, rpc, time.Duration(timeoutMS)*time.Millisecond+answerSlack, "exec.run", params, &result)
	took := time.Since(began)
	if r.Terminal && err == nil && result.StdoutEncoding == "" {
		result.Stdout = strings.ReplaceAll(result.Stdout, "\r\n", "\n")
		result.Stderr = result.Stdout
	}
	if r.Merge && err == nil {
		if !result.Merged || result.Stderr != "" || result.StderrBytes != 0 {
			return result, took, fmt.Errorf("merged: %t, with %d bytes of stderr", result.Merged, result.StderrBytes)
		}
		result.Stderr, result.StderrEncoding = result.Stdout, result.StdoutEncoding
	}
	return result, took, err
}

func late(ctx context.Context, rpc *caller, exec string, want Late) error {
	select {
	case <-time.After(time.Duration(want.WaitMS) * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	params := map[string]any{"exec_id": exec, "from": 0, "stream": "stdout"}
	var output struct {
		Chunks []struct {
			Data     string `json:"data"`
			Encoding string `json:"encoding"`
		} `json:"chunks"`
	}
	if err := within(ctx, rpc, answerSlack, "exec.output", params, &output); err != nil {
		return err
	}
	var got bytes.Buffer
	for _, chunk := range output.Chunks {
		data, err := decode(chunk.Data, chunk.Encoding)
		if err != nil {
			return err
		}
		got.Write(data)
	}
	if got.String() != want.Stdout {
		return fmt.Errorf("%s, want %q", clip(got.Bytes()), want.Stdout)
	}
	return nil
}

// destroy ends the session over a new connection, since the other one may be
// waiting for an answer that never comes, and checks that nothing of the
// session is left.
func (r *Runner) destroy(ctx context.Context, session, token string) error {
	rpc, err := dial(ctx, r.Socket)
	if err != nil {
		return err
	}
	defer rpc.close()
	var gone struct {
		State     string            `json:"state"`
		Survivors []json.RawMessage `json:"survivors"`
	}
	if err := within(ctx, rpc, answerSlack, "session.destroy", map[string]any{"session_id": session, "force": true}, &gone); err != nil {
		return err
	}
	if gone.State != "terminated" {
		return fmt.Errorf("session.destroy: state %q, want \"terminated\"", gone.State)
	}
	if len(gone.Survivors) > 0 {
		return fmt.Errorf("session.destroy left %s", gone.Survivors)
	}
	if r.Leftovers != nil {
		if left := r.Leftovers(token); len(left) > 0 {
			return fmt.Errorf("session.destroy names no survivors, but there are %q", left)
		}
	}
	return nil
}

// within makes one call with a time limit.
func within(ctx context.Context, rpc *caller, limit time.Duration, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return rpc.call(ctx, method, params, result)
}

// judged returns the verdict for an error of Judge.
func judged(format string, err error) Verdict {
	v := failed(format, err)
	v.Late = errors.As(err, new(lateError))
	return v
}

func failed(format string, args ...any) Verdict {
	return Verdict{State: Fail, Why: fmt.Sprintf(format, args...)}
}
