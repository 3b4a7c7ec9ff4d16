package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// awayCaller is a daemon with one command, in a place that is out of reach for a time
// after the command was started.
type awayCaller struct {
	placedCaller
	away time.Duration
	back time.Time // when the place is in reach again
	lost string    // if not "", exec.run fails while the place is away, and says this about sent at first
	keys []string  // of exec.run and exec.input
}

const awayExec = "e-k7-0123456789"

func (a *awayCaller) Call(ctx context.Context, method string, params, result any) error {
	none := 0
	var answer any
	switch method {
	case api.MethodExecRun, api.MethodExecInput:
		key := "input"
		if run, ok := params.(api.ExecRunParams); ok {
			key = run.Key
		}
		if a.keys = append(a.keys, key); len(a.keys) == 1 {
			a.back = time.Now().Add(a.away)
		}
		if a.lost != "" && time.Now().Before(a.back) {
			if len(a.keys) == 1 {
				return outOfReach(a.lost)
			}
			return outOfReach("no") // it knows only about the last attempt
		}
		answer = api.ExecResult{ExecID: awayExec, SessionID: "s-k7-0123456789", State: api.ExecRunning}
	case api.MethodExecOutput:
		answer = api.ExecOutputResult{State: api.ExecExited, Closed: true}
	case api.MethodExecInfo:
		answer = api.ExecResult{ExecID: awayExec, SessionID: "s-k7-0123456789", State: api.ExecExited, Outcome: api.OutcomeExited, ExitCode: &none}
	case api.MethodSessionInfo:
		answer = api.SessionInfo{Session: api.Session{SessionID: "s-k7-0123456789", Runtime: "docker:web"}}
	default:
		return a.placedCaller.Call(ctx, method, params, result)
	}
	if time.Now().Before(a.back) && method != api.MethodExecRun && method != api.MethodExecInput {
		return outOfReach("no")
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, result)
}

func outOfReach(sent string) error {
	return api.Errorf(api.CodeRuntimeUnavailable, "cannot reach docker:web: the container is paused").
		With("runtime", "docker:web").With("reason", "paused").With("retry_after_ms", 1000).With("sent", sent)
}

// A call that has started a command, or typed into one, waits for a place that goes
// out of reach. If the place stays away, the error says what was done, and not that
// the call could be repeated.
func TestPlaceGoesAwayWhileACallWaits(t *testing.T) {
	run := func(ctx context.Context, s *server) (*report, error) {
		return s.run(ctx, aCall(), runArguments{Command: "make", Place: "docker:web", WaitS: ptr(20.0)})
	}
	input := func(ctx context.Context, s *server) (*report, error) {
		return s.input(ctx, aCall(), inputArguments{Exec: awayExec, Text: "y", WaitS: ptr(20.0)})
	}
	for name, tc := range map[string]struct {
		call func(context.Context, *server) (*report, error)
		away time.Duration
		lost string
		took time.Duration
		want []string // parts of the error; nil means none
	}{
		"run, back soon": {call: run, away: 15 * time.Second, took: 15 * time.Second},
		"run, gone": {
			call: run, away: time.Hour, took: 20 * time.Second,
			want: []string{"the command was started", "the container is paused", "exec: " + awayExec, "do not repeat", `output {"exec": "` + awayExec},
		},
		"run unanswered, back soon": {call: run, away: 15 * time.Second, lost: "maybe", took: 15 * time.Second},
		"run unanswered, gone":      {call: run, away: time.Hour, lost: "maybe", took: 20 * time.Second, want: []string{"may have been started", "the container is paused", "only if the tool sessions"}},
		"run not sent":              {call: run, away: time.Hour, lost: "no", want: []string{"sent: no"}},
		"input, back soon":          {call: input, away: 15 * time.Second, took: 15 * time.Second},
		"input, gone":               {call: input, away: time.Hour, took: 20 * time.Second, want: []string{"the input was typed", "do not repeat"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				daemon := &awayCaller{placedCaller: placedCaller{shells: []string{"bash"}}, away: tc.away, lost: tc.lost}
				s := daemon.server()
				s.Caller = daemon
				began := time.Now()
				r, err := tc.call(t.Context(), s)
				if took := time.Since(began); took != tc.took || (err == nil) != (tc.want == nil) {
					t.Fatalf("after %s: %+v, %v", took, r, err)
				}
				if err == nil && r.State != string(api.ExecExited) {
					t.Errorf("%+v", r)
				}
				for _, part := range tc.want {
					if text := describe(err); !strings.Contains(text, part) || strings.Contains(text, "sent:") != (tc.lost == "no") {
						t.Errorf("%q is missing, or sent is wrong:\n%s", part, text)
					}
				}
				if len(slices.Compact(daemon.keys)) != 1 {
					t.Errorf("it was called with the keys %q", daemon.keys)
				}
			})
		})
	}
}
