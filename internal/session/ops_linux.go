package session

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
)

func (p *Pool) addExec(e *Exec) {
	p.mu.Lock()
	p.execs[e.id] = e
	p.mu.Unlock()
	p.execsTotal.Add(1)
}

// Run runs a command in a session and answers when it has ended, or after
// yield_ms with what there is. The command goes on if the caller goes away.
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
		input = e.awaitInput(watched)
	}
	select {
	case <-e.done:
	case <-yield:
	case <-input:
	case <-ctx.Done():
		return nil, api.Errorf(api.CodeInternal, "the caller stopped waiting: %w", ctx.Err()).With("exec_id", e.id)
	}
	most := p.cfg.MaxOutputBytes
	if params.MaxOutputBytes != nil {
		most = *params.MaxOutputBytes
	}
	return e.resultWithOutput(most)
}

// manner is how a command is run for its caller.
type execMode int

const (
	// inline: in the caller's own goroutine, which has nothing else to do. It
	// stays for the command also when its caller is gone. To wake another costs
	// 15 % of exec.run true (p50 304 µs against 263 µs over the socket, p10
	// 174 µs against 152 µs, both daemons in turn on a busy machine of 2 cores).
	inline execMode = iota
	// beside: in a goroutine of the pool.
	background
	// followed: beside, and someone waits for every byte.
	streaming
)

// execute starts the command, or puts it into the queue, or finds the one that
// was started with the same key.
func (s *Session) execute(ctx context.Context, params api.ExecCommand, how execMode) (*Exec, error) {
	if err := s.errIfUnreadable(); err != nil {
		return nil, err
	}
	if len(s.params.Argv) > 0 {
		return nil, api.Errorf(api.CodeSessionBusy, "a direct session runs its one command only").With("session_id", s.id).With("exec_id", s.snapshot().ExecID).
			WithHint("session.create without argv makes a session that runs commands")
	}
	if err := s.errIfCreating(); err != nil {
		return nil, err
	}
	s.trackConnection(ctx)
	e, standing, err := s.admit(ctx, params, how)
	switch {
	case err != nil:
		return nil, err
	case standing == isDuplicate:
		return e, nil
	case standing == isQueued:
		// From here on it belongs to the session, as a running one does: a
		// caller that goes away does not take it out of the queue.
		s.pool.spawn(e.runQueued)
		return e, nil
	}
	if err := e.openOutput(); err != nil {
		return nil, e.failStart(err)
	}
	e.begin(time.Now())
	e.persist()
	if how == inline {
		e.run()
	} else {
		s.pool.spawn(e.run)
	}
	return e, nil
}

// standing is how a command stands to the others of its session.
type admission int

const (
	runsNow     admission = iota // it is to be run now
	isQueued                     // it is in the queue
	isDuplicate                  // it is an earlier one, which came with the same key
)

// admit makes an exec and lets it enter, in the order in which commands come: to look
// at files may take a while, and who comes meanwhile comes later.
func (s *Session) admit(ctx context.Context, params api.ExecCommand, how execMode) (*Exec, admission, error) {
	place := s.admission.join()
	arrival.MarkQueued(ctx)
	defer func() {
		<-place
		s.admission.next()
	}()
	e, err := s.prepare(params)
	if err != nil {
		return nil, 0, err
	}
	e.streaming = how == streaming
	<-place
	entered, queued, err := s.enter(e, params.Lease, params.Wait)
	switch {
	case err != nil:
		e.discard()
		return nil, 0, err
	case entered != e:
		e.discard()
		return entered, isDuplicate, nil
	case queued:
		return e, isQueued, nil
	}
	return e, runsNow, nil
}

// runInTurn waits for the turn of a queued exec, and runs it.
func (e *Exec) runQueued() {
	select {
	case <-e.mayBegin:
	case <-e.stopped:
		if e.session.unqueue(e) {
			e.cancelQueued()
			return
		}
		<-e.mayBegin // it came at the same moment; the command is stopped as it starts
	}
	if e.isDone() {
		return // the session was ended
	}
	if err := e.openOutput(); err != nil {
		e.session.pool.cfg.Log.Error("a queued command could not be started", "error", e.failStart(err))
		return
	}
	now := time.Now()
	e.setQueued(now)
	e.begin(now)
	e.persist()
	e.run()
}

