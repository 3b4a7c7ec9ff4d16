package session

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/pty"
	"github.com/terminal-runtime/trl/internal/shell"
)

// adoptAtOnce is how many sessions are adopted at once: each waits for answers of
// the holder, which then are given one after the other without a pause.
const adoptConcurrency = 32

// Adopt takes over the sessions of a process that died: those that the ledger
// tells of. It comes before the pool is used. What was under way goes on when
// resume is called, by when the reports of the shells must be read. Sessions that
// had ended are made again after that, beside what is served; then is called when
// they are, and before anybody can ask for one.
//
// A session that can't be taken over costs that session alone. Nothing that is
// kept for it is given up, and no record of it is erased: see leave.
//
// kept is what the holder keeps, and claims what is kept for others than
// sessions: a slot that two owners name is used by neither.
func (p *Pool) Adopt(kept []holder.Slot, claims ...holder.Claim) (resume func(then func())) {
	type claim struct {
		*Session
		found *foundSession
		err   error
	}
	var sessions []*claim
	var wg sync.WaitGroup
	slots := make(chan struct{}, adoptConcurrency)
	live, others := p.readLedger()
	auditTrees(live)
	p.auditSlots(live, kept, claims)
	for _, f := range live {
		c := &claim{Session: p.rebuildSession(f), found: f, err: f.bad}
		sessions = append(sessions, c)
		if c.err != nil {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			c.err = c.adopt(f)
			<-slots
		})
	}
	wg.Wait()
	var goOn []func()
	for _, c := range sessions {
		switch {
		case c.err != nil && c.found.bad == nil && c.found.state.ending != "":
			c.rebuildEnding(c.found)
			goOn = append(goOn, func() { c.finishEnding(c.found.state.ending) })
		case c.err != nil:
			c.markUnreadable(c.found, c.err)
		default:
			goOn = append(goOn, c.resume)
		}
	}
	wanted, done := p.history.expect()
	return func(then func()) {
		for _, fn := range goOn {
			fn()
		}
		for _, c := range sessions {
			c.adoptLifetime()
		}
		p.spawn(func() {
			defer close(done)
			pause := time.NewTimer(historyPause)
			defer pause.Stop()
			select {
			case <-wanted:
			case <-pause.C:
			}
			p.restoreEnded(others)
			then()
		})
	}
}

// errTree says that it is not known which process tree is a session's.
var errTree = errors.New("its records, or those of another session, name a process tree that is not theirs")

// auditTrees looks for sessions whose own records do not agree on their process
// tree, and for those that agree with another session's on one.
func auditTrees(live []*foundSession) {
	of := map[uint32]*foundSession{}
	doubt := func(f *foundSession) { f.bad, f.tree, f.state.tree = errTree, 0, 0 }
	for _, f := range live {
		tree := f.state.tree
		switch other := of[tree]; {
		case f.tree != 0 && f.tree != tree:
			doubt(f)
		case other != nil && tree != 0:
			doubt(f)
			doubt(other)
		default:
			of[tree] = f
		}
	}
}

// audit looks for slots that a living session names and another owner too. (One
// that is another's by now, or gone, is found when it is taken.)
func (p *Pool) auditSlots(live []*foundSession, kept []holder.Slot, claims []holder.Claim) {
	of := map[string]*foundSession{}
	for _, f := range live {
		for _, c := range f.claims() {
			of[c.Owner] = f
			claims = append(claims, c)
		}
	}
	problems, _ := holder.Audit(kept, claims)
	for _, problem := range problems {
		if !errors.Is(problem.Err, holder.ErrShared) {
			continue
		}
		p.cfg.Log.Error("two owners name one slot", "event", "slot_shared", "slot", problem.Slot.String(), "owner", problem.Owner)
		if f := of[problem.Owner]; f != nil {
			f.bad = fmt.Errorf("slot %s: %w", problem.Slot, problem.Err)
		}
	}
}

