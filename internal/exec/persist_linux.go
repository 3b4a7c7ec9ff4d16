package exec

import (
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/state"
)

// Persist writes the state of the exec to the ledger, with the slots of its input
// and output while it runs. Slots that the ledger no longer names are released
// after that. It reports whether the output has ended and is in the ledger.
func (e *Exec) Persist() (whole bool) {
	e.persistMu.Lock()
	defer e.persistMu.Unlock()
	n := e.env.stateBuffers.Get().(*stateBuffer)
	defer e.env.putStateBuffer(n)
	r := &n.state
	*r = State{session: e.session, number: e.number, key: e.key, sum: e.sum, timeout: e.timeout, idleTimeout: e.idleTimeout, why: e.cause(), before: e.before, denied: e.denied}
	var ended []*outputPump
	for i, c := range []*outputPump{e.stdout, e.stderr} {
		if c == nil {
			continue
		}
		if r.output[i] = c.slot(); r.output[i] == 0 {
			ended = append(ended, c)
		}
	}
	var unused []holder.Slot
	if e.stdin != nil {
		r.stdin, unused = e.stdin.slotsToPersist()
	}
	whole = e.journal.Closed()
	if e.env.cfg.Ledger != nil && !e.forgotten {
		e.persistLocked(n, whole)
	}
	for _, c := range ended {
		c.release()
	}
	if e.stdin != nil {
		e.stdin.dropSlots(unused)
	}
	return whole
}

// persistInput changes what is known of the exec's input and persists it in one
// step.
func (e *Exec) persistInput(change func()) {
	e.persistMu.Lock()
	defer e.persistMu.Unlock()
	change()
	e.inputPersisted = true
	if e.env.cfg.Ledger == nil || e.forgotten {
		return
	}
	n := e.env.stateBuffers.Get().(*stateBuffer)
	defer e.env.putStateBuffer(n)
	r := InputState{session: e.session, keyed: e.keyedInputs}
	if e.stdin != nil {
		r.end, r.eof = e.stdin.size(), e.stdin.atEOF()
	}
	n.coder = state.Writer(n.value[:0])
	r.Fields(&n.coder)
	n.value = n.coder.Value()
	e.env.cfg.Ledger.Put(InputPrefix+e.id, n.value)
}

// Forget removes the exec from the ledger, for good.
func (e *Exec) Forget() {
	e.persistMu.Lock()
	e.forgotten = true
	if l := e.env.cfg.Ledger; l != nil {
		l.Erase(StatePrefix + e.id)
		l.Erase(InputPrefix + e.id)
	}
	e.persistMu.Unlock()
	e.Persist() // releases its pipes
}

// persistLocked writes the state, with the output if that is whole. The caller must
// hold persistMu.
func (e *Exec) persistLocked(n *stateBuffer, whole bool) {
	r := &n.state
	if last := e.lastByte.Load(); last != 0 {
		r.lastByte = time.Unix(0, last)
	}
	e.mu.Lock()
	r.state, r.began, r.ended, r.result, r.sizes = e.res.State, e.res.StartedAt.Time, e.ended, e.res, e.sizes
	if r.running = time.Since(e.began); r.state != api.ExecExited {
		r.at = process.SinceBoot() // its timeouts go on
	}
	r.command = e.command // cleared when it has ended; until its shell has it, only this says what to run
	e.mu.Unlock()
	if whole {
		n.journal = e.journal.AppendValue(n.journal[:0])
		r.journal = n.journal
	} else {
		r.lane, _ = e.journal.LiveSegment()
	}
	n.coder = state.Writer(n.value[:0])
	r.Fields(&n.coder)
	n.value = n.coder.Value()
	e.env.cfg.Ledger.Put(StatePrefix+e.id, n.value)
}
