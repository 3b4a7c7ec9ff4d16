package session

import (
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/state"
)

// What is noted in the ledger is what a later process needs to go on with the
// sessions of one that died. An exec is noted before its shell is told to run
// it, and before anybody is told how it ended.

// put notes one value. A daemon that can't note goes on: what it can't note is
// lost only if it dies.
func (p *Pool) put(key string, value []byte) {
	if err := p.cfg.Ledger.Put(key, value); err != nil && p.persistFailed.CompareAndSwap(false, true) {
		p.cfg.Log.Error("what goes on can't be noted: sessions will not survive the daemon", "event", "not_noted", "error", err)
	}
}

func (p *Pool) erase(key string) {
	if p.cfg.Ledger != nil {
		_ = p.cfg.Ledger.Delete(key) // put has told
	}
}

// spend remembers a key whose exec or session is forgotten.
func (p *Pool) rememberKey(k usedKey) {
	gone, full := p.usedKeys.add(k)
	if p.cfg.Ledger == nil {
		return
	}
	p.put(k.ledgerKey(), nil)
	if full {
		p.erase(gone.ledgerKey())
	}
}

func (k usedKey) ledgerKey() string { return usedKeyPrefix + k.session + "/" + k.key }

// note writes down what the session is. Under s.mu.
func (s *Session) persist() {
	if s.pool.cfg.Ledger == nil || s.unreadable != "" && s.terminated == nil {
		return // what a later daemon may be able to read stays as it is
	}
	r := s.persistedState()
	if s.terminated == nil {
		s.pool.put(sessionPrefix+s.id, r.encode())
		return
	}
	s.pool.put(endedPrefix+s.id, r.encode())
	s.pool.erase(sessionPrefix + s.id) // which counts no more
}

// record is the session as it is kept. Under s.mu.
func (s *Session) persistedState() *sessionState {
	p := &s.params
	r := &sessionState{
		number: s.number, owner: s.owner, name: p.Name, tags: p.Tags, argv: p.Argv, cwd: p.Cwd, login: p.Login, tty: p.TTY,
		envKeys: s.envKeys, env: s.env, program: s.program,
		created: s.created, timeout: s.timeout, idleTTL: s.idleTTL, tree: s.tree.Number(),
		terminated: s.terminated, unheldSize: s.sizeBeforeLease, key: p.Key, sum: s.sum, gate: s.gate, loggedIn: s.login,
		parent: p.Parent, connected: p.WhileConnected, reconnect: s.reconnect,
	}
	if s.proc != nil {
		r.pid = s.proc.PID()
	}
	if s.ending {
		r.ending = s.endReason
	}
	if s.term != nil {
		r.terminal = s.term.slots
	}
	if h := s.lease; h != nil {
		r.held = &leaseState{
			lease: h.id, holder: h.holder, since: h.since, until: h.until, ttl: h.ttl, answers: h.answers,
		}
	}
	return r
}

// noteTree writes down which process tree is the session's, before anything is
// started in it.
func (s *Session) persistTree() {
	if s.pool.cfg.Ledger != nil {
		r := treeState{s.tree.Number()}
		s.pool.put(treePrefix+s.id, state.Encode(r.fields))
	}
}

// picture is what a terminal showed when a command had written so much. What was
// written later is in journals.
type screenSnapshot struct {
	exec   int64 // its number
	offset int64
	size   api.TTYSize
	ansi   []byte
}

// pictureStep is how much a terminal shows between two pictures of it. What
// follows the last but one is shown again after a restart: that is as much as a
// terminal scrolls back, and takes some milliseconds even if it is garbage.
const snapshotStep = 128 << 10

// noteScreen writes down what the terminal shows now, with what has scrolled
// away. Under t.mu.
func (t *Terminal) persistScreen() {
	if t.pool.cfg.Ledger == nil || t.output == nil {
		return
	}
	t.nextSnapshot, t.sinceSnapshot = t.snapshot(scrollback), 0
	t.persistSnapshot()
}

// noteProgress writes down what the terminal showed some time ago, if it has shown
// enough since, and takes the picture that is next. Under t.mu.
func (t *Terminal) persistProgress(n int) {
	if t.sinceSnapshot += n; t.pool.cfg.Ledger == nil || t.sinceSnapshot < snapshotStep || !t.screen.Whole() {
		return
	}
	t.persistSnapshot()
	t.nextSnapshot, t.sinceSnapshot = t.snapshot(0), 0
}

func (t *Terminal) snapshot(scrollback int) *screenSnapshot {
	return &screenSnapshot{exec: t.output.number, offset: t.output.journal.Size(), size: t.size(), ansi: t.screen.ANSI(scrollback)}
}

func (t *Terminal) persistSnapshot() {
	if t.persisted == t.nextSnapshot {
		return
	}
	t.persisted = t.nextSnapshot
	t.pool.put(screenPrefix+t.output.session.id, t.persisted.encode())
	t.persisted.ansi = nil // it is in the ledger
}