// claims are what the session and each of its execs say that is kept for them.
func (f *foundSession) claims() []holder.Claim {
	own := holder.Claim{Owner: f.id, Slots: append(shell.SlotsOf(f.shell), f.state.gate)}
	if t := f.state.terminal; t != nil {
		own.Slots = append(own.Slots, t.Master, t.Slave, t.Stage[0], t.Stage[1], t.Leader)
	}
	claims := []holder.Claim{own}
	for _, e := range f.execs {
		r := e.state
		claims = append(claims, holder.Claim{
			Owner: f.id + " " + e.id,
			Slots: []holder.Slot{r.stdin.read, r.stdin.write, r.stdin.buffer, r.output[0], r.output[1], r.lane.Slot},
		})
	}
	return claims
}

// Unreadable reports whether a session could not be taken over. What is kept for
// it is not known then.
func (p *Pool) Unreadable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.order, func(s *Session) bool { return s.unreadable != "" })
}

// Slots are what the sessions have kept, but for their shells'. What else an
// earlier process kept for them nobody needs.
func (p *Pool) Slots() []holder.Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	var slots []holder.Slot
	for _, e := range p.execs {
		slots = append(slots, e.journal.Slots()...)
		if e.stdin != nil {
			in := e.stdin.slots
			slots = append(slots, in.read, in.write, in.buffer)
		}
		for c := range e.pumps() {
			slots = append(slots, c.slot())
		}
	}
	for _, s := range p.sessions {
		slots = append(slots, s.gate)
		if s.term != nil {
			t := s.term.slots
			slots = append(slots, t.Master, t.Slave, t.Stage[0], t.Stage[1], t.Leader)
		}
	}
	return slots
}

// historyPause is how long what has ended is left alone after a restart: clients
// of what lives come back meanwhile.
const historyPause = 250 * time.Millisecond

// history makes those wait whose question may be about a session that ended
// before this process took over, or must be after all of them. Its zero value is
// for a process that took nothing over.
type history struct {
	mu     sync.Mutex
	wanted chan struct{} // closed when somebody waits; nil: nothing was taken over
	asked  bool          // it is closed
	done   chan struct{} // closed when all is known
}

// expect makes everybody wait until done is closed.
func (h *history) expect() (wanted <-chan struct{}, done chan<- struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted, h.done = make(chan struct{}), make(chan struct{})
	return h.wanted, h.done
}

// await asks for what has ended, and waits for it.
func (h *history) await() {
	h.mu.Lock()
	if h.wanted != nil && !h.asked {
		h.asked = true
		close(h.wanted)
	}
	h.mu.Unlock()
	h.awaitUnhurried()
}

// awaitPatiently waits, and asks for nothing.
func (h *history) awaitUnhurried() {
	h.mu.Lock()
	done := h.done
	h.mu.Unlock()
	if done != nil {
		<-done
	}
}

// wasMade is closed: what is noted is made.
var alwaysReady = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// rebuild makes a session again as it is noted. One that has ended has its execs
// again too.
func (p *Pool) rebuildSession(f *foundSession) *Session {
	r := f.state
	s := &Session{
		pool: p, id: f.id, number: r.number, owner: r.owner, envKeys: r.envKeys, program: r.program, env: r.env,
		params: api.SessionCreateParams{
			Name: r.name, Tags: r.tags, Argv: r.argv, Cwd: r.cwd, Login: r.login, TTY: r.tty, Key: r.key,
			Parent: r.parent, WhileConnected: r.connected,
		},
		timeout: r.timeout, idleTTL: r.idleTTL, reconnect: r.reconnect, created: r.created, active: time.Now(),
		state: api.StateCreating, destroyed: make(chan struct{}), forceKill: make(chan struct{}),
		terminated: r.terminated, sizeBeforeLease: r.unheldSize, sum: r.sum, ready: alwaysReady, gate: r.gate, login: r.loggedIn, cancelCreation: func() {},
	}
	p.numbers.Store(max(p.numbers.Load(), r.number))
	p.mu.Lock()
	p.addSession(s)
	if r.terminated != nil {
		s.state = api.StateTerminated
		close(s.destroyed)
		p.terminated++
	} else {
		p.live++
		p.addChild(s)
	}
	p.updateExecQuota()
	p.mu.Unlock()
	p.requestSweep()
	if r.terminated == nil {
		return s
	}
	for _, e := range f.execs {
		s.rebuildExec(e, f.inputs[e.id])
	}
	if r.tty != nil {
		s.term = p.newTerminal(nil, nil, *r.tty)
		s.term.restoreScreen(s, f.screen)
		s.term.gone, s.term.buf = true, nil
	}
	return s
}

