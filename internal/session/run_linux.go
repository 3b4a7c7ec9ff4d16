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
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/label"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
)

// execMode is how a command is run for its caller.
type execMode int

const (
	// inline runs it in the caller's goroutine, which has nothing else to do. The
	// goroutine stays with the command when its caller is gone. Waking another one
	// costs 15 % of exec.run true (p50 304 µs against 263 µs over the socket, p10
	// 174 µs against 152 µs, both daemons in turn on a busy machine of 2 cores).
	inline execMode = iota
	// background runs it in a goroutine of the pool.
	background
	// streaming is background for a caller that waits for every byte.
	streaming
)

// execute starts the command, or queues it, or finds the one that was started with
// the same key.
func (s *Session) execute(ctx context.Context, params api.ExecCommand, how execMode) (*exec.Exec, error) {
	if err := s.errIfUnreadable(); err != nil {
		return nil, err
	}
	if len(s.params.Argv) > 0 {
		return nil, api.Errorf(api.CodeSessionBusy, "a direct session runs only the command it was created with").With("session_id", s.id).With("exec_id", s.snapshot().ExecID).
			WithHint("session.create without argv makes a session that runs commands")
	}
	if err := s.errIfCreating(); err != nil {
		return nil, err
	}
	s.trackConnection(ctx)
	e, result, err := s.admit(ctx, params, how)
	switch {
	case err != nil:
		return nil, err
	case result == isDuplicate:
		return e, nil
	case result == isQueued:
		// From here on it belongs to the session, as a running one does: it stays
		// in the queue when its caller goes away.
		s.shared.spawn(func() { s.runQueued(e) })
		return e, nil
	}
	if err := e.OpenOutput(); err != nil {
		return nil, s.failStart(e, err)
	}
	s.begin(e, time.Now())
	if how == inline {
		s.runShell(e)
	} else {
		s.shared.spawn(func() { s.runShell(e) })
	}
	return e, nil
}

// admission is what became of a command that was to run in a session.
type admission int

const (
	runsNow     admission = iota // it is to be run now
	isQueued                     // it is in the queue
	isDuplicate                  // an earlier one had the same key
)

// admit creates an exec and enters it into the session. Commands are entered in the
// order in which they arrive: admit takes its place before it checks the params,
// because the check may have to wait for a file system.
func (s *Session) admit(ctx context.Context, params api.ExecCommand, how execMode) (*exec.Exec, admission, error) {
	place := s.admission.Join()
	arrival.MarkQueued(ctx)
	defer func() {
		<-place
		s.admission.Next()
	}()
	e, err := s.prepare(params, how)
	if err != nil {
		return nil, 0, err
	}
	<-place
	entered, queued, err := s.enter(e, params.Lease, params.Wait)
	switch {
	case err != nil:
		e.Discard()
		return nil, 0, err
	case entered != e:
		e.Discard()
		return entered, isDuplicate, nil
	case queued:
		return e, isQueued, nil
	}
	return e, runsNow, nil
}

// runQueued runs a queued exec once it is admitted, unless it is stopped first.
func (s *Session) runQueued(e *exec.Exec) {
	select {
	case <-e.Admitted():
	case <-e.Stopped():
		if s.unqueue(e) {
			e.CancelQueued()
			return
		}
		<-e.Admitted() // it was admitted at the same moment, and is stopped as it starts
	}
	if e.IsDone() {
		return // the session has ended
	}
	if err := e.OpenOutput(); err != nil {
		s.shared.cfg.Log.Error("cannot start a queued command", "error", s.failStart(e, err))
		return
	}
	now := time.Now()
	e.SetQueued(now)
	s.begin(e, now)
	s.runShell(e)
}