// forgets is called before the output of an exec is forgotten: what the screen
// has of it must be noted.
func (t *Terminal) beforeForget(e *Exec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.persisted == nil || e.number >= t.persisted.exec {
		t.persistScreen()
	}
}

// note writes down what the exec is, and while it runs where its input and output
// are. What it does not name any more is given up then. It reports whether the
// output is at its end, and in the note.
func (e *Exec) persist() (whole bool) {
	e.persistMu.Lock()
	defer e.persistMu.Unlock()
	n := e.session.pool.stateBuffers.Get().(*stateBuffer)
	defer e.session.pool.putStateBuffer(n)
	r := &n.state
	*r = execState{session: e.session.id, number: e.number, key: e.key, sum: e.sum, timeout: e.timeout, idleTimeout: e.idleTimeout, why: e.cause()}
	var ended []*outputPump
	for i, c := range []*outputPump{e.stdout, e.stderr} {
		if c == nil {
			continue
		}
		if r.output[i] = c.slot(); r.output[i] == 0 {
			ended = append(ended, c)
		}
	}
	var spent []holder.Slot
	if e.stdin != nil {
		r.stdin, spent = e.stdin.slotsToPersist()
	}
	whole = e.journal.Closed()
	if e.session.pool.cfg.Ledger != nil && !e.forgotten {
		e.persistLocked(n, whole)
	}
	for _, c := range ended {
		c.release()
	}
	if e.stdin != nil {
		e.stdin.dropSlots(spent)
	}
	return whole
}

// noteInput makes a change of what is known of the exec's input, and notes it in the
// same step.
func (e *Exec) persistInput(change func()) {
	e.persistMu.Lock()
	defer e.persistMu.Unlock()
	change()
	e.inputPersisted = true
	if e.session.pool.cfg.Ledger == nil || e.forgotten {
		return
	}
	n := e.session.pool.stateBuffers.Get().(*stateBuffer)
	defer e.session.pool.putStateBuffer(n)
	r := inputState{session: e.session.id, keyed: e.keyedInputs}
	if e.stdin != nil {
		r.end, r.eof = e.stdin.size(), e.stdin.atEOF()
	}
	n.coder = state.Writer(n.value[:0])
	r.fields(&n.coder)
	n.value = n.coder.Value()
	e.session.pool.put(inputPrefix+e.id, n.value)
}

// forget takes the exec out of the ledger for good.
func (e *Exec) forget() {
	e.persistMu.Lock()
	e.forgotten = true
	e.session.pool.erase(execPrefix + e.id)
	e.session.pool.erase(inputPrefix + e.id)
	e.persistMu.Unlock()
	e.persist() // of which only its pipes are given up
}

// write puts the exec in the ledger, with its output if that is whole. Under
// noting.
func (e *Exec) persistLocked(n *stateBuffer, whole bool) {
	r := &n.state
	if last := e.lastByte.Load(); last != 0 {
		r.lastByte = time.Unix(0, last)
	}
	e.mu.Lock()
	r.state, r.began, r.ended, r.result, r.sizes = e.res.State, e.res.StartedAt.Time, e.ended, e.res, e.sizes
	if r.running = time.Since(e.began); r.state != api.ExecExited {
		r.at = process.SinceBoot() // its clocks go on
	}
	r.command = e.command // dropped at its end; until its shell has it, only this tells what to run
	e.mu.Unlock()
	if whole {
		n.journal = e.journal.AppendValue(n.journal[:0])
		r.journal = n.journal
	} else {
		r.lane, _ = e.journal.LiveSegment()
	}
	n.coder = state.Writer(n.value[:0])
	r.fields(&n.coder)
	n.value = n.coder.Value()
	e.session.pool.put(execPrefix+e.id, n.value)
}

// noteBuffer is what one note of an exec is made in. It is used again: there are
// two for every command, and to make them costs more than to fill them.
type stateBuffer struct {
	state          execState
	coder          state.Coder
	value, journal []byte
}

// maxPooledNote keeps the memory of one note with much output in it from being
// held for good.
const maxPooledState = 4 << 10

// putNote gives a buffer back, without what a command said.
func (p *Pool) putStateBuffer(n *stateBuffer) {
	n.state, n.coder = execState{}, state.Coder{}
	clear(n.value)
	clear(n.journal)
	if cap(n.value) <= maxPooledState && cap(n.journal) <= maxPooledState {
		p.stateBuffers.Put(n)
	}
}

// outputEnded is called when nothing more can come: the journal is given up
// once it is noted what was in it.
func (e *Exec) outputEnded() {
	e.journal.Seal()
	if e.state() == api.ExecExited {
		e.persistEnd()
	}
}

// settle notes how the exec ended. Its journal may still be written to, by what
// the command left behind.
func (e *Exec) persistEnd() {
	if e.persist() {
		e.journal.Close() // what it holds is in the note
	}
}

// closeJournal ends the output of an exec that nothing writes to any more.
func (e *Exec) closeJournal() {
	e.journal.Seal()
	e.persistEnd()
}