// rebuildExec makes an exec again, with its output and what is known of its input, if
// there was any.
func (s *Session) rebuildExec(f foundExec, in *inputState) {
	r := f.state
	e := s.newExec(r.key)
	e.id, e.number, e.command, e.timeout, e.idleTimeout = f.id, r.number, r.command, r.timeout, r.idleTimeout
	e.mark = markOf(r.number)
	if len(s.params.Argv) > 0 {
		e.mark = 0
	}
	if !r.lastByte.IsZero() {
		e.lastByte.Store(r.lastByte.UnixNano())
	}
	e.began, e.ended, e.sizes = time.Now().Add(r.at-process.SinceBoot()-r.running), r.ended, r.sizes
	if r.state == api.ExecExited {
		e.res = r.result
	}
	e.res.ExecID, e.res.SessionID, e.res.State = e.id, s.id, r.state
	e.res.StartedAt, e.res.TTY, e.res.Label = api.Time{Time: r.began}, r.result.TTY, r.result.Label
	e.res.Merged, e.res.QueuedMS = r.result.Merged, r.result.QueuedMS
	e.sum = r.sum
	if in != nil {
		e.keyedInputs, e.inputPersisted = in.keyed, true
	}
	e.restoreJournal(r, in)
	if r.why != causeNone {
		e.stopCause.Store(int32(r.why))
		close(e.stopped)
	}
	s.execCount = max(s.execCount, r.number)
	if e.key != "" {
		if s.keys == nil {
			s.keys = map[string]*Exec{}
		}
		s.keys[e.key] = e
	}
	switch r.state {
	case api.ExecQueued:
		s.queue = append(s.queue, e)
	case api.ExecRunning:
		s.running = e
	default:
		s.idleCwd, s.active = r.result.Cwd, r.ended
		e.setDone()
		s.retain(e)
	}
	s.pool.mu.Lock()
	s.pool.execs[e.id] = e
	s.pool.mu.Unlock()
}

// restoreJournal brings the output back, and goes on with it and the input if they
// were not at their end.
func (e *Exec) restoreJournal(r *execState, in *inputState) {
	p := e.session.pool
	e.journal.Release() // that of a new one
	var err error
	switch {
	case len(r.journal) > 0:
		e.journal, err = p.store.RestoreValue(r.journal)
	case r.lane != journal.LiveSegment{}:
		e.journal, err = p.store.Restore(r.lane)
	default:
		e.journal = p.store.New()
	}
	if err != nil {
		p.cfg.Log.Error("output is lost", "exec", e.id, "error", err)
		e.journal = p.store.New() // for what is still to come
	}
	if r.stdin.read != 0 && r.state != api.ExecExited {
		if err = e.adoptInput(r.stdin, in); err != nil {
			p.cfg.Log.Error("input is lost", "exec", e.id, "error", err)
		}
	}
	for i, to := range []**outputPump{&e.stdout, &e.stderr} {
		if r.output[i] == 0 {
			continue
		}
		out, err := adoptOutputPipe(p.cfg.Keeper, r.output[i])
		if err != nil {
			p.cfg.Log.Error("output is lost", "exec", e.id, "error", err)
			continue
		}
		p.outputPipes.Adopt()
		e.streams.Add(1)
		*to = &outputPump{exec: e, stream: journal.Stream(i), pipe: out}
	}
}

