package session

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
)

// cause is why a command is stopped before it ends by itself.
type cause int32

const (
	causeNone cause = iota
	causeTimeout
	causeCancel
)

// execution is one command: a durable handle to it, its output and its end. It
// belongs to its session and outlives the call that started it.
type Exec struct {
	session *Session
	id      string
	number  int64 // of the session's execs
	key     string
	sum     uint32 // of its params, if it has a key; 0: not known
	mark    uint32 // of the processes it starts
	journal *journal.Journal

	command     shell.Command // what is run; its text is dropped when it ended
	timeout     time.Duration
	idleTimeout time.Duration
	streaming   bool // output is moved as it comes from the start
	resumed     bool // an earlier daemon began it

	stopped   chan struct{}   // closed by stop: the command must end
	stopCause atomic.Int32    // cause; set once, before stopped is closed
	mayBegin  chan struct{}   // closed when a queued exec may begin, or never will
	done      <-chan struct{} // closed when the command is over and its result stands
	doneCtx   context.Context // the same as a context, which other contexts can follow
	setDone   context.CancelFunc
	lastByte  atomic.Int64 // when output came last, as UnixNano
	stdout    *outputPump
	stderr    *outputPump
	stdin     *input           // nil: it has none
	streams   atomic.Int32     // captures that have not finished
	keys      chan unix.Signal // typed ones that signal INT or QUIT; on a terminal

	// noting makes notes one after the other, so that the last one tells what is.
	// It comes before every other lock of the exec and its captures.
	persistMu      sync.Mutex
	forgotten      bool         // nothing is noted any more. Under noting.
	keyedInputs    []keyedInput // the oldest first. Under noting.
	inputPersisted bool         // there is a note of its input. Under noting.

	mu    sync.Mutex
	res   api.ExecResult // without output
	began time.Time
	ended time.Time
	sizes []resize // of its terminal, in order
}

func (s *Session) newExec(key string) *Exec {
	now := time.Now()
	e := &Exec{
		session: s, id: newID("e-"), key: key, began: now,
		journal:  s.pool.store.New(),
		stopped:  make(chan struct{}),
		mayBegin: make(chan struct{}),
	}
	if s.params.TTY != nil {
		e.keys = make(chan unix.Signal, 1)
	}
	e.doneCtx, e.setDone = context.WithCancel(context.Background())
	e.done = e.doneCtx.Done()
	e.res = api.ExecResult{
		ExecID: e.id, SessionID: s.id, State: api.ExecQueued, Outcome: api.OutcomeRunning, StartedAt: api.Time{Time: now},
	}
	return e
}

// stop has the command ended, for the first cause that comes.
func (e *Exec) stop(why cause) {
	if e.stopCause.CompareAndSwap(int32(causeNone), int32(why)) {
		if e.state() == api.ExecRunning {
			e.persist() // before it is acted on: a later daemon must know why it ended
		}
		close(e.stopped)
	}
}

func (e *Exec) cause() cause { return cause(e.stopCause.Load()) }

// waited says that the exec has waited for its turn until now.
func (e *Exec) setQueued(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.res.QueuedMS = max(now.Sub(e.began).Milliseconds(), 0)
}

// begin marks the exec as running.
func (e *Exec) begin(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.began = now
	e.res.State = api.ExecRunning
	e.res.StartedAt = api.Time{Time: now}
	e.journal.Begin(now)
	e.lastByte.Store(now.UnixNano())
}

// finish fixes the result.
func (e *Exec) finish(fill func(*api.ExecResult)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = time.Now()
	e.command = shell.Command{}
	r := &e.res
	r.State = api.ExecExited
	r.DurationMS = e.ended.Sub(e.began).Milliseconds()
	r.TimedOut = e.cause() == causeTimeout
	r.Cancelled = e.cause() == causeCancel
	fill(r)
	switch {
	case r.TimedOut:
		r.Outcome = api.OutcomeTimedOut
	case r.Cancelled:
		r.Outcome = api.OutcomeCancelled
	}
	if o := e.session.pool.cfg.Observer; o != nil {
		o.ExecEnded(r.Outcome, e.ended.Sub(e.began), r.TimedOut || r.Cancelled)
	}
}

// neverRan ends an exec that was still waiting for its turn.
func (e *Exec) cancelQueued() {
	e.stop(causeCancel)
	e.finish(func(*api.ExecResult) {})
	e.closeInput()
	e.closeJournal()
	e.setDone()
}

func (e *Exec) endedBefore(t time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.ended.IsZero() && e.ended.Before(t)
}

// endedAt is when the exec ended; zero: it has not.
func (e *Exec) endedAt() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// over reports whether done is closed.
func (e *Exec) isDone() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

func (e *Exec) state() api.ExecState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.res.State
}

// cwd is where its shell was when it ended.
func (e *Exec) cwd() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.res.Cwd
}

