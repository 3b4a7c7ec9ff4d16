package session

import (
	"context"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/process"
)

// Run runs a command in a session and returns its result when it has ended, or
// after yield_ms with what there is. The command goes on if the caller goes away.
func (p *Pool) Run(ctx context.Context, params api.ExecRunParams) (*api.ExecResult, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	how := inline
	if params.YieldMS > 0 || params.YieldOnInput {
		how = background
	}
	if params.YieldOnInput {
		if _, err := s.terminal(); err != nil {
			return nil, api.AsError(err).With("field", "yield_on_input")
		}
	}
	e, err := s.execute(ctx, params.ExecCommand, how)
	if err != nil {
		return nil, err
	}
	var yield <-chan time.Time
	if params.YieldMS > 0 {
		t := time.NewTimer(time.Duration(params.YieldMS) * time.Millisecond)
		defer t.Stop()
		yield = t.C
	}
	var input <-chan struct{}
	if params.YieldOnInput {
		watched, stop := context.WithCancel(ctx)
		defer stop()
		input = s.term.AwaitInput(watched, e, e.Done(), func() *api.Waiting { return s.waitingFor(e) })
	}
	select {
	case <-e.Done():
	case <-yield:
	case <-input:
	case <-ctx.Done():
		return nil, api.Errorf(api.CodeInternal, "the caller stopped waiting: %w", ctx.Err()).With("exec_id", e.ID())
	}
	most := p.cfg.MaxOutputBytes
	if params.MaxOutputBytes != nil {
		most = *params.MaxOutputBytes
	}
	return e.ResultWithOutput(most)
}

// Stream runs a command as Run does, and returns when it was accepted. Its output
// and its exit follow in the feed.
func (p *Pool) Stream(ctx context.Context, params api.ExecStreamParams) (*api.ExecStreamResult, notify.Feed, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, nil, err
	}
	e, err := s.execute(ctx, params.ExecCommand, streaming)
	if err != nil {
		return nil, nil, err
	}
	id := newID("st-")
	return &api.ExecStreamResult{ExecID: e.ID(), StreamID: id}, s.feed(exec.NewStream(id, e, 0)), nil
}

// Attach follows an exec from an offset on, whether it runs or has ended.
func (p *Pool) Attach(ctx context.Context, params api.ExecAttachParams) (*api.ExecAttachResult, notify.Feed, error) {
	s, e, err := p.exec(params.ExecID)
	if err != nil {
		return nil, nil, err
	}
	if err := e.CheckFrom(params.From); err != nil {
		return nil, nil, err
	}
	s.trackConnection(ctx)
	id := newID("st-")
	return &api.ExecAttachResult{StreamID: id, From: params.From, State: e.Result().State}, s.feed(exec.NewStream(id, e, params.From)), nil
}

// feed returns the feed of a stream. Its reader counts as one of the session while
// it runs.
func (s *Session) feed(st *exec.Stream) notify.Feed {
	return func(ctx context.Context, send func(notify.Notification) error) error {
		leave := s.addReader()
		defer leave()
		return st.Feed(ctx, send)
	}
}

// Output answers exec.output.
func (p *Pool) Output(ctx context.Context, params api.ExecOutputParams) (*api.ExecOutputResult, error) {
	s, e, err := p.exec(params.ExecID)
	if err != nil {
		return nil, err
	}
	s.touch()
	return e.Output(ctx, params)
}

// Input types on the terminal of a command, or writes to its standard input.
func (p *Pool) Input(ctx context.Context, params api.ExecInputParams) (*api.ExecInputResult, error) {
	s, e, err := p.exec(params.ExecID)
	if err != nil {
		return nil, err
	}
	data, err := api.DecodeBytes(params.Data, params.Encoding)
	if err != nil {
		return nil, err
	}
	if err := checkInput(params); err != nil {
		return nil, err
	}
	if s.term != nil {
		if data, err = s.term.EncodeInput(params, data); err != nil {
			return nil, err
		}
	}
	s.trackConnection(ctx)
	s.touch()
	sent := &exec.InputRequest{
		Data: data, EOF: params.EOF, Whole: params.Whole, At: params.At, KeyHash: hashOf(params.Key), MaxBuffer: p.cfg.InputBuffer,
		ShellIsAlone: func() bool { return s.shellIsAlone(e) },
	}
	if params.Key != "" {
		compared := params
		compared.Lease = "" // of the call, not of the input
		sent.Sum = sumOf(compared)
	}
	err = s.input(ctx, e, params, sent)
	if err == nil || sent.Sent > 0 {
		p.prompts.typed(e)
	}
	if err != nil {
		return nil, err
	}
	result := &api.ExecInputResult{ExecID: e.ID(), Bytes: sent.Sent}
	if s.term == nil {
		result.Next = &sent.Next
	}
	if sent.Uncertain {
		result.Written = api.WrittenUnknown
	}
	return result, nil
}