// adopt takes over a session that lives. Until nothing can fail any more it takes
// only descriptors of its own; on an error it closes those.
func (s *Session) adopt(f *foundSession) (err error) {
	p, r := s.pool, f.state
	s.tree = p.host.AdoptTree(s.id, r.tree)
	if err := f.checkCommand(); err != nil {
		return err
	}
	if r.terminal != nil {
		if s.term, err = p.adoptTerminal(s, r.terminal); err != nil {
			return err
		}
	}
	if len(r.argv) > 0 {
		s.proc, err = s.tree.AdoptProc(r.pid)
	} else {
		s.shell, err = p.driver.Adopt(s.shellConfig(), f.shell)
	}
	if err != nil {
		if s.term != nil {
			s.term.closeFDs()
			s.term = nil
		}
		return err
	}
	for _, e := range f.execs {
		s.rebuildExec(e, f.inputs[e.id])
	}
	if s.term != nil {
		s.term.mu.Lock()
		s.term.restoreScreen(s, f.screen)
		s.term.mu.Unlock()
		s.term.startReading()
	}
	if s.running != nil || len(s.queue) > 0 {
		s.state = api.StateRunning
	} else {
		s.state = api.StateIdle
	}
	s.adoptLease(r.held)
	if r.ending != "" {
		s.ending, s.endReason = true, r.ending
	}
	return nil
}

// commandOf returns an error if the session runs a command of which there is no
// record that can be read.
func (f *foundSession) checkCommand() error {
	if len(f.state.argv) > 0 && len(f.execs) == 0 {
		return errors.New("there is no record of its command")
	}
	id, ok := shell.UnderWay(f.shell)
	if !ok || slices.ContainsFunc(f.execs, func(e foundExec) bool { return e.id == id }) {
		return nil
	}
	return fmt.Errorf("there is no record of %s, the command that its shell runs", id)
}

// rebuildEnding makes a session again that was being ended, and of which what is
// gone already can't be taken over.
func (s *Session) rebuildEnding(f *foundSession) {
	for _, e := range f.execs {
		s.rebuildExec(e, f.inputs[e.id])
	}
	s.state, s.ending, s.endReason = api.StateIdle, true, f.state.ending
}

// finishEnding ends such a session.
func (s *Session) finishEnding(why string) {
	s.mu.Lock()
	execs := append(slices.Clone(s.queue), s.running)
	s.queue, s.running = nil, nil
	s.mu.Unlock()
	for _, e := range execs {
		if e != nil {
			e.cancelQueued()
			s.mu.Lock()
			s.retain(e)
			s.mu.Unlock()
		}
	}
	s.pool.spawn(func() { s.end(why, nil) })
}

// leave is for a session that can't be taken over. Its processes are ended, or
// left alone until somebody destroys it: as the configuration says. What the
// ledger and the holder have of it stays as it is until then.
func (s *Session) markUnreadable(f *foundSession, why error) {
	p := s.pool
	if s.tree == nil {
		tree := cmp.Or(f.state.tree, f.tree)
		if tree == 0 {
			tree = p.host.FoundTrees()[s.id]
		}
		s.tree = p.host.AdoptTree(s.id, tree)
	}
	s.leftKeys = []string{unreadablePrefix + sessionPrefix + s.id}
	for _, key := range f.keys {
		s.leftKeys = append(s.leftKeys, key, unreadablePrefix+key)
	}
	s.mu.Lock()
	s.state, s.unreadable = api.StateRunning, why.Error()
	s.mu.Unlock()
	p.cfg.Log.Error("cannot go on with a session of an earlier daemon", "event", "session_unreadable", "session", s.id, "error", why,
		"processes", len(s.tree.PIDs()), "ended", p.cfg.EndUnreadable)
	if p.cfg.EndUnreadable {
		s.destroy(api.ReasonLost, false)
	}
}

// adoptHold goes on with who has the keyboard.
func (s *Session) adoptLease(r *leaseState) {
	if r == nil {
		return
	}
	h := &keyboardLease{id: r.lease, holder: r.holder, since: r.since, until: r.until, ttl: r.ttl, answers: r.answers}
	// Nobody could renew it while no daemon was there.
	h.extend(time.Now())
	h.expiry = time.AfterFunc(h.ttl, func() { s.expireLease(h) })
	s.lease = h
	if s.term != nil {
		s.term.muteAnswers.Store(h.answers)
	}
}

