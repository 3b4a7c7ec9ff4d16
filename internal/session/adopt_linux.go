package session

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// adoptConcurrency is how many sessions are adopted at once: each waits for answers
// of the holder, and this many keep the holder busy without a pause.
const adoptConcurrency = 32

// Adopt takes over the sessions of an earlier process from the ledger. Call it
// before the pool is used, and resume once the reports of the shells are read:
// running commands continue then. After that, resume rebuilds the ended sessions
// in the background, and calls then before any caller can see one of them.
//
// A session that can't be adopted does not affect the others. What the holder and
// the ledger have of it is kept, see markUnreadable.
//
// kept are all slots that the holder has, and claims the slots of owners that are
// not sessions. If two owners name the same slot, neither uses it.
func (p *Pool) Adopt(kept []holder.Slot, claims ...holder.Claim) (resume func(then func())) {
	live, ended := p.readLedger()
	auditTrees(live)
	p.auditSlots(live, kept, claims)
	var resumes []func()
	adoptions := p.adoptAll(live)
	for _, a := range adoptions {
		if fn := a.finish(); fn != nil {
			resumes = append(resumes, fn)
		}
	}
	wanted, done := p.history.expect()
	return func(then func()) {
		for _, fn := range resumes {
			fn()
		}
		for _, a := range adoptions {
			p.adoptLifetime(a.session)
		}
		p.spawn(func() {
			defer close(done)
			select {
			case <-wanted:
			case <-time.After(historyPause):
			}
			p.restoreEnded(ended)
			then()
		})
	}
}

// adoption is a session of an earlier process, and why it could not be adopted.
type adoption struct {
	session *Session
	found   *foundSession
	err     error // nil if it was adopted
}

// adoptAll rebuilds the sessions and adopts those whose records can be used.
func (p *Pool) adoptAll(live []*foundSession) []*adoption {
	var adoptions []*adoption
	var wg sync.WaitGroup
	slots := make(chan struct{}, adoptConcurrency)
	for _, f := range live {
		a := &adoption{session: p.rebuildSession(f), found: f, err: f.bad}
		adoptions = append(adoptions, a)
		if a.err != nil {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			a.err = a.session.adopt(f)
			<-slots
		})
	}
	wg.Wait()
	return adoptions
}

// finish returns the function that resumes the session, nil if it can't be resumed.
func (a *adoption) finish() func() {
	s, f := a.session, a.found
	switch {
	case a.err == nil:
		return s.resume
	case f.bad == nil && f.state.ending != "":
		s.rebuildEnding(f)
		return func() { s.finishEnding(f.state.ending) }
	default:
		s.markUnreadable(f, a.err)
		return nil
	}
}

// auditSlots looks for slots that a live session and another owner both name. (A
// slot that was reused or dropped is found when it is taken.)
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
		p.cfg.Log.Error("slot is claimed by two owners", "event", "slot_shared", "slot", problem.Slot.String(), "owner", problem.Owner)
		if f := of[problem.Owner]; f != nil {
			f.bad = fmt.Errorf("slot %s: %w", problem.Slot, problem.Err)
		}
	}
}

// claims returns the slots that the session and each of its execs name.
func (f *foundSession) claims() []holder.Claim {
	own := holder.Claim{Owner: f.id, Slots: append(shell.SlotsOf(f.shell), f.state.gate)}
	if t := f.state.terminal; t != nil {
		own.Slots = append(own.Slots, t.All()...)
	}
	claims := []holder.Claim{own}
	for _, e := range f.execs {
		claims = append(claims, holder.Claim{Owner: f.id + " " + e.id, Slots: e.state.Slots()})
	}
	return claims
}

// errTree means that it is unknown which process tree belongs to a session.
var errTree = errors.New("its records disagree on its process tree, or another session names the same one")

// auditTrees looks for sessions whose records disagree on their process tree, and
// for those that name the same one as another session.
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

// Unreadable reports whether there is a session that could not be adopted. What the
// holder keeps for it is unknown then.
func (p *Pool) Unreadable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.order, func(s *Session) bool { return s.unreadable != "" })
}

// Slots returns the holder's slots of all sessions and execs, except those of
// shells. Other slots that an earlier process kept for them are not needed.
func (p *Pool) Slots() []holder.Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	var slots []holder.Slot
	for _, ref := range p.execs.all() {
		slots = append(slots, ref.exec.Slots()...)
	}
	for _, s := range p.sessions {
		slots = append(slots, s.gate)
		if s.term != nil {
			slots = append(slots, s.term.Slots().All()...)
		}
	}
	return slots
}

