package shell

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/state"
)

// stage is how far a command has come.
type stage byte

const (
	stageReady   stage = iota // nothing was said to the shell
	stageSending              // the line may have been written, or not
	stageSent                 // it was
	stageMending              // it is over, and the shell is being replaced
	stageMended               // and has been
	stageOver                 // its result stands
)

// save hands out what a restart needs. Afterwards nothing that was given up is
// known to anybody, and is really given up: a slot must not be another's while
// a state that names it could still be read.
func (s *Shell) save() {
	if s.cfg.Save != nil {
		s.state = s.appendState(s.state[:0])
		s.cfg.Save(s.state)
	}
	s.settleSpent()
}

// settleSpent is what follows a save.
func (s *Shell) settleSpent() {
	if s.owed > 0 {
		s.hub.unsaved.Add(-s.owed)
		s.owed = 0
	}
	sp := &s.spent
	for _, k := range sp.kept {
		s.hub.drop(k)
	}
	for _, k := range sp.kits {
		s.hub.kits.Put(k)
	}
	for _, k := range sp.usedKits {
		s.hub.kits.Drop(k)
	}
	for _, t := range sp.texts {
		s.hub.giveBack(t)
	}
	sp.kept, sp.kits, sp.usedKits, sp.texts = sp.kept[:0], sp.kits[:0], sp.usedKits[:0], sp.texts[:0]
}

// spent is what is given up at the next save.
type spent struct {
	kept           []kept
	kits, usedKits []*kit
	texts          []*text
}

func (sp *spent) add(k kept) {
	if k.there() {
		sp.kept = append(sp.kept, k)
	}
}

// dropKit is for a kit that somebody else may still have open.
func (sp *spent) dropKit(k *kit) {
	if k != nil {
		sp.usedKits = append(sp.usedKits, k)
	}
}

func (sp *spent) putKit(k *kit) {
	if k != nil {
		sp.kits = append(sp.kits, k)
	}
}

func (sp *spent) addText(t *text) {
	if t != nil {
		sp.texts = append(sp.texts, t)
	}
}

// shellState is what Adopt needs to know of a shell. A slot that is 0 is none.
type shellState struct {
	driver       holder.Slot // where the shell reports: the status pipe of its hub
	token        string
	pid          int
	inCopy       bool
	waking       waking
	seq, last    int
	lastID       string
	heard        uint64
	control      holder.Slot
	controlRead  holder.Slot
	exits        bool // it said that it exits,
	exit         int  // with this status
	standby      copyState
	heir         copyState
	taking       kitState
	rousing      holder.Slot
	hasRun       bool // of the last command, or the one under way:
	id           string
	stage        stage
	seqOf        int
	kit          kitState
	texts        [3]holder.Slot
	reported     bool
	left         bool
	stopping     bool
	killed       bool
	aborted      bool
	emergency    bool
	stopSince    time.Duration
	doubt        int
	code         int
	keyed        unix.Signal
	stopped      bool
	rolledBack   bool
	resultCode   int
	resultSignal unix.Signal
	ending       Ending
	rolledBackTo string
}

// copyState is a sleeping copy; pid 0 is none.
type copyState struct {
	pid   int
	id    string
	traps []byte
}

type kitState struct{ wake, traps holder.Slot }

func (st *shellState) fields(c *state.Coder) {
	state.Int(c, 1, &st.driver)
	state.Text(c, 2, &st.token)
	state.Int(c, 3, &st.pid)
	state.Bool(c, 4, &st.inCopy)
	state.Int(c, 5, &st.waking)
	state.Int(c, 6, &st.seq)
	state.Int(c, 7, &st.last)
	state.Text(c, 8, &st.lastID)
	state.Int(c, 9, &st.heard)
	state.Int(c, 10, &st.control)
	state.Int(c, 11, &st.controlRead)
	state.Bool(c, 12, &st.exits)
	state.Int(c, 13, &st.exit)
	st.standby.fields(c, 14)
	st.heir.fields(c, 17)
	st.taking.fields(c, 20)
	state.Int(c, 22, &st.rousing)
	state.Bool(c, 23, &st.hasRun)
	state.Text(c, 24, &st.id)
	state.Int(c, 25, &st.stage)
	state.Int(c, 26, &st.seqOf)
	st.kit.fields(c, 27)
	for i := range st.texts {
		state.Int(c, uint64(29+i), &st.texts[i])
	}
	state.Bool(c, 32, &st.reported)
	state.Bool(c, 33, &st.left)
	state.Bool(c, 34, &st.stopping)
	state.Bool(c, 35, &st.killed)
	state.Bool(c, 36, &st.aborted)
	state.Bool(c, 37, &st.emergency)
	state.Int(c, 38, &st.stopSince)
	state.Int(c, 39, &st.doubt)
	state.Int(c, 40, &st.code)
	state.Int(c, 41, &st.keyed)
	state.Bool(c, 42, &st.stopped)
	state.Bool(c, 43, &st.rolledBack)
	state.Int(c, 44, &st.resultCode)
	state.Int(c, 45, &st.resultSignal)
	state.Int(c, 46, &st.ending)
	state.Text(c, 47, &st.rolledBackTo)
}

