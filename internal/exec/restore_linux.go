package exec

import (
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// Restore returns an exec of an earlier process, with its output and input. in is
// nil if no input came later than with the command.
func Restore(env *Env, id string, r *State, in *InputState, mark uint32, term *terminal.Terminal) *Exec {
	e := New(env, Spec{
		ID: id, SessionID: r.session, Key: r.key, Sum: r.sum, Command: r.command,
		Timeout: r.timeout, IdleTimeout: r.idleTimeout, Terminal: term,
	})
	e.number, e.mark = r.number, mark
	if !r.lastByte.IsZero() {
		e.lastByte.Store(r.lastByte.UnixNano())
	}
	e.began, e.ended, e.sizes = time.Now().Add(r.at-process.SinceBoot()-r.running), r.ended, r.sizes
	e.before, e.denied = r.before, r.denied
	e.res = r.result
	e.res.ExecID, e.res.SessionID, e.res.State, e.res.StartedAt = e.id, e.session, r.state, api.Time{Time: r.began}
	if r.state != api.ExecExited {
		e.res.Outcome = api.OutcomeRunning
	}
	if in != nil {
		e.keyedInputs, e.inputPersisted = in.keyed, true
	}
	e.restoreJournal(r)
	if r.stdin.read != 0 && r.state != api.ExecExited {
		if err := e.adoptInput(r.stdin, in); err != nil {
			e.env.cfg.Log.Error("cannot restore input", "exec", e.id, "error", err)
		}
	}
	e.adoptOutput(r)
	if r.why != causeNone {
		e.stopCause.Store(int32(r.why))
		close(e.stopped)
	}
	if r.state != api.ExecQueued && r.state != api.ExecRunning {
		e.setDone()
	}
	return e
}

// restoreJournal restores the output.
func (e *Exec) restoreJournal(r *State) {
	store := e.env.cfg.Journals
	e.journal.Release() // of New
	var err error
	switch {
	case len(r.journal) > 0:
		e.journal, err = store.RestoreValue(r.journal)
	case r.lane != journal.LiveSegment{}:
		e.journal, err = store.Restore(r.lane)
	default:
		e.journal = store.New()
	}
	if err != nil {
		e.env.cfg.Log.Error("cannot restore output", "exec", e.id, "error", err)
		e.journal = store.New() // for what is still to come
	}
}

// adoptOutput goes on with the streams that have not ended.
func (e *Exec) adoptOutput(r *State) {
	for i, to := range []**outputPump{&e.stdout, &e.stderr} {
		if r.output[i] == 0 {
			continue
		}
		pump, err := adoptOutputPump(e.env, e, e.journal, journal.Stream(i), r.output[i])
		if err != nil {
			e.env.cfg.Log.Error("cannot restore output", "exec", e.id, "error", err)
			continue
		}
		e.streams.Add(1)
		*to = pump
	}
}

// adoptInput takes over the command's stdin. known is nil if no input came later
// than with the command.
func (e *Exec) adoptInput(slots inputSlots, known *InputState) error {
	in := e.makeInput()
	in.slots = slots
	var end *int64
	if known != nil {
		in.eof, in.eofReady, end = known.eof, known.eof, &known.end
	}
	if err := in.adopt(end); err != nil {
		in.close() // the holder still has what is in the slots
		return err
	}
	e.stdin = in
	return nil
}

// SetResumed marks the command as begun by an earlier daemon. It must be called
// before Run.
func (e *Exec) SetResumed() { e.streaming, e.resumed = true, true }