// historyPause is how long after a restart ended sessions are rebuilt: clients of
// live sessions reconnect first.
const historyPause = 250 * time.Millisecond

// alwaysReady is closed: a session that was persisted is ready.
var alwaysReady = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// rebuildSession rebuilds a session from its state. An ended one gets its execs
// too.
func (p *Pool) rebuildSession(f *foundSession) *Session {
	r := f.state
	s := &Session{
		shared: p.shared,
		id:     f.id,
		number: r.number,
		owner:  r.owner,
		params: api.SessionCreateParams{
			Name:           r.name,
			Tags:           r.tags,
			Argv:           r.argv,
			Cwd:            r.cwd,
			Login:          r.login,
			TTY:            r.tty,
			Key:            r.key,
			Parent:         r.parent,
			WhileConnected: r.connected,
		},
		sum:       r.sum,
		envKeys:   r.envKeys,
		program:   r.program,
		env:       r.env,
		timeout:   r.timeout,
		idleTTL:   r.idleTTL,
		reconnect: r.reconnect,
		limits:    r.limits,
		isolation: r.isolation,
		execCount: r.execCount,
		wallEnd:   r.wallEnd,
		created:   r.created,

		cancelCreation: func() {},
		login:          r.loggedIn,
		ready:          alwaysReady,
		destroyed:      make(chan struct{}),
		forceKill:      make(chan struct{}),

		state:           api.StateCreating,
		active:          time.Now(),
		gate:            r.gate,
		terminated:      r.terminated,
		sizeBeforeLease: r.unheldSize,
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
	if r.tty != nil {
		s.term = terminal.NewEnded(s.terminalConfig(), *r.tty)
	}
	for _, e := range f.execs {
		s.rebuildExec(e, f.inputs[e.id])
	}
	if s.term != nil {
		s.term.RestoreScreen(*r.tty, f.screen, s.outputs())
	}
	return s
}

// restoreEnded rebuilds the ended sessions.
func (p *Pool) restoreEnded(records []ledgerEntry) {
	var r ledgerReader
	for _, rec := range records {
		p.readEntry(&r, rec)
	}
	maps.DeleteFunc(r.sessions, func(_ string, f *foundSession) bool {
		if f.state == nil && f.bad == nil { // the session was being forgotten
			for _, key := range f.keys {
				p.ledger.Erase(key)
			}
		}
		return f.state == nil
	})
	for _, f := range r.sorted() {
		p.rebuildSession(f)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortStableFunc(p.order, func(a, b *Session) int { return cmp.Compare(a.number, b.number) })
}

// rebuildExec rebuilds an exec with its output and what is known of its input, nil
// if that is nothing.
func (s *Session) rebuildExec(f foundExec, in *exec.InputState) {
	number := f.state.Number()
	mark := markOf(number)
	if len(s.params.Argv) > 0 {
		mark = 0
	}
	e := exec.Restore(s.shared.execEnv, f.id, f.state, in, mark, s.term)
	s.execCount = max(s.execCount, number)
	s.addKey(e)
	switch e.State() {
	case api.ExecQueued:
		s.queue = append(s.queue, e)
	case api.ExecRunning:
		s.running = e
	default:
		s.idleCwd, s.active = e.Cwd(), e.EndedAt()
		s.retain(e)
	}
	s.shared.execs.add(e.ID(), execRef{s, e})
}

// adopt takes over a live session. Until nothing can fail any more it only takes
// its own copies of descriptors, and closes them on an error.
func (s *Session) adopt(f *foundSession) (err error) {
	r := f.state
	s.tree = s.shared.host.AdoptTree(s.id, r.tree)
	s.adoptLimits()
	if err := f.checkCommand(); err != nil {
		return err
	}
	if r.terminal != nil {
		if err := s.adoptTerminal(r.terminal); err != nil {
			return err
		}
	}
	if len(r.argv) > 0 {
		s.proc, err = s.tree.AdoptProc(r.pid)
	} else {
		s.shell, err = s.shared.driver.Adopt(s.shellConfig(), f.shell)
	}
	if err != nil {
		if s.term != nil {
			s.term.CloseFDs()
			s.term = nil
		}
		return err
	}
	for _, e := range f.execs {
		s.rebuildExec(e, f.inputs[e.id])
	}
	if s.term != nil {
		s.term.RestoreScreen(*s.params.TTY, f.screen, s.outputs())
		s.term.StartReading()
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
	s.startWall()
	return nil
}

// checkCommand returns an error if the session runs a command without a readable
// record.
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

// rebuildEnding rebuilds a session that was being destroyed when its daemon died,
// and of which too little is left to adopt it.
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
			e.CancelQueued()
			s.mu.Lock()
			s.retain(e)
			s.mu.Unlock()
		}
	}
	s.shared.spawn(func() { s.end(why, nil) })
}