// result is what is known of the exec now, without output.
func (e *Exec) result() *api.ExecResult {
	e.mu.Lock()
	r := e.res
	if r.State == api.ExecRunning {
		r.DurationMS = time.Since(e.began).Milliseconds()
	}
	e.mu.Unlock()
	r.StdoutBytes = e.journal.Total(journal.Stdout) + e.journal.Total(journal.TTY)
	r.StderrBytes = e.journal.Total(journal.Stderr)
	for _, st := range []journal.Stream{journal.Stdout, journal.Stderr, journal.TTY} {
		r.DroppedBytes += e.journal.Dropped(st)
	}
	return &r
}

// merged reports whether stderr goes where stdout goes.
func (e *Exec) merged() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.res.Merged
}

// openOutput makes the pipes that the command writes to, and pumps that move
// what arrives into the journal.
func (e *Exec) openOutput() error {
	if t := e.session.term; t != nil {
		t.assign(e)
		return nil
	}
	var err error
	e.streams.Store(2)
	if e.stdout, err = newOutputPump(e, journal.Stdout); err != nil {
		return err
	}
	if e.merged() {
		e.streams.Store(1)
		return nil
	}
	if e.stderr, err = newOutputPump(e, journal.Stderr); err != nil {
		e.stdout.abort()
		return err
	}
	return nil
}

// pumpOutput moves the output as it comes, from now on.
func (e *Exec) pumpOutput() {
	for c := range e.pumps() { // a terminal is always read
		c.startPump()
	}
}

// captures are those of its streams. After a restart one may be at its end, and
// not be there.
func (e *Exec) pumps() iter.Seq[*outputPump] {
	return func(yield func(*outputPump) bool) {
		for _, c := range []*outputPump{e.stdout, e.stderr} {
			if c != nil && !yield(c) {
				return
			}
		}
	}
}

// settleOutput takes what the command has written before it ended. A process
// that it left behind keeps the pipe, and its output goes on into the journal.
func (e *Exec) drainOutput() {
	if t := e.session.term; t != nil {
		t.drain()
		return
	}
	for c := range e.pumps() {
		c.seal()
	}
	e.finishEmpty()
	for c := range e.pumps() {
		c.drain()
	}
}

// finishSilent ends those of its streams to which nobody has written and nobody
// can: in most commands one, in many both. To ask for them at once costs less
// than to pull from each.
func (e *Exec) finishEmpty() {
	var asked [2]*outputPump
	var polls [2]unix.PollFd
	n := 0
	for c := range e.pumps() {
		if fd := c.pollFD(); fd >= 0 {
			asked[n], polls[n] = c, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
			n++
		}
	}
	if n == 0 {
		return
	}
	if _, err := unix.Poll(polls[:n], 0); err != nil {
		return // then they are pulled from
	}
	for i, c := range asked[:n] {
		if polls[i].Revents == unix.POLLHUP {
			c.finishClean()
		}
	}
}

// closeOutput ends the pumps, when no process can write any more.
func (e *Exec) closeOutput() {
	for c := range e.pumps() {
		c.abort()
	}
	e.closeInput()
}

// watch arms the clocks that may stop the command. The function it returns
// disarms them.
func (e *Exec) startTimeouts() (disarm func()) {
	var timers []*time.Timer
	if e.timeout > 0 {
		// Of one that an earlier daemon began there is less left, or nothing.
		left := e.timeout - time.Since(e.began)
		if e.resumed && left <= 0 {
			e.session.pool.cfg.Log.Warn("a command is stopped late: its timeout passed while no daemon was there", "exec", e.id)
		}
		timers = append(timers, time.AfterFunc(left, func() { e.stop(causeTimeout) }))
	}
	if e.idleTimeout > 0 {
		var t *time.Timer
		var armed sync.Mutex // AfterFunc may fire before t is assigned
		armed.Lock()
		t = time.AfterFunc(e.idleTimeout, func() {
			armed.Lock()
			defer armed.Unlock()
			quiet := time.Since(time.Unix(0, e.lastByte.Load()))
			if quiet >= e.idleTimeout {
				e.stop(causeTimeout)
			} else {
				t.Reset(e.idleTimeout - quiet)
			}
		})
		armed.Unlock()
		timers = append(timers, t)
	}
	return func() {
		for _, t := range timers {
			t.Stop()
		}
	}
}

// run is the exec's life in a shell session, in a goroutine of the pool.
func (e *Exec) run() { e.drive(e.session.shell.Run) }

// resume is run of a command that an earlier daemon began.
func (e *Exec) resume() { e.drive(e.session.shell.Resume) }