// unqueue takes e out of the queue, and says whether it was in it.
func (s *Session) unqueue(e *Exec) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.queue, e)
	if i < 0 {
		return false
	}
	s.queue = slices.Delete(s.queue, i, i+1)
	s.retain(e)
	return true
}

// failed ends an exec whose turn it is and that can't be started.
func (e *Exec) failStart(err error) error {
	e.stop(causeCancel)
	e.finish(func(*api.ExecResult) {})
	e.journal.Seal()
	e.session.execEnded(e, nil)
	return api.Errorf(api.CodeInternal, "open pipes: %w", err).
		WithHint("the daemon is out of descriptors: try again, or destroy sessions that are not needed")
}

// maxLabel is a line of a list, in bytes: labels are kept with their execs.
const maxLabel = 200

// prepare checks the parameters and makes the exec.
func (s *Session) prepare(params api.ExecCommand) (*Exec, error) {
	if len(params.Label) > maxLabel || !printable.Line(params.Label) {
		return nil, api.Errorf(api.CodeInvalidParams, "label must be at most %d bytes on one line", maxLabel).With("field", "label")
	}
	if err := checkKey(params.Key); err != nil {
		return nil, err
	}
	if strings.Contains(params.Command, "\x00") {
		return nil, errNUL("command")
	}
	env, err := commandEnv(params.Env)
	if err != nil {
		return nil, err
	}
	dir := params.Cwd
	if dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(s.cwdIfAlive(), dir)
	}
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	var stdin []byte
	if params.Stdin != nil {
		if stdin, err = api.DecodeBytes(*params.Stdin, params.StdinEncoding); err != nil {
			return nil, err
		}
	}
	e := s.newExec(params.Key)
	if e.key != "" {
		said := params
		said.Wait, said.Lease = false, "" // of the call, not of the command
		e.sum = sumOf(said)
	}
	e.res.Label, e.res.Merged = params.Label, params.Merge && s.term == nil // a terminal has one stream
	e.command = shell.Command{Text: params.Command, Env: env, Dir: dir}
	e.timeout = s.timeout
	if params.TimeoutMS != nil {
		e.timeout = time.Duration(*params.TimeoutMS) * time.Millisecond
	}
	e.idleTimeout = time.Duration(params.IdleTimeoutMS) * time.Millisecond
	if s.term != nil {
		if params.Stdin != nil {
			e.discard()
			return nil, api.Errorf(api.CodeInvalidParams, "a command on a terminal reads from the terminal").With("field", "stdin").
				WithHint("leave stdin out and type with exec.input, or use a session without tty")
		}
		return e, nil
	}
	if params.Stdin != nil || params.StdinOpen {
		if err = e.newInput(stdin, params.StdinOpen); err != nil {
			e.discard()
			if errors.Is(err, holder.ErrGone) { // which ends all sessions
				return nil, s.errLost()
			}
			return nil, api.Errorf(api.CodeInternal, "open stdin: %w", err)
		}
	}
	return e, nil
}

func (s *Session) cwdIfAlive() string {
	if st := s.currentState(); st == api.StateIdle || st == api.StateRunning {
		return s.cwd()
	}
	return ""
}

// discard drops an exec that never was one.
func (e *Exec) discard() {
	e.journal.Release()
	e.closeInput()
	e.forget()
}