// unqueue removes e from the queue and reports whether it was in it.
func (s *Session) unqueue(e *exec.Exec) bool {
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

// failStart ends an exec that was admitted and can't be started.
func (s *Session) failStart(e *exec.Exec, err error) error {
	e.FailStart()
	s.execEnded(e, nil)
	return api.Errorf(api.CodeInternal, "open pipes: %w", err).
		WithHint("the daemon is out of descriptors: try again, or destroy sessions that are not needed")
}

// prepare checks the params and makes the exec.
func (s *Session) prepare(params api.ExecCommand, how execMode) (*exec.Exec, error) {
	if err := exec.CheckEcho(&params); err != nil {
		return nil, err
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
	if s.term != nil && params.Stdin != nil {
		return nil, api.Errorf(api.CodeInvalidParams, "a command on a terminal reads from the terminal").With("field", "stdin").
			WithHint("leave stdin out and type with exec.input, or use a session without tty")
	}
	spec := exec.Spec{
		ID: newNodeID("e-", s.shared.cfg.Node), SessionID: s.id, Params: params, Key: params.Key,
		Command: shell.Command{Text: params.Command, Env: env, Dir: dir},
		Timeout: s.timeout, IdleTimeout: time.Duration(params.IdleTimeoutMS) * time.Millisecond,
		Streaming: how == streaming, Terminal: s.term,
	}
	if params.Key != "" {
		compared := params
		compared.Wait, compared.Lease = false, "" // of the call, not of the command
		spec.Sum = sumOf(compared)
	}
	if params.Label == "" && !s.shared.cfg.NoLabels {
		spec.Params.Label = label.Of(params.Command)
	}
	if params.TimeoutMS != nil {
		spec.Timeout = time.Duration(*params.TimeoutMS) * time.Millisecond
	}
	e := exec.New(s.shared.execEnv, spec)
	if s.term == nil && (params.Stdin != nil || params.StdinOpen) {
		if err := e.NewInput(stdin, params.StdinOpen); err != nil {
			e.Discard()
			if errors.Is(err, holder.ErrGone) { // that ends all sessions
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

// enter makes e the running exec, or queues it, or returns the exec that has the
// same key.
func (s *Session) enter(e *exec.Exec, lease string, wait bool) (entered *exec.Exec, queued bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Key() != "" {
		switch first := s.keys[e.Key()]; {
		case first != nil && first.Sum() != 0 && first.Sum() != e.Sum():
			return nil, false, exec.ErrOtherParams()
		case first != nil:
			return first, false, nil
		case s.shared.usedKeys.has(usedKey{s.id, e.Key()}):
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
			With("session_id", s.id).With("exec_id", s.running.ID()).
			WithHint("pass wait: true to queue behind it, exec.cancel to end it, or use another session")
	}
	s.execCount++
	e.SetNumber(s.execCount, markOf(s.execCount))
	s.active = time.Now()
	s.addKey(e)
	s.addExec(e)
	if s.running != nil {
		s.queue = append(s.queue, e)
		e.Persist()
		return e, true, nil
	}
	s.running = e
	s.transitionTo(api.StateRunning)
	return e, false, nil
}

// runShell runs a command in the session's shell.
func (s *Session) runShell(e *exec.Exec) { s.drive(e, s.shell.Run) }

// resumeShell goes on with a command that an earlier daemon began.
func (s *Session) resumeShell(e *exec.Exec) { s.drive(e, s.shell.Resume) }

func (s *Session) drive(e *exec.Exec, run func(shell.Command) (shell.Result, error)) {
	s.shared.execsRunning.Add(1)
	defer s.shared.execsRunning.Add(-1)
	res, err := e.Run(run)
	var cwd string
	var survivors []api.Process
	if err == nil {
		cwd = s.cwd()
		survivors = s.survivorsOf(e)
	}
	e.FinishInShell(res, err, cwd, survivors, s.reached(e, res.Signal))
	s.execEnded(e, err)
}

// survivorsOf returns the processes that an exec left running.
func (s *Session) survivorsOf(e *exec.Exec) []api.Process {
	pid, standby := s.shell.PID()
	left := s.tree.Survivors(e.Mark(), pid, standby)
	for wait := startWaitStep; len(left) > 0 && wait <= maxStartWait && s.isStarting(left); wait *= 2 {
		time.Sleep(wait)
		left = s.tree.Survivors(e.Mark(), pid, standby)
	}
	if len(left) == 0 {
		return nil
	}
	return s.describeProcesses(left)
}

// A process that a shell has just forked execs its program within a millisecond, if
// there is a free CPU. A subshell stays a shell, and sleeps while it waits for its
// children.
const (
	startWaitStep = 500 * time.Microsecond
	maxStartWait  = 64 * time.Millisecond
)

// isStarting reports whether one of the processes was forked just now, is running,
// and has not finished its exec: it has the command line of the shell, or none.
func (s *Session) isStarting(pids []int) bool {
	return slices.ContainsFunc(s.tree.Describe(pids), func(in process.Info) bool {
		return in.Busy && in.Age < recentlyForked && (s.program.IsDriven(in.Command) || strings.HasPrefix(in.Command, "["))
	})
}

// recentlyForked is how old a process that was just forked may seem: the kernel
// counts ages in hundredths of a second.
const recentlyForked = 200 * time.Millisecond

// execEnded makes the session idle again, or admits the next exec. If err is not
// nil the shell is gone for good, and the session ends.
func (s *Session) execEnded(e *exec.Exec, err error) {
	s.mu.Lock()
	s.running = nil
	s.retain(e)
	s.execOver(e)
	s.active = time.Now()
	s.idleCwd = e.Cwd()
	var next *exec.Exec
	lost := err != nil && !s.ending
	switch {
	case s.ending: // no exec may begin, and the session never becomes idle
	case lost:
		s.ending = true
	case len(s.queue) > 0:
		next, s.queue = s.queue[0], s.queue[1:]
		s.running = next // the session stays running
		s.emit(api.SessionEvent{Type: api.EventState, State: api.StateRunning, ExecID: next.ID(), ExecLabel: next.Label()})
		s.execStarted(next)
	default:
		s.transitionTo(api.StateIdle)
	}
	dropped := s.takeSurplus()
	s.mu.Unlock()
	e.PersistEnd()
	e.SetDone()
	s.dropExecs(dropped)
	if lost {
		s.shared.cfg.Log.Error("the shell is lost", "event", "shell_lost", "session", s.id, "error", err)
		why := api.ReasonShellLost
		if errors.Is(err, holder.ErrGone) {
			why = api.ReasonLost // all sessions are
		}
		s.shared.spawn(func() { s.end(why, nil) })
	}
	if next != nil {
		next.Admit()
	}
}

// takeSurplus removes and returns the oldest execs beyond the quota. The caller
// must hold s.mu.
func (s *Session) takeSurplus() []*exec.Exec {
	n := len(s.finished) - int(s.shared.execQuota.Load())
	if n <= 0 {
		return nil
	}
	dropped := slices.Clone(s.finished[:n])
	s.finished = slices.Delete(s.finished, 0, n)
	s.releaseKeys(dropped)
	return dropped
}