func (cs *copyState) fields(c *state.Coder, tag uint64) {
	state.Int(c, tag, &cs.pid)
	state.Text(c, tag+1, &cs.id)
	state.Bytes(c, tag+2, &cs.traps)
}

func (ks *kitState) fields(c *state.Coder, tag uint64) {
	state.Int(c, tag, &ks.wake)
	state.Int(c, tag+1, &ks.traps)
}

// appendState adds what Adopt needs to b.
func (s *Shell) appendState(b []byte) []byte {
	st := &s.saved
	s.persist(st)
	c := state.Writer(b)
	st.fields(&c)
	return c.Value()
}

// persist makes st the state of the shell as it is now.
func (s *Shell) persist(st *shellState) {
	*st = shellState{
		driver: s.hub.statusW.kept(), token: s.token, pid: int(s.pid.Load()), inCopy: s.inCopy, waking: s.waking,
		seq: s.seq, last: s.last, lastID: s.lastID, heard: s.heard,
		control: s.ctl.w.kept(), controlRead: s.ctl.r.kept(), exits: s.exit != nil,
		standby: s.standby.persisted(), heir: s.heir.persisted(), taking: s.taking.persisted(), rousing: s.rousing.persisted(),
	}
	if s.exit != nil {
		st.exit = *s.exit
	}
	r := s.now
	if r == nil {
		return
	}
	st.hasRun, st.id, st.stage, st.seqOf, st.kit = true, r.cmd.ID, r.stage, r.seqOf, r.kit.persisted()
	for i, t := range r.texts {
		st.texts[i] = t.persisted()
	}
	st.reported, st.left, st.doubt, st.code, st.keyed = r.reported, r.left, r.doubt, r.code, r.keyed
	st.stopping, st.killed, st.aborted, st.stopSince = r.stop.begun, r.stop.killed, r.stop.aborted, r.stop.since
	st.emergency = r.wedge.emergency
	st.stopped, st.rolledBack, st.rolledBackTo = r.res.Stopped, r.res.RolledBack, r.res.RolledBackTo
	st.resultCode, st.resultSignal, st.ending = r.res.Code, r.res.Signal, r.res.Ending
}

// kept returns the slot, 0 for none.
func (k kept) kept() holder.Slot {
	if !k.there() {
		return 0
	}
	return k.slot
}

func (k *kit) persisted() kitState {
	if k == nil {
		return kitState{}
	}
	return kitState{wake: k.wake.kept(), traps: k.traps.kept()}
}

func (t *text) persisted() holder.Slot {
	if t == nil {
		return 0
	}
	return t.kept.kept()
}

func (c *copied) persisted() copyState {
	if c == nil {
		return copyState{}
	}
	return copyState{pid: c.proc.PID(), id: c.id, traps: c.traps}
}

// CheckState returns an error for a state that Adopt could not read.
func CheckState(saved []byte) error { return state.Decode(saved, new(shellState).fields) }

// SlotsOf returns what a shell has kept, according to a state that it saved.
func SlotsOf(saved []byte) []holder.Slot {
	var st shellState
	if state.Decode(saved, st.fields) != nil {
		return nil
	}
	return []holder.Slot{
		st.control, st.controlRead, st.taking.wake, st.taking.traps, st.rousing,
		st.kit.wake, st.kit.traps, st.texts[0], st.texts[1], st.texts[2],
	}
}

// UnderWay returns the id of the command that a shell was running when it saved
// this state. It is not over as long as its result does not stand.
func UnderWay(saved []byte) (id string, ok bool) {
	var st shellState
	err := state.Decode(saved, st.fields)
	return st.id, err == nil && st.hasRun && st.stage != stageOver && st.id != ""
}