// markUnreadable keeps a session that can't be adopted, so that it can be listed
// and destroyed. Its processes are killed now if the configuration says so, else
// when it is destroyed; until then nothing of it is released or erased.
func (s *Session) markUnreadable(f *foundSession, why error) {
	p := s.shared
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
	p.cfg.Log.Error("cannot adopt a session of an earlier daemon", "event", "session_unreadable", "session", s.id, "error", why,
		"processes", len(s.tree.PIDs()), "ended", p.cfg.EndUnreadable)
	if p.cfg.EndUnreadable {
		s.destroy(api.ReasonLost, false)
	}
}

// adoptLease restores the keyboard lease.
func (s *Session) adoptLease(r *leaseState) {
	if r == nil {
		return
	}
	h := &keyboardLease{id: r.lease, holder: r.holder, since: r.since, until: r.until, ttl: r.ttl, answers: r.answers}
	// It could not be renewed while no daemon ran.
	h.extend(time.Now())
	h.expiry = time.AfterFunc(h.ttl, func() { s.expireLease(h) })
	s.lease = h
	if s.term != nil {
		s.term.SetAnswers(!h.answers)
	}
}

// resume lets everything go on that was under way.
func (s *Session) resume() {
	s.mu.Lock()
	running, queue, ending, why := s.running, slices.Clone(s.queue), s.ending, s.endReason
	finished := slices.Clone(s.finished)
	if running == nil && len(queue) > 0 {
		s.running, s.queue = queue[0], s.queue[1:]
		queue[0].Admit()
		s.execStarted(queue[0])
	}
	if running != nil && s.term != nil {
		s.shared.prompts.add(s, running)
	}
	s.mu.Unlock()
	s.restoreSize() // a lease may have ended just before the restart
	for _, e := range queue {
		s.shared.spawn(func() { s.runQueued(e) })
	}
	for _, e := range finished { // processes that it left behind may still write
		e.SealOutput()
		e.PumpOutput()
	}
	if running != nil {
		e := running
		e.SetResumed()
		if s.proc != nil {
			s.openAdoptedGate()
			e.SealOutput()
			e.PumpOutput()
			s.shared.spawn(func() { s.runDirect(e) })
		} else {
			s.shared.spawn(func() { s.resumeShell(e) })
		}
	}
	if ending {
		s.shared.spawn(func() { s.end(why, nil) })
	}
}

// adoptTerminal takes over the session's terminal. Its screen is restored and its
// output read later.
func (s *Session) adoptTerminal(slots *terminal.Slots) (err error) {
	if s.params.TTY == nil {
		return errors.New("the size of its terminal is unknown")
	}
	if s.term, err = terminal.Adopt(s.terminalConfig(), s.tree, slots, *s.params.TTY); err != nil {
		return err
	}
	if size, err := s.term.KernelSize(); err == nil { // it is newer than what was persisted
		s.params.TTY = &size
	}
	return nil
}

// outputs returns the commands that the session's terminal has shown, in order.
func (s *Session) outputs() []terminal.Output {
	var all []terminal.Output
	for _, e := range s.finished {
		all = append(all, e)
	}
	if s.running != nil {
		all = append(all, s.running)
	}
	return all
}

// adoptLifetime ends a session of an earlier daemon whose parent is gone, and lets
// one that ends with its connections wait for them.
func (p *Pool) adoptLifetime(s *Session) {
	if s.unreadable != "" {
		return // such a session is left alone
	}
	if parent := s.params.Parent; parent != "" && !p.isLive(parent) {
		s.destroy(api.ReasonParent, false)
		return
	}
	if s.params.WhileConnected {
		s.mu.Lock()
		s.startReconnectTimer()
		s.mu.Unlock()
	}
}

func (p *Pool) isLive(id string) bool {
	p.mu.Lock()
	s := p.sessions[id]
	p.mu.Unlock()
	return s != nil && s.currentState() != api.StateTerminated
}
