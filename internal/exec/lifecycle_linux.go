package exec

import (
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/shell"
)

// stop ends the command. Only the first cause counts.
func (e *Exec) stop(why cause) {
	if e.stopCause.CompareAndSwap(int32(causeNone), int32(why)) {
		if e.State() == api.ExecRunning {
			e.Persist() // before anything happens: a later daemon must know why it ended
		}
		close(e.stopped)
	}
}

// Cancel stops the command.
func (e *Exec) Cancel() { e.stop(causeCancel) }

// SetQueued records that the exec was queued until now.
func (e *Exec) SetQueued(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.res.QueuedMS = max(now.Sub(e.began).Milliseconds(), 0)
}

// Begin marks the exec as running.
func (e *Exec) Begin(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.began = now
	e.res.State = api.ExecRunning
	e.res.StartedAt = api.Time{Time: now}
	e.journal.Begin(now)
	e.lastByte.Store(now.UnixNano())
}

// finish makes the result final. fill sets how the command ended.
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
	if ended := e.env.cfg.Ended; ended != nil {
		ended(r.Outcome, e.ended.Sub(e.began), r.TimedOut || r.Cancelled)
	}
}

// CancelQueued ends an exec that is still queued.
func (e *Exec) CancelQueued() {
	e.stop(causeCancel)
	e.finish(func(*api.ExecResult) {})
	e.CloseInput()
	e.CloseJournal()
	e.setDone()
}

// FailStart ends an exec that was admitted and can't be started.
func (e *Exec) FailStart() {
	e.stop(causeCancel)
	e.finish(func(*api.ExecResult) {})
	e.journal.Seal()
}

// Discard drops an exec that was never admitted.
func (e *Exec) Discard() {
	e.journal.Release()
	e.CloseInput()
	e.Forget()
}

// CloseInput closes the command's stdin. Input that the pipe has not taken counts
// as not sent when it is repeated with its key.
func (e *Exec) CloseInput() {
	if e.stdin == nil {
		return
	}
	e.stdin.close()
	taken := e.stdin.taken()
	if e.stdin.size() == taken {
		return
	}
	e.persistInput(func() {
		for i := range e.keyedInputs {
			if k := &e.keyedInputs[i]; k.next > taken {
				k.whole, k.taken = false, max(0, k.taken-(k.next-taken))
			}
		}
	})
}

// streamEnded is called by each pump when its stream has ended. After the last of
// them the journal is closed, once it is persisted what it has.
func (e *Exec) streamEnded() {
	if e.streams.Add(-1) != 0 {
		return
	}
	e.journal.Seal()
	if e.State() == api.ExecExited {
		e.PersistEnd()
	}
}

// PersistEnd persists how the exec ended. Processes that the command left behind
// may still write to its journal.
func (e *Exec) PersistEnd() {
	if e.Persist() {
		e.journal.Close() // its content is in the ledger
	}
}

// CloseJournal ends the output of an exec to which nothing writes any more.
func (e *Exec) CloseJournal() {
	e.journal.Seal()
	e.PersistEnd()
}

// Admit lets a queued exec begin. If it is done already, the goroutine that waits
// for its turn ends.
func (e *Exec) Admit() { close(e.mayBegin) }

// SetNumber sets its place among the session's execs and the mark of its processes.
func (e *Exec) SetNumber(number int64, mark uint32) { e.number, e.mark = number, mark }
