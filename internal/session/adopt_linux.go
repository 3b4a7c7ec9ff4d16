package session

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/pty"
)

// found is what the ledger has of one session.
type found struct {
	id     string
	record *sessionRecord
	shell  []byte
	screen *picture
	execs  []foundExec // in their order
}

type foundExec struct {
	id     string
	record *execRecord
}

// adoptAtOnce is how many sessions are adopted at once: each waits for answers of
// the holder, which then are given one after the other without a pause.
const adoptAtOnce = 32

// Adopt takes over the sessions of a process that died: those that the ledger
// tells of. It comes before the pool is used. What was under way goes on when
// resume is called, by when the reports of the shells must be read.
func (p *Pool) Adopt() (resume func()) {
	type claim struct {
		*Session
		err error
	}
	var claims []*claim
	var wg sync.WaitGroup
	slots := make(chan struct{}, adoptAtOnce)
	for _, f := range p.find() {
		c := &claim{Session: p.rebuild(f)}
		if c.state == api.StateTerminated {
			continue
		}
		claims = append(claims, c)
		slots <- struct{}{}
		wg.Go(func() {
			c.err = c.adopt(f)
			<-slots
		})
	}
	wg.Wait()
	var goOn []func()
	for _, c := range claims {
		if c.err != nil {
			p.cfg.Log.Error("a session is lost", "event", "session_lost", "session", c.id, "error", c.err)
			c.lose()
			continue
		}
		goOn = append(goOn, c.goOn)
	}
	return func() {
		for _, fn := range goOn {
			fn()
		}
	}
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
			slots = append(slots, e.stdin.slots.read, e.stdin.slots.write, e.stdin.slots.first)
		}
		for c := range e.captures() {
			slots = append(slots, c.slot())
		}
	}
	for _, s := range p.sessions {
		if s.term != nil {
			t := s.term.slots
			slots = append(slots, t.Master, t.Slave, t.Stage[0], t.Stage[1], t.Leader)
		}
	}
	return slots
}

// find reads the ledger. What can't be read is told, and dropped.
func (p *Pool) find() []*found {
	sessions := map[string]*found{}
	of := func(id string) *found {
		if sessions[id] == nil {
			sessions[id] = &found{id: id}
		}
		return sessions[id]
	}
	for key, value := range p.cfg.Ledger.All() {
		var err error
		kind, id, _ := strings.Cut(key, "/")
		switch kind + "/" {
		case sessionKey:
			of(id).record, err = decodeSession(value)
		case shellKey:
			of(id).shell = value
		case screenKey:
			of(id).screen, err = decodePicture(value)
		case execKey:
			var r *execRecord
			if r, err = decodeExec(value); err == nil {
				f := of(r.session)
				f.execs = append(f.execs, foundExec{id, r})
			}
		case spentPrefix:
			session, used, _ := strings.Cut(id, "/")
			p.spent.add(spentKey{session, used})
		}
		if err != nil {
			p.cfg.Log.Error("a note can't be read", "key", key, "error", err)
			p.erase(key)
		}
	}
	var all []*found
	for _, f := range sessions {
		if f.record == nil { // it was just being made, or forgotten
			p.erase(shellKey + f.id)
			p.erase(screenKey + f.id)
			for _, e := range f.execs {
				p.erase(execKey + e.id)
			}
			continue
		}
		slices.SortFunc(f.execs, func(a, b foundExec) int { return cmp.Compare(a.record.number, b.record.number) })
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *found) int { return cmp.Compare(a.record.Number, b.record.Number) })
	return all
}

// rebuild makes a session again as it is noted, with its execs.
func (p *Pool) rebuild(f *found) *Session {
	r := f.record
	s := &Session{
		pool: p, id: f.id, number: r.Number, params: r.Params, envKeys: r.EnvKeys, program: r.Program, env: r.Env,
		timeout: r.Timeout, idleTTL: r.IdleTTL, created: r.Created, active: time.Now(),
		state: api.StateCreating, destroyed: make(chan struct{}), hurry: make(chan struct{}),
		terminated: r.Terminated, unheldSize: r.UnheldSize,
	}
	p.numbers.Store(max(p.numbers.Load(), r.Number))
	p.mu.Lock()
	p.sessions[s.id] = s
	p.order = append(p.order, s)
	if r.Terminated != nil {
		s.state = api.StateTerminated
		close(s.destroyed)
		p.ended++
	} else {
		p.live++
	}
	p.mu.Unlock()
	for _, e := range f.execs {
		s.rebuildExec(e)
	}
	if r.Terminated != nil && r.Params.TTY != nil {
		s.term = p.newTerminal(nil, nil, *r.Params.TTY)
		s.term.showAgain(s, f.screen)
		s.term.gone, s.term.buf = true, nil
	}
	return s
}