// enter makes e the session's running exec, or puts it into the queue, or
// returns the exec that has the same key.
func (s *Session) enter(e *Exec, lease string, wait bool) (entered *Exec, queued bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.key != "" {
		switch first := s.keys[e.key]; {
		case first != nil && first.sum != 0 && first.sum != e.sum:
			return nil, false, errOtherParams()
		case first != nil:
			return first, false, nil
		case s.pool.usedKeys.has(usedKey{s.id, e.key}):
			return nil, false, api.Errorf(api.CodeExecNotFound, "a command with this key has run in this session, and its result is no longer kept").
				WithHint("it is not run again; to run it once more send another key")
		}
	}
	if s.ending || s.state == api.StateTerminated {
		return nil, false, s.errTerminated()
	}
	if err := s.checkLease(lease); err != nil {
		return nil, false, err
	}
	if s.running != nil && !wait {
		return nil, false, api.Errorf(api.CodeSessionBusy, "the session runs another command").
			With("session_id", s.id).With("exec_id", s.running.id).
			WithHint("pass wait: true to queue behind it, exec.cancel to end it, or use another session")
	}
	s.execCount++
	e.number = s.execCount
	e.mark = markOf(e.number)
	s.active = time.Now()
	if e.key != "" {
		if s.keys == nil {
			s.keys = map[string]*Exec{}
		}
		s.keys[e.key] = e
	}
	s.pool.addExec(e)
	if s.running != nil {
		s.queue = append(s.queue, e)
		e.persist()
		return e, true, nil
	}
	s.running = e
	s.transitionTo(api.StateRunning)
	return e, false, nil
}

// markOf is the mark of an exec's processes. They come round after a million
// execs; 0 is the driver's own.
func markOf(number int64) uint32 { return uint32((number-1)%process.MaxMark) + 1 }

// Output reads an exec's journal by polling.
func (p *Pool) Output(ctx context.Context, params api.ExecOutputParams) (*api.ExecOutputResult, error) {
	e, err := p.exec(params.ExecID)
	if err != nil {
		return nil, err
	}
	e.session.touch()
	return e.output(ctx, params)
}

// Input writes to a command's standard input.
func (p *Pool) Input(ctx context.Context, params api.ExecInputParams) (*api.ExecInputResult, error) {
	e, err := p.exec(params.ExecID)
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
	if e.session.term != nil {
		if data, err = e.session.term.encodeInput(params, data); err != nil {
			return nil, err
		}
	}
	e.session.trackConnection(ctx)
	e.session.touch()
	sent := &inputRequest{data: data, eof: params.EOF, whole: params.Whole, at: params.At, key: hashOf(params.Key), maxBuffer: p.cfg.InputBuffer}
	if params.Key != "" {
		said := params
		said.Lease = "" // of the call, not of the input
		sent.sum = sumOf(said)
	}
	if err := e.input(ctx, params, sent); err != nil {
		return nil, err
	}
	result := &api.ExecInputResult{ExecID: e.id, Bytes: sent.sent}
	if e.session.term == nil {
		result.Next = &sent.next
	}
	if sent.uncertain {
		result.Written = api.WrittenUnknown
	}
	return result, nil
}

func checkInput(params api.ExecInputParams) error {
	if params.At != nil && *params.At < 0 {
		return api.Errorf(api.CodeInvalidParams, "an offset is not negative").With("field", "at").
			WithHint("the result of exec.input has the next one")
	}
	return checkKey(params.Key)
}

// input types or writes what the command is to read, unless that was done before.
func (e *Exec) input(ctx context.Context, params api.ExecInputParams, s *inputRequest) error {
	if done, err := e.lookupAnswer(s); done || err != nil {
		return err
	}
	fence, err := e.session.beginTyping(params.Lease)
	if err != nil {
		return err
	}
	write, err := e.inputFunc(params)
	if err != nil {
		return err
	}
	err = write(ctx, fence, s)
	if err != nil && fence.Err() != nil {
		return e.session.errLeaseLost(s.sent)
	}
	if err != nil && s.sent > 0 {
		return api.AsError(err).With("bytes", s.sent)
	}
	return err
}

