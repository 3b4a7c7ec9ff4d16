package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

type stopArguments struct {
	Exec    string `json:"exec,omitempty" jsonschema:"id of the command to stop, with everything it left running"`
	Session string `json:"session,omitempty" jsonschema:"instead of exec: the session to end, with every process in it"`
	Signal  string `json:"signal,omitempty" jsonschema:"only send this signal, such as INT or HUP, to the command or to the one running in the session"`
}

// stopReply is the reply of stop.
type stopReply struct {
	Exec    string    `json:"exec,omitempty" jsonschema:"the command"`
	Session string    `json:"session,omitempty" jsonschema:"the session"`
	Done    string    `json:"done" jsonschema:"what was done, in words"`
	Left    []process `json:"left_running,omitempty" jsonschema:"processes that could not be ended"`
}

func (r *stopReply) text() string {
	text := r.Done
	for _, p := range r.Left {
		text += "\nstill running: " + p.String()
	}
	return text
}

const (
	// stopGrace is how long processes that a command left running have to end
	// after SIGTERM: the same as the daemon gives commands.
	stopGrace = 5 * time.Second
	// killTime is how long the kernel may take to end processes after SIGKILL.
	killTime = 2 * time.Second
	// stopPollInterval is how often stop checks whether they have ended.
	stopPollInterval = 50 * time.Millisecond
)

func (s *server) stop(ctx context.Context, _ *call, a stopArguments) (*stopReply, error) {
	switch {
	case a.Exec == "" && a.Session == "" || a.Exec != "" && a.Session != "":
		return nil, api.Errorf(api.CodeInvalidParams, "stop: give either exec, for a command, or session, for a whole session")
	case a.Session != "" && a.Signal == "":
		return s.stopSession(ctx, a.Session)
	case a.Session != "":
		e, err := s.target(ctx, "", a.Session)
		if err != nil {
			return nil, err
		}
		a.Exec = e.ExecID
	}
	if a.Signal != "" {
		sent, err := callMethod[api.ExecSignalResult](ctx, s, api.MethodExecSignal, api.ExecSignalParams{ExecID: a.Exec, Signal: a.Signal})
		if err != nil {
			return nil, err
		}
		return &stopReply{Exec: a.Exec, Done: fmt.Sprintf("sent %s to %d processes of %s", printable.Word(strings.ToUpper(a.Signal)), sent.Processes, printable.Word(a.Exec))}, nil
	}
	return s.stopExec(ctx, a.Exec)
}

func (s *server) stopSession(ctx context.Context, name string) (*stopReply, error) {
	session, err := s.findExisting(ctx, name)
	if err != nil {
		return nil, err
	}
	shown := printable.Word(name)
	if session.State == api.StateTerminated {
		return &stopReply{Session: name, Done: fmt.Sprintf("session %s had ended already (%s)", shown, session.Terminated.Reason)}, nil
	}
	gone, err := callMethod[api.SessionDestroyResult](ctx, s, api.MethodSessionDestroy, api.SessionDestroyParams{SessionID: session.SessionID})
	if err != nil {
		return nil, err
	}
	r := &stopReply{Session: name, Done: fmt.Sprintf("session %s has ended, and all its processes are gone", shown), Left: processList(gone.Survivors)}
	if len(r.Left) > 0 {
		r.Done = fmt.Sprintf("session %s has ended, but some of its processes are still running", shown)
	}
	return r, nil
}

// stopExec stops a command, and then the processes that it left running.
func (s *server) stopExec(ctx context.Context, exec string) (*stopReply, error) {
	got, err := callMethod[api.ExecCancelResult](ctx, s, api.MethodExecCancel, api.ExecCancelParams{ExecID: exec})
	if err != nil {
		return nil, err
	}
	e, err := s.execInfo(ctx, exec)
	if err != nil {
		return nil, err
	}
	r := &stopReply{Exec: exec, Done: fmt.Sprintf("%s had ended by itself (%s)", printable.Word(exec), status(e))}
	if got.Cancelled {
		r.Done = fmt.Sprintf("%s is stopped (%s)", printable.Word(exec), status(e))
	}
	left, err := s.leftRunning(ctx, e)
	if err != nil {
		return nil, err
	}
	before := left
	for _, step := range []struct {
		signal string
		time   time.Duration
	}{{"TERM", stopGrace}, {"KILL", killTime}} {
		if len(left) == 0 {
			break
		}
		if _, err := callMethod[api.ExecSignalResult](ctx, s, api.MethodExecSignal, api.ExecSignalParams{ExecID: exec, Signal: step.signal}); err != nil {
			return nil, err
		}
		for deadline := time.Now().Add(step.time); len(left) > 0 && time.Now().Before(deadline); {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(stopPollInterval):
			}
			if left, err = s.leftRunning(ctx, e); err != nil {
				return nil, err
			}
		}
	}
	if len(before) > 0 {
		r.Done += fmt.Sprintf("; %d of the %d processes that it left running have ended", len(before)-len(left), len(before))
	}
	r.Left = processList(left)
	return r, nil
}

// leftRunning returns the live processes that a command left running.
func (s *server) leftRunning(ctx context.Context, e *api.ExecResult) (left []api.Process, err error) {
	session, err := callMethod[api.SessionInfo](ctx, s, api.MethodSessionInfo, api.SessionParams{SessionID: e.SessionID})
	if err != nil {
		return nil, err
	}
	for _, p := range session.Processes {
		if p.ExecID == e.ExecID && p.Role == "" {
			left = append(left, p)
		}
	}
	return left, nil
}

func processList(processes []api.Process) (out []process) {
	for _, p := range processes[:min(len(processes), maxNamed)] {
		out = append(out, processOf(p))
	}
	return out
}