// rebuildExec makes an exec again, with its output.
func (s *Session) rebuildExec(f foundExec) {
	r := f.record
	e := s.newExecution(r.key)
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
	e.restoreJournal(r)
	if r.why != causeNone {
		e.why.Store(int32(r.why))
		close(e.stopped)
	}
	s.execCount = max(s.execCount, r.number)
	if e.key != "" {
		if s.keys == nil {
			s.keys = map[string]*execution{}
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
		s.keep(e)
	}
	s.pool.mu.Lock()
	s.pool.execs[e.id] = e
	s.pool.mu.Unlock()
}

// restoreJournal brings the output back, and goes on with it if it was not at
// its end.
func (e *execution) restoreJournal(r *execRecord) {
	p := e.session.pool
	e.journal.Release() // that of a new one
	var err error
	switch {
	case len(r.journal) > 0:
		e.journal, err = p.store.RestoreValue(r.journal)
	case r.lane != journal.Lane{}:
		e.journal, err = p.store.Restore(r.lane)
	default:
		e.journal = p.store.New()
	}
	if err != nil {
		p.cfg.Log.Error("output is lost", "exec", e.id, "error", err)
		e.journal = p.store.New() // for what is still to come
	}
	if r.stdin.read != 0 && r.state == api.ExecRunning {
		if e.stdin, err = adoptInput(p.cfg.Keeper, r.stdin); err != nil {
			p.cfg.Log.Error("input is lost", "exec", e.id, "error", err)
		}
	}
	for i, to := range []**capture{&e.stdout, &e.stderr} {
		if r.output[i] == 0 {
			continue
		}
		out, err := adoptOutlet(p.cfg.Keeper, r.output[i])
		if err != nil {
			p.cfg.Log.Error("output is lost", "exec", e.id, "error", err)
			continue
		}
		p.outlets.Adopt()
		e.streams.Add(1)
		*to = &capture{exec: e, stream: journal.Stream(i), out: out}
	}
}

// adopt takes over the processes of a session that lives.
func (s *Session) adopt(f *found) error {
	p, r := s.pool, f.record
	s.tree = p.host.AdoptTree(s.id, r.Tree)
	var err error
	if r.Terminal != nil {
		if s.term, err = p.adoptTerminal(s, r.Terminal, f.screen); err != nil {
			return err
		}
	}
	if len(r.Params.Argv) > 0 {
		s.proc, err = s.tree.AdoptProc(r.PID)
	} else {
		s.shell, err = p.hub.Adopt(s.shellConfig(), f.shell)
	}
	if err != nil {
		return err
	}
	if s.running != nil || len(s.queue) > 0 {
		s.state = api.StateRunning
	} else {
		s.state = api.StateIdle
	}
	s.adoptHold(r.Held)
	if r.Ending != "" {
		s.ending, s.endWhy = true, r.Ending
	}
	return nil
}

// adoptHold goes on with who has the keyboard.
func (s *Session) adoptHold(r *holdRecord) {
	if r == nil {
		return
	}
	h := &hold{lease: r.Lease, holder: r.Holder, since: r.Since, until: r.Until, ttl: r.TTL, answers: r.Answers}
	// Nobody could renew it while no daemon was there.
	h.extend(time.Now())
	h.expiry = time.AfterFunc(h.ttl, func() { s.expire(h) })
	s.held = h
	if s.term != nil {
		s.term.silent.Store(h.answers)
	}
}

// goOn lets what was under way go on.
func (s *Session) goOn() {
	s.mu.Lock()
	running, queue, ending, why := s.running, slices.Clone(s.queue), s.ending, s.endWhy
	if running == nil && len(queue) > 0 {
		s.running, s.queue = queue[0], s.queue[1:]
		close(queue[0].turn)
	}
	s.mu.Unlock()
	s.giveSizeBack() // a hold may have ended just before
	for _, e := range queue {
		s.pool.begin(e.runInTurn)
	}
	for _, e := range s.finished { // what it left behind may still write
		e.pumpOutput()
		e.closeWrites()
	}
	if running != nil {
		e := running
		e.followed, e.resumed = true, true
		if s.proc != nil {
			e.pumpOutput()
			e.closeWrites()
			s.pool.begin(e.runDirect)
		} else {
			s.pool.begin(e.resume)
		}
	}
	if ending {
		s.pool.begin(func() { s.end(why, nil) })
	}
}

// lose ends a session that can't be taken over.
func (s *Session) lose() {
	if s.tree == nil {
		s.tree = s.pool.host.AdoptTree(s.id, 0)
	}
	s.mu.Lock()
	s.state = api.StateIdle
	execs := append(slices.Clone(s.queue), s.running)
	s.queue, s.running, s.ending, s.endWhy = nil, nil, true, api.ReasonLost
	s.mu.Unlock()
	for _, e := range execs {
		if e != nil {
			e.neverRan()
			s.mu.Lock()
			s.keep(e)
			s.mu.Unlock()
		}
	}
	s.pool.begin(func() { s.end(api.ReasonLost, nil) })
}

// adoptTerminal takes over a terminal.
func (p *Pool) adoptTerminal(s *Session, slots *terminalSlots, screen *picture) (*terminal, error) {
	keep := p.cfg.Keeper
	var fds [5]int
	for i, slot := range []holder.Slot{slots.Master, slots.Slave, slots.Stage[0], slots.Stage[1], slots.Leader} {
		fds[i] = -1
		if slot == 0 {
			continue
		}
		fd, err := keep.Take(slot)
		if err != nil {
			for _, fd := range fds[:i] {
				_ = unix.Close(fd)
			}
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
	t.raw, err = t.master.SyscallConn()
	if err == nil && slots.Leader != 0 {
		t.leader, err = s.tree.AdoptTerminal(slots.LeaderPID, fds[4])
	}
	if err == nil {
		err = t.rememberSettings()
	}
	if err != nil {
		t.give()
		return nil, err
	}
	size, err := pty.GetSize(t.master)
	if err == nil { // what it is counts, if not yet what was noted
		s.params.TTY = &api.TTYSize{Rows: size.Rows, Cols: size.Cols}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.showAgain(s, screen)
	t.read()
	return t, nil
}

// showAgain makes the screen what it was: what was noted, and what commands have
// written since.
func (t *terminal) showAgain(s *Session, noted *picture) {
	if noted == nil { // there was no command yet
		noted = &picture{size: *s.params.TTY}
	}
	t.screen = newScreen(noted.size)
	_, _ = t.screen.Write(noted.ansi)
	execs := slices.Clone(s.finished)
	if s.running != nil {
		execs = append(execs, s.running)
	}
	for _, e := range execs {
		t.to = e
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
	t.noted, t.next = noted, noted
}