// freshSeq is a number after which a shell's questions and lines were not counted
// before: not by the daemon that saved the state, nor by one that came later and
// died before it saved another. Their answers may still come.
func freshSeq(saved int) int { return max(saved, int(process.SinceBoot().Microseconds())) }

// Adopt makes the shell again of which an earlier daemon has saved a state. It
// waits for nothing and starts nothing: Resume does, or the next Run. The hub
// must not have been started yet.
//
// On an error everything that was kept stays kept, and only descriptors of this
// process are closed: a later daemon may be able to go on with the shell.
func (h *Hub) Adopt(cfg Config, saved []byte) (*Shell, error) {
	var st shellState
	if err := state.Decode(saved, st.fields); err != nil {
		return nil, fmt.Errorf("read the state of a shell: %w", err)
	}
	if st.driver != 0 && st.driver != h.statusW.kept() {
		return nil, errors.New("the shell reports to a driver that is gone")
	}
	s := newShell(h, cfg)
	a := adoption{hub: h, tree: cfg.Tree}
	s.token, s.inCopy, s.adopted, s.waking = st.token, st.inCopy, true, st.waking
	s.seq = freshSeq(st.seq)
	s.asked = s.seq
	s.last, s.lastID, s.past, s.heard = st.last, st.lastID, st.heard, st.heard
	s.ctl.w, s.ctl.r = a.take(st.control), h.given(st.controlRead)
	if st.exits {
		s.exit = &st.exit
	}
	s.setStandby(a.copied(st.standby))
	s.heir = a.copied(st.heir)
	s.taking = a.kit(st.taking)
	s.rousing = a.text(st.rousing)
	if st.hasRun {
		s.now = a.running(s, &st)
		s.awaited = s.now.doubt
	}
	if a.err == nil {
		a.err = s.adoptProc(st.pid)
	}
	if a.err != nil {
		return nil, errors.Join(a.err, a.release())
	}
	for range a.kits {
		h.kits.Adopt()
	}
	for range a.texts {
		h.pieces.Adopt()
	}
	h.mu.Lock()
	h.shells[s.token] = s
	h.mu.Unlock()
	return s, nil
}

// adoption takes what was kept of one owner. It owns nothing but the
// descriptors of this process, until the whole has succeeded.
type adoption struct {
	hub         *Hub
	tree        *process.Tree
	fds         []int
	kits, texts int   // taken so far
	err         error // the first one; nothing is taken after it
}

// release closes what was taken.
func (a *adoption) release() error { return closeFDs(a.fds...) }

func (a *adoption) take(slot holder.Slot) kept {
	if slot == 0 || a.err != nil {
		return none
	}
	k, err := a.hub.taken(slot)
	if err != nil {
		a.err = err
		return none
	}
	a.fds = append(a.fds, k.fd)
	return k
}

func (a *adoption) kit(st kitState) *kit {
	if st.wake == 0 || a.err != nil {
		return nil
	}
	a.kits++
	return &kit{wake: a.hub.given(st.wake), traps: a.take(st.traps)}
}

func (a *adoption) text(slot holder.Slot) *text {
	k := a.take(slot)
	if !k.there() {
		return nil
	}
	a.texts++
	return &text{kept: k}
}

// copied finds a sleeping copy, which may be gone by now.
func (a *adoption) copied(st copyState) *copied {
	if st.pid == 0 || a.err != nil {
		return nil
	}
	p, err := a.tree.AdoptProc(st.pid)
	if err != nil {
		a.hub.log.Debug("a copy of a shell is gone", "error", err)
		return nil
	}
	return &copied{proc: p, id: st.id, traps: st.traps}
}

// running makes the command again that was under way, or the last one.
func (a *adoption) running(s *Shell, st *shellState) *running {
	r := &running{Shell: s, stage: st.stage, seqOf: st.seqOf, kit: a.kit(st.kit)}
	r.cmd.ID = st.id
	for i, slot := range st.texts {
		r.texts[i] = a.text(slot)
	}
	r.reported, r.left, r.wasStopped, r.doubt, r.code, r.keyed = st.reported, st.left, st.stopping, st.doubt, st.code, st.keyed
	r.stop.killed, r.stop.since = st.killed, st.stopSince
	r.stop.aborted = st.aborted || st.stopping // a stop is saved before it is done
	r.wedge.emergency = st.emergency
	r.res = Result{
		Code: st.resultCode, Signal: st.resultSignal, Ending: st.ending,
		Stopped: st.stopped, RolledBack: st.rolledBack, RolledBackTo: st.rolledBackTo,
	}
	return r
}

