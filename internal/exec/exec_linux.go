package exec

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// Exec is one command: a durable handle to it, its output and its result. It
// outlives the call that started it.
type Exec struct {
	env     *Env
	session string // id of its session
	id      string
	number  int64 // among the session's execs, from 1 on
	key     string
	sum     uint32 // checksum of its params, if it has a key; 0 means unknown
	mark    uint32 // of the processes it starts
	journal *journal.Journal
	term    *terminal.Terminal // nil means that it has pipes

	command     shell.Command // what to run; cleared when it has ended
	timeout     time.Duration
	idleTimeout time.Duration
	streaming   bool // output is moved as it comes, from the start
	resumed     bool // an earlier daemon began it

	stopped   chan struct{}   // closed by stop: the command must end
	stopCause atomic.Int32    // a cause; set once, before stopped is closed
	mayBegin  chan struct{}   // closed when a queued exec may begin, or never will
	done      <-chan struct{} // closed when the command is over and its result is final
	doneCtx   context.Context // the same as a context, for context.AfterFunc
	setDone   context.CancelFunc
	lastByte  atomic.Int64 // when the command last wrote or was sent something, as UnixNano
	stdout    *outputPump
	stderr    *outputPump
	stdin     *input           // nil means none
	streams   atomic.Int32     // pumps that have not finished
	keys      chan unix.Signal // typed keys that signal INT or QUIT; on a terminal only
	typed     atomic.Bool      // this daemon has typed for it on a terminal

	// persistMu serializes writes to the ledger, so that the last one has the
	// latest state. It is taken before all other locks of the exec and its pumps.
	persistMu      sync.Mutex
	forgotten      bool         // nothing is persisted any more; guarded by persistMu
	keyedInputs    []keyedInput // oldest first; guarded by persistMu
	inputPersisted bool         // there is an InputState in the ledger; guarded by persistMu

	mu    sync.Mutex
	res   api.ExecResult // without output
	began time.Time
	ended time.Time
	sizes []resize // of its terminal, in order

	before process.LimitCounters // when it began, in a session with limits
	peaks  *process.Peaks        // since it began; nil after a restart
	denied int64                 // what the network of its cell had refused when it began
}

// Spec describes a command.
type Spec struct {
	ID          string
	SessionID   string
	Params      api.ExecCommand // what the caller gave; echo says what the result repeats of it
	Key         string
	Sum         uint32 // checksum of the params, if there is a key; 0 means unknown
	Command     shell.Command
	Timeout     time.Duration
	IdleTimeout time.Duration
	Streaming   bool               // output is moved as it comes, from the start
	Terminal    *terminal.Terminal // nil means that the command gets pipes
}

// New returns an exec that has not begun.
func New(env *Env, spec Spec) *Exec {
	now := time.Now()
	e := &Exec{
		env: env, session: spec.SessionID, id: spec.ID, key: spec.Key, sum: spec.Sum, began: now,
		command: spec.Command, timeout: spec.Timeout, idleTimeout: spec.IdleTimeout, streaming: spec.Streaming,
		term:     spec.Terminal,
		journal:  env.cfg.Journals.New(),
		stopped:  make(chan struct{}),
		mayBegin: make(chan struct{}),
	}
	if e.term != nil {
		e.keys = make(chan unix.Signal, 1)
	}
	e.doneCtx, e.setDone = context.WithCancel(context.Background())
	e.done = e.doneCtx.Done()
	e.res = echo(&spec.Params)
	e.res.ExecID, e.res.SessionID, e.res.StartedAt = e.id, e.session, api.Time{Time: now}
	e.res.State, e.res.Outcome = api.ExecQueued, api.OutcomeRunning
	e.res.Merged = e.res.Merged && e.term == nil // a terminal has one stream
	return e
}

// ID returns the id of the exec.
func (e *Exec) ID() string { return e.id }

// Number returns its place among the execs of its session, from 1 on.
func (e *Exec) Number() int64 { return e.number }

// Journal returns the journal that has its output.
func (e *Exec) Journal() *journal.Journal { return e.journal }

// Touch records that the command wrote or was sent something just now.
func (e *Exec) Touch() { e.lastByte.Store(time.Now().UnixNano()) }

// LastByte returns when the command last wrote or was sent something.
func (e *Exec) LastByte() time.Time { return time.Unix(0, e.lastByte.Load()) }

// Slots returns the holder's slots of the exec.
func (e *Exec) Slots() []holder.Slot {
	slots := e.journal.Slots()
	if e.stdin != nil {
		in := e.stdin.slots
		slots = append(slots, in.read, in.write, in.buffer)
	}
	for c := range e.pumps() {
		slots = append(slots, c.slot())
	}
	return slots
}

// pumps returns the pumps of its streams. After a restart one may be missing,
// because its stream has ended.
func (e *Exec) pumps() iter.Seq[*outputPump] {
	return func(yield func(*outputPump) bool) {
		for _, c := range []*outputPump{e.stdout, e.stderr} {
			if c != nil && !yield(c) {
				return
			}
		}
	}
}

// merged reports whether stderr goes where stdout goes.
func (e *Exec) merged() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.res.Merged
}

// EndedBefore reports whether the exec ended before t.
func (e *Exec) EndedBefore(t time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.ended.IsZero() && e.ended.Before(t)
}

// EndedAt returns when the exec ended, zero if it has not.
func (e *Exec) EndedAt() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// Key returns the idempotency key that it came with, "" for none.
func (e *Exec) Key() string { return e.key }

// Sum returns the checksum of its params, 0 if it is unknown.
func (e *Exec) Sum() uint32 { return e.sum }

// Mark returns the mark of the processes that it starts.
func (e *Exec) Mark() uint32 { return e.mark }

// Done returns a channel that is closed when the command is over and its result is
// final.
func (e *Exec) Done() <-chan struct{} { return e.done }

// SetDone closes the channel of Done.
func (e *Exec) SetDone() { e.setDone() }

// Stopped returns a channel that is closed when the command must end.
func (e *Exec) Stopped() <-chan struct{} { return e.stopped }

// Admitted returns a channel that is closed by Admit.
func (e *Exec) Admitted() <-chan struct{} { return e.mayBegin }

// ReleaseOutput drops the output.
func (e *Exec) ReleaseOutput() { e.journal.Release() }

// IsDone reports whether the channel of Done is closed.
func (e *Exec) IsDone() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// State returns whether the exec is queued, running or exited.
func (e *Exec) State() api.ExecState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.res.State
}

// StartedAt returns when the command began; false means that it has not.
func (e *Exec) StartedAt() (time.Time, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.res.StartedAt.Time, e.res.State != api.ExecQueued
}

// Ending returns how the command ended. It must have.
func (e *Exec) Ending() (api.Outcome, *int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.res.Outcome, e.res.ExitCode
}

// Label returns the name of the exec in lists, "" for none. It never changes, so
// that a list of sessions takes no lock for it.
func (e *Exec) Label() string { return e.res.Label }

// Cwd returns the working directory of the shell when the command ended.
func (e *Exec) Cwd() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.res.Cwd
}

// Result returns what is known of the exec now, without output.
func (e *Exec) Result() *api.ExecResult {
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

func (e *Exec) cause() cause { return cause(e.stopCause.Load()) }