// goOn lets what was under way go on.
func (s *Session) resume() {
	s.mu.Lock()
	running, queue, ending, why := s.running, slices.Clone(s.queue), s.ending, s.endReason
	finished := slices.Clone(s.finished)
	if running == nil && len(queue) > 0 {
		s.running, s.queue = queue[0], s.queue[1:]
		close(queue[0].mayBegin)
	}
	s.mu.Unlock()
	s.restoreSize() // a hold may have ended just before
	for _, e := range queue {
		s.pool.spawn(e.runQueued)
	}
	for _, e := range finished { // what it left behind may still write
		e.sealOutput()
		e.pumpOutput()
	}
	if running != nil {
		e := running
		e.streaming, e.resumed = true, true
		if s.proc != nil {
			s.openAdoptedGate()
			e.sealOutput()
			e.pumpOutput()
			s.pool.spawn(e.runDirect)
		} else {
			s.pool.spawn(e.resume)
		}
	}
	if ending {
		s.pool.spawn(func() { s.end(why, nil) })
	}
}

// adoptTerminal takes over a terminal, which is shown and read later.
func (p *Pool) adoptTerminal(s *Session, slots *terminalSlots) (*Terminal, error) {
	if s.params.TTY == nil {
		return nil, errors.New("the size of its terminal is not known")
	}
	keep := p.cfg.Keeper
	fds := [5]int{-1, -1, -1, -1, -1}
	closeOwn := func() {
		for _, fd := range fds {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	}
	for i, slot := range []holder.Slot{slots.Master, slots.Slave, slots.Stage[0], slots.Stage[1], slots.Leader} {
		if slot == 0 {
			continue
		}
		fd, err := keep.Take(slot)
		if err != nil {
			closeOwn()
			return nil, err
		}
		fds[i] = fd
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fds[1]))
	if err != nil {
		name = "tty"
	}
	t := p.newTerminal(os.NewFile(uintptr(fds[0]), "ptmx"), os.NewFile(uintptr(fds[1]), name), *s.params.TTY)
	t.stage, t.slots = [2]int{fds[2], fds[3]}, slots
	if t.master == nil || t.slave == nil {
		closeOwn()
		return nil, errors.New("its terminal is not kept")
	}
	t.raw, err = t.master.SyscallConn()
	if err == nil && slots.Leader != 0 {
		t.leader, err = s.tree.AdoptTerminal(slots.LeaderPID, fds[4])
	}
	if err == nil {
		err = t.loadDefaults()
	}
	if err != nil {
		t.closeFDs()
		return nil, err
	}
	size, err := pty.GetSize(t.master)
	if err == nil { // what it is counts, if not yet what was noted
		s.params.TTY = &api.TTYSize{Rows: size.Rows, Cols: size.Cols}
	}
	return t, nil
}

// showAgain makes the screen what it was: what was noted, and what commands have
// written since.
func (t *Terminal) restoreScreen(s *Session, noted *screenSnapshot) {
	if noted == nil { // there was no command yet
		noted = &screenSnapshot{size: *s.params.TTY}
	}
	t.screen = newScreen(noted.size)
	_, _ = t.screen.Write(noted.ansi)
	execs := slices.Clone(s.finished)
	if s.running != nil {
		execs = append(execs, s.running)
	}
	for _, e := range execs {
		t.output = e
		switch {
		case e.number == noted.exec:
			t.replay(e.journal, noted.offset)
		case e.number > noted.exec:
			t.replay(e.journal, 0)
		}
	}
	t.screen.Answers() // they were given
	t.screen.Resize(s.params.TTY.Rows, s.params.TTY.Cols)
	noted.ansi = nil // it is in the ledger
	t.persisted, t.nextSnapshot = noted, noted
}