func (e *Exec) drive(run func(shell.Command) (shell.Result, error)) {
	s := e.session
	s.pool.execsRunning.Add(1)
	defer s.pool.execsRunning.Add(-1)
	c := e.command
	c.ID, c.Mark, c.Stop = e.id, e.mark, e.stopped
	if e.stdin != nil {
		c.Stdin = e.stdin.path()
		e.stdin.startMove()
	}
	c.Keys = e.keys
	if e.stdout != nil {
		c.Stdout = e.stdout.path()
	}
	if e.merged() {
		c.Stderr = c.Stdout
	} else if e.stderr != nil {
		c.Stderr = e.stderr.path()
	}
	if e.streaming {
		e.pumpOutput()
	} else {
		c.StillRunning = e.pumpOutput
	}
	disarm := func() {}
	if arm := func() { disarm = e.startTimeouts() }; e.resumed {
		c.CaughtUp = arm // one that has ended meanwhile is not late
	} else {
		arm()
	}
	res, err := run(c)
	disarm()
	e.drainOutput()
	e.closeInput()
	var cwd string
	var survivors []api.Process
	if err == nil {
		cwd = s.cwd()
		survivors = s.survivorsOf(e)
	}
	e.finish(func(r *api.ExecResult) {
		if err != nil { // everything in the session was killed
			code := 128 + int(unix.SIGKILL)
			r.Outcome, r.ExitCode, r.Signal = api.OutcomeShellDied, &code, process.SignalName(unix.SIGKILL)
			return
		}
		fillShellResult(r, res)
		r.Cwd, r.Survivors = cwd, survivors
	})
	s.execEnded(e, err)
}

// fillShellResult tells what the driver saw in the words of the contract.
func fillShellResult(r *api.ExecResult, res shell.Result) {
	code := res.Code
	r.ExitCode = &code
	r.Signal = process.SignalName(res.Signal)
	r.RolledBack, r.RolledBackTo = res.RolledBack, res.RolledBackTo
	switch res.Ending {
	case shell.ShellExited:
		r.Outcome = api.OutcomeShellExited
	case shell.ShellDied:
		r.Outcome = api.OutcomeShellDied
	default:
		r.Outcome = api.OutcomeExited
		if sig := unix.Signal(code - 128); code > 128 && code <= 128+64 && unix.SignalName(sig) != "" {
			// What a shell reports of a child that a signal ended.
			r.Outcome, r.Signal = api.OutcomeSignaled, process.SignalName(sig)
		}
	}
}

// survivorsOf are the processes that an exec left running.
func (s *Session) survivorsOf(e *Exec) []api.Process {
	pid, standby := s.shell.PID()
	left := s.tree.Marked(e.mark, pid, standby)
	for wait := startWaitStep; len(left) > 0 && wait <= maxStartWait && s.isStarting(left); wait *= 2 {
		time.Sleep(wait)
		left = s.tree.Marked(e.mark, pid, standby)
	}
	if len(left) == 0 {
		return nil
	}
	return s.describeProcesses(left)
}

// What a shell has just forked becomes the program that it is for within a
// millisecond, if there is a processor for it. A subshell stays the shell, and sleeps
// while it waits for what it has started.
const (
	startWaitStep = 500 * time.Microsecond
	maxStartWait  = 64 * time.Millisecond
)

// becoming reports whether one of the processes was forked just now, runs, and is still
// what forked it, or between the two: it has no command line then.
func (s *Session) isStarting(pids []int) bool {
	return slices.ContainsFunc(s.tree.Describe(pids), func(in process.Info) bool {
		return in.Busy && in.Age < recentlyForked && (s.program.IsDriven(in.Command) || strings.HasPrefix(in.Command, "["))
	})
}

// bornLately is how old what the kernel has just started may seem: it counts ages in
// hundredths of a second.
const recentlyForked = 200 * time.Millisecond

// execEnded makes the session idle again and gives the next exec its turn. err
// means that the shell is gone for good.
func (s *Session) execEnded(e *Exec, err error) {
	s.mu.Lock()
	s.running = nil
	s.retain(e)
	s.active = time.Now()
	s.idleCwd = e.cwd()
	var next *Exec
	lost := err != nil && !s.ending
	if lost {
		s.ending = true
	} else if !s.ending {
		if len(s.queue) > 0 {
			next = s.queue[0]
			s.queue = s.queue[1:]
			s.running = next // the session stays running: it changes hands
			s.emit(api.SessionEvent{Type: api.EventState, State: api.StateRunning, ExecID: next.id})
		} else {
			s.transitionTo(api.StateIdle)
		}
	}
	dropped := s.takeSurplus()
	s.mu.Unlock()
	e.persistEnd()
	e.setDone()
	s.pool.forgetExecs(dropped)
	if lost {
		s.pool.cfg.Log.Error("the shell is lost", "event", "shell_lost", "session", s.id, "error", err)
		why := api.ReasonShellLost
		if errors.Is(err, holder.ErrGone) {
			why = api.ReasonLost // as are all
		}
		s.pool.spawn(func() { s.end(why, nil) })
	}
	if next != nil {
		close(next.mayBegin)
	}
}

// keep adds a finished exec to those that are kept. Under s.mu.
func (s *Session) retain(e *Exec) { s.finished = append(s.finished, e) }

// surplus takes out the oldest execs beyond the bound. Under s.mu.
func (s *Session) takeSurplus() []*Exec {
	n := len(s.finished) - int(s.pool.execQuota.Load())
	if n <= 0 {
		return nil
	}
	dropped := slices.Clone(s.finished[:n])
	s.finished = slices.Delete(s.finished, 0, n)
	s.releaseKeys(dropped)
	return dropped
}