func checkInput(params api.ExecInputParams) error {
	if params.At != nil && *params.At < 0 {
		return api.Errorf(api.CodeInvalidParams, "at must not be negative").With("field", "at").
			WithHint("use next of the last exec.input result")
	}
	return checkKey(params.Key)
}

// input sends input to a command, unless the same was sent with its key before.
func (s *Session) input(ctx context.Context, e *exec.Exec, params api.ExecInputParams, r *exec.InputRequest) error {
	if done, err := e.LookupAnswer(r); done || err != nil {
		return err
	}
	epoch, err := s.beginTyping(params.Lease)
	if err != nil {
		return err
	}
	if err := e.CheckInput(params); err != nil {
		return err
	}
	err = e.SendInput(ctx, epoch, r)
	if err != nil && epoch.Err() != nil {
		return s.errLeaseLost(r.Sent)
	}
	if err != nil && r.Sent > 0 {
		return api.AsError(err).With("bytes", r.Sent)
	}
	return err
}

// shellIsAlone reports whether the command runs in its shell alone, with no process
// of its own: a loop, for example.
func (s *Session) shellIsAlone(e *exec.Exec) bool {
	if s.shell == nil {
		return false
	}
	pid, _ := s.shell.PID()
	return len(s.tree.Marked(e.Mark(), pid)) == 0
}

// Signal signals the processes of a running command, but not its shell.
func (p *Pool) Signal(_ context.Context, params api.ExecSignalParams) (*api.ExecSignalResult, error) {
	s, e, err := p.exec(params.ExecID)
	if err != nil {
		return nil, err
	}
	sig, ok := process.ParseSignal(params.Signal)
	if !ok {
		return nil, api.Errorf(api.CodeInvalidParams, "no such signal").With("field", "signal").
			WithHint("use a name such as TERM, INT or HUP, or a number")
	}
	if err := s.errIfTerminated(); err != nil {
		return nil, err
	}
	own := 0
	if s.shell != nil {
		own, _ = s.shell.PID()
	}
	n := 0
	for _, pid := range s.tree.Marked(e.Mark(), own) {
		if s.tree.Signal(pid, sig) {
			n++
		}
	}
	return &api.ExecSignalResult{ExecID: e.ID(), Processes: n}, nil
}

// Cancel stops a command and returns when it is gone. An exec that has ended
// already is not cancelled, which is not an error.
func (p *Pool) Cancel(ctx context.Context, params api.ExecCancelParams) (*api.ExecCancelResult, error) {
	s, e, err := p.toCancel(params)
	if err != nil {
		return nil, err
	}
	e.Cancel()
	over := e.Done()
	if len(s.params.Argv) > 0 {
		over = s.destroyed // it ends with its command, and is then no longer listed as alive
	}
	select {
	case <-over:
	case <-ctx.Done():
		return nil, api.Errorf(api.CodeInternal, "the caller stopped waiting: %w", ctx.Err()).With("exec_id", e.ID())
	}
	return &api.ExecCancelResult{ExecID: e.ID(), Cancelled: e.Result().Cancelled}, nil
}

func (p *Pool) toCancel(params api.ExecCancelParams) (*Session, *exec.Exec, error) {
	switch {
	case params.ExecID != "" && params.SessionID == "":
		return p.exec(params.ExecID)
	case params.ExecID == "" && params.SessionID != "":
		s, err := p.session(params.SessionID)
		if err != nil {
			return nil, nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.state == api.StateTerminated {
			return nil, nil, s.errTerminated()
		}
		if err := s.errIfUnreadable(); err != nil {
			return nil, nil, err
		}
		if s.running == nil {
			return nil, nil, api.Errorf(api.CodeInvalidRequest, "no command is running in the session").With("session_id", s.id).
				WithHint("there is nothing to cancel; exec.list shows what has run")
		}
		return s, s.running, nil
	default:
		return nil, nil, api.Errorf(api.CodeInvalidParams, "give either exec_id or session_id").With("field", "exec_id").
			WithHint("exec_id cancels that exec, session_id the one that runs in the session")
	}
}

// ExecInfo returns an exec without its output.
func (p *Pool) ExecInfo(_ context.Context, params api.ExecParams) (*api.ExecResult, error) {
	_, e, err := p.exec(params.ExecID)
	if err != nil {
		return nil, err
	}
	return e.Result(), nil
}

// ExecList returns a session's execs, oldest first: the retained ones, the running
// one, and the queued ones.
func (p *Pool) ExecList(_ context.Context, params api.SessionParams) (*api.ExecListResult, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	execs := append([]*exec.Exec(nil), s.finished...)
	if s.running != nil {
		execs = append(execs, s.running)
	}
	execs = append(execs, s.queue...)
	s.mu.Unlock()
	out := &api.ExecListResult{Execs: make([]api.ExecResult, 0, len(execs))}
	for _, e := range execs {
		out.Execs = append(out.Execs, *e.Result())
	}
	return out, nil
}