// writer is how the command is given something to read.
func (e *Exec) inputFunc(params api.ExecInputParams) (func(ctx, fence context.Context, s *inputRequest) error, error) {
	if e.session.term != nil {
		switch {
		case e.isDone():
			return nil, api.Errorf(api.CodeInvalidParams, "the command has ended").With("exec_id", e.id).
				WithHint("exec.info says how; what is typed belongs to the command that runs")
		case params.At != nil, params.Whole:
			return nil, api.Errorf(api.CodeInvalidParams, "a terminal takes what is typed as it comes: at and whole are for other input").
				With("exec_id", e.id).WithHint("give a key: a repeat with it types nothing")
		}
		return e.typeOnce, nil
	}
	if len(params.Keys) > 0 || params.Paste {
		return nil, errNoTerminal().With("session_id", e.session.id)
	}
	if e.stdin == nil {
		return nil, api.Errorf(api.CodeInvalidParams, "the command was started without an open stdin").
			WithHint("start it with stdin_open: true, then exec.input writes to it")
	}
	return e.send, nil
}

// Signal signals the processes of a running command, not its shell.
func (p *Pool) Signal(_ context.Context, params api.ExecSignalParams) (*api.ExecSignalResult, error) {
	e, err := p.exec(params.ExecID)
	if err != nil {
		return nil, err
	}
	sig, ok := process.ParseSignal(params.Signal)
	if !ok {
		return nil, api.Errorf(api.CodeInvalidParams, "there is no such signal").With("field", "signal").
			WithHint("use a name such as TERM, INT or HUP, or a number")
	}
	if err := e.session.errIfTerminated(); err != nil {
		return nil, err
	}
	own := 0
	if e.session.shell != nil {
		own, _ = e.session.shell.PID()
	}
	n := 0
	for _, pid := range e.session.tree.Marked(e.mark, own) {
		if e.session.tree.Signal(pid, sig) {
			n++
		}
	}
	return &api.ExecSignalResult{ExecID: e.id, Processes: n}, nil
}

// Cancel stops a command and answers once it is gone. An exec that has ended
// already is not cancelled, and that is no error.
func (p *Pool) Cancel(ctx context.Context, params api.ExecCancelParams) (*api.ExecCancelResult, error) {
	e, err := p.toCancel(params)
	if err != nil {
		return nil, err
	}
	e.stop(causeCancel)
	select {
	case <-e.done:
	case <-ctx.Done():
		return nil, api.Errorf(api.CodeInternal, "the caller stopped waiting: %w", ctx.Err()).With("exec_id", e.id)
	}
	return &api.ExecCancelResult{ExecID: e.id, Cancelled: e.result().Cancelled}, nil
}

func (p *Pool) toCancel(params api.ExecCancelParams) (*Exec, error) {
	switch {
	case params.ExecID != "" && params.SessionID == "":
		return p.exec(params.ExecID)
	case params.ExecID == "" && params.SessionID != "":
		s, err := p.session(params.SessionID)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.state == api.StateTerminated {
			return nil, s.errTerminated()
		}
		if err := s.errIfUnreadable(); err != nil {
			return nil, err
		}
		if s.running == nil {
			return nil, api.Errorf(api.CodeInvalidRequest, "no command is running in the session").With("session_id", s.id).
				WithHint("there is nothing to cancel; exec.list shows what has run")
		}
		return s.running, nil
	default:
		return nil, api.Errorf(api.CodeInvalidParams, "give either exec_id or session_id").With("field", "exec_id").
			WithHint("exec_id cancels that exec, session_id the one that runs in the session")
	}
}

// ExecInfo returns an exec without its output.
func (p *Pool) ExecInfo(_ context.Context, params api.ExecParams) (*api.ExecResult, error) {
	e, err := p.exec(params.ExecID)
	if err != nil {
		return nil, err
	}
	return e.result(), nil
}

// ExecList returns a session's execs, oldest first: those that are kept, the
// running one, and those that wait.
func (p *Pool) ExecList(_ context.Context, params api.SessionParams) (*api.ExecListResult, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	execs := append([]*Exec(nil), s.finished...)
	if s.running != nil {
		execs = append(execs, s.running)
	}
	execs = append(execs, s.queue...)
	s.mu.Unlock()
	out := &api.ExecListResult{Execs: make([]api.ExecResult, 0, len(execs))}
	for _, e := range execs {
		out.Execs = append(out.Execs, *e.result())
	}
	return out, nil
}