// adoptProc finds the process that is the shell, or was when it was last seen.
func (s *Shell) adoptProc(pid int) error {
	for _, c := range []*copied{s.heir, s.standby} {
		if c != nil && c.proc.PID() == pid { // it was being woken
			s.proc = c.proc
		}
	}
	if s.proc == nil {
		p, err := s.cfg.Tree.AdoptProc(pid)
		if err != nil && s.waking == wakingNone {
			return err
		}
		s.proc = p // nil: it is gone, and is being replaced
	}
	s.pid.Store(int64(pid))
	var st unix.Stat_t
	if err := unix.Fstat(s.ctl.w.fd, &st); err != nil {
		return err
	}
	s.ctl.inode = st.Ino
	return nil
}

// hubState is what AdoptHub needs to know.
type hubState struct {
	statusR, statusW, ring holder.Slot
	scripts                []scriptState
}

// scriptState is where a script that shells read is kept.
type scriptState struct {
	key  string // before scripts had keys: the name
	slot holder.Slot
}

func (st *hubState) fields(c *state.Coder) {
	state.Int(c, 1, &st.statusR)
	state.Int(c, 2, &st.statusW)
	state.Int(c, 3, &st.ring)
	state.List(c, 4, &st.scripts, func(c *state.Coder, s *scriptState) {
		state.Text(c, 1, &s.key)
		state.Int(c, 2, &s.slot)
	})
}

// CheckHubState returns an error for a state that AdoptHub could not read.
func CheckHubState(saved []byte) error { return state.Decode(saved, new(hubState).fields) }

// State is what AdoptHub needs. It changes only when AdoptHub has added scripts.
func (h *Hub) State() []byte {
	st := hubState{statusR: h.statusR.kept(), statusW: h.statusW.kept(), ring: h.ring.kept.kept()}
	for _, key := range slices.Sorted(maps.Keys(h.scripts)) {
		st.scripts = append(st.scripts, scriptState{key, h.scripts[key].kept()})
	}
	return state.Encode(st.fields)
}

// AdoptHub makes the hub again of which an earlier daemon has saved the state.
// When its shells have been adopted it must be started. Scripts that the earlier
// one did not have are loaded; those that this one does not know stay.
//
// On an error everything that was kept stays kept.
func AdoptHub(cfg HubConfig, saved []byte) (*Hub, error) {
	var st hubState
	if err := state.Decode(saved, st.fields); err != nil {
		return nil, fmt.Errorf("read the state of the driver: %w", err)
	}
	h := newHub(cfg)
	a := adoption{hub: h}
	h.statusR, h.statusW = a.take(st.statusR), a.take(st.statusW)
	reports := a.take(st.ring)
	if a.err == nil && (!h.statusR.there() || !h.statusW.there() || !reports.there()) {
		a.err = errors.New("the state of the driver does not name its pipes")
	}
	for _, s := range st.scripts {
		h.scripts[s.key] = h.given(s.slot)
	}
	if a.err == nil {
		h.ring, a.err = mapRing(reports)
	}
	if a.err == nil {
		if a.err = h.loadTexts(); a.err != nil {
			a.err = errors.Join(a.err, h.ring.unmap())
		}
	}
	if a.err != nil {
		h.clock.close()
		return nil, errors.Join(a.err, a.release())
	}
	return h, nil
}

// Slots are what the hub and its shells have kept, before the hub is started.
// Nobody needs what else an earlier daemon has kept for them.
func (h *Hub) Slots() []holder.Slot {
	var slots []holder.Slot
	add := func(ks ...kept) {
		for _, k := range ks {
			if k.there() {
				slots = append(slots, k.slot)
			}
		}
	}
	addKit := func(k *kit) {
		if k != nil {
			add(k.wake, k.traps)
		}
	}
	addText := func(t *text) {
		if t != nil {
			add(t.kept)
		}
	}
	add(h.statusR, h.statusW, h.ring.kept)
	for _, k := range h.scripts {
		add(k)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.shells {
		add(s.ctl.w, s.ctl.r)
		addKit(s.taking)
		addText(s.rousing)
		if r := s.now; r != nil {
			addKit(r.kit)
			for _, t := range r.texts {
				addText(t)
			}
		}
	}
	return slots
}
