package shell

import (
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/process"
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

// stateVersion changes when the encoding does.
const stateVersion = 1

// appendState encodes the shell. Numbers are varints, a slot or a status is one
// more than it is so that zero is none, texts follow their length.
func (s *Shell) appendState(b []byte) []byte {
	e := encoder{b}
	e.num(stateVersion)
	e.text(s.token)
	e.num(int(s.pid.Load()))
	e.flags(s.inCopy)
	e.num(int(s.waking))
	e.num(s.seq)
	e.num(s.last)
	e.text(s.lastID)
	e.b = binary.AppendUvarint(e.b, s.heard)
	e.slot(s.ctl.w)
	e.slot(s.ctl.r)
	if s.exit != nil {
		e.num(*s.exit + 1)
	} else {
		e.num(0)
	}
	e.copied(s.standby)
	e.copied(s.heir)
	e.kit(s.taking)
	e.textSlot(s.rousing)
	r := s.now
	e.flags(r != nil)
	if r == nil {
		return e.b
	}
	e.text(r.cmd.ID)
	e.num(int(r.stage))
	e.num(r.seqOf)
	e.kit(r.kit)
	for _, t := range r.texts {
		e.textSlot(t)
	}
	e.flags(r.reported, r.left, r.stop.begun, r.stop.killed, r.stop.aborted, r.wedge.emergency)
	e.num(int(r.stop.since))
	e.num(r.doubt)
	e.num(r.code)
	e.num(int(r.keyed))
	e.flags(r.res.Stopped, r.res.RolledBack)
	e.num(r.res.Code)
	e.num(int(r.res.Signal))
	e.num(int(r.res.Ending))
	e.text(r.res.RolledBackTo)
	return e.b
}

type encoder struct{ b []byte }

func (e *encoder) num(n int) { e.b = binary.AppendUvarint(e.b, uint64(n)) }

func (e *encoder) text(t string) {
	e.num(len(t))
	e.b = append(e.b, t...)
}

func (e *encoder) flags(flags ...bool) {
	n := byte(0)
	for i, f := range flags {
		if f {
			n |= 1 << i
		}
	}
	e.b = append(e.b, n)
}

func (e *encoder) slot(k kept) { e.num(int(k.slot) + 1) }

func (e *encoder) kit(k *kit) {
	if k == nil {
		e.num(0)
		return
	}
	e.slot(k.wake)
	e.slot(k.traps)
}

func (e *encoder) textSlot(t *text) {
	if t == nil {
		e.num(0)
		return
	}
	e.slot(t.kept)
}

func (e *encoder) copied(c *copied) {
	if c == nil {
		e.num(0)
		return
	}
	e.num(c.proc.PID())
	e.text(c.id)
	e.num(len(c.traps))
	e.b = append(e.b, c.traps...)
}

// errState says that a state can't be read.
var errState = errors.New("the saved state of a shell can't be read")

// decoder reads what an encoder wrote. The first error stays.
type decoder struct {
	hub *Hub
	b   []byte
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) long() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.fail(errState)
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) num() int { return int(d.long()) }

func (d *decoder) text() string {
	n := d.num()
	if n < 0 || n > len(d.b) {
		d.fail(errState)
		return ""
	}
	t := string(d.b[:n])
	d.b = d.b[n:]
	return t
}

func (d *decoder) flags(flags ...*bool) {
	if len(d.b) == 0 {
		d.fail(errState)
		return
	}
	for i, f := range flags {
		*f = d.b[0]&(1<<i) != 0
	}
	d.b = d.b[1:]
}

// slot reads where something is kept, without taking it.
func (d *decoder) slot() kept { return d.hub.given(holder.Slot(d.num() - 1)) }

// taken reads where something is kept, and takes it.
func (d *decoder) taken() kept {
	slot := holder.Slot(d.num() - 1)
	if d.err != nil || slot < 0 {
		return none
	}
	k, err := d.hub.taken(slot)
	if err != nil {
		d.fail(err)
	}
	return k
}

func (d *decoder) kit() *kit {
	wake := d.slot()
	if !wake.there() {
		return nil
	}
	k := &kit{wake: wake, traps: d.taken()}
	d.hub.kits.Adopt()
	return k
}

func (d *decoder) textSlot() *text {
	k := d.taken()
	if !k.there() {
		return nil
	}
	d.hub.pieces.Adopt()
	return &text{k}
}

// copied reads a sleeping copy, which may be gone by now.
func (d *decoder) copied(tree *process.Tree) *copied {
	pid := d.num()
	if pid == 0 {
		return nil
	}
	c := &copied{id: d.text(), traps: []byte(d.text())}
	if d.err != nil {
		return nil
	}
	var err error
	if c.proc, err = tree.AdoptProc(pid); err != nil {
		d.hub.log.Debug("a copy of a shell is gone", "error", err)
		return nil
	}
	return c
}

// freshSeq is a number after which a shell's questions and lines were not counted
// before: not by the daemon that saved the state, nor by one that came later and
// died before it saved another. Their answers may still come.
func freshSeq(saved int) int { return max(saved, int(process.SinceBoot().Microseconds())) }

// Adopt makes the shell again of which an earlier daemon has saved a state. It
// waits for nothing and starts nothing: Resume does, or the next Run. The hub
// must not have been started yet.
func (h *Hub) Adopt(cfg Config, state []byte) (*Shell, error) {
	s := newShell(h, cfg)
	d := &decoder{hub: h, b: state}
	if d.num() != stateVersion {
		return nil, errState
	}
	s.token = d.text()
	pid := d.num()
	d.flags(&s.inCopy)
	s.adopted = true
	s.waking = waking(d.num())
	s.seq = freshSeq(d.num())
	s.asked = s.seq
	s.last = d.num()
	s.lastID = d.text()
	s.past = d.long()
	s.heard = s.past
	s.ctl.w, s.ctl.r = d.taken(), d.slot()
	if n := d.num(); n > 0 {
		n--
		s.exit = &n
	}
	s.setStandby(d.copied(cfg.Tree))
	s.heir = d.copied(cfg.Tree)
	s.taking = d.kit()
	s.rousing = d.textSlot()
	var running bool
	if d.flags(&running); running {
		s.now = d.running(s)
		s.awaited = s.now.doubt
	}
	if d.err == nil {
		d.err = s.adoptProc(pid)
	}
	if d.err != nil {
		return nil, errors.Join(d.err, s.Close())
	}
	h.mu.Lock()
	h.shells[s.token] = s
	h.mu.Unlock()
	return s, nil
}

// running reads the command that was under way, or the last one.
func (d *decoder) running(s *Shell) *running {
	r := &running{Shell: s}
	r.cmd.ID = d.text()
	r.stage = stage(d.num())
	r.seqOf = d.num()
	r.kit = d.kit()
	for i := range r.texts {
		r.texts[i] = d.textSlot()
	}
	d.flags(&r.reported, &r.left, &r.wasStopped, &r.stop.killed, &r.stop.aborted, &r.wedge.emergency)
	r.stop.since = time.Duration(d.num())
	r.doubt = d.num()
	r.stop.aborted = r.stop.aborted || r.wasStopped // that was saved before it was done
	r.code = d.num()
	r.keyed = unix.Signal(d.num())
	d.flags(&r.res.Stopped, &r.res.RolledBack)
	r.res.Code = d.num()
	r.res.Signal = unix.Signal(d.num())
	r.res.Ending = Ending(d.num())
	r.res.RolledBackTo = d.text()
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

// State is what AdoptHub needs. It never changes.
func (h *Hub) State() []byte {
	e := encoder{}
	e.num(stateVersion)
	e.slot(h.statusR)
	e.slot(h.statusW)
	e.slot(h.ring.kept)
	for _, t := range bootTexts {
		e.slot(h.texts[t.name])
	}
	return e.b
}

// AdoptHub makes the hub again of which an earlier daemon has saved the state.
// When its shells have been adopted it must be started.
func AdoptHub(cfg HubConfig, state []byte) (*Hub, error) {
	h := newHub(cfg)
	d := &decoder{hub: h, b: state}
	if d.num() != stateVersion {
		return nil, errors.Join(errState, h.Close())
	}
	h.statusR, h.statusW = d.taken(), d.taken()
	reports := d.taken()
	for _, t := range bootTexts {
		h.texts[t.name] = d.slot()
	}
	if d.err == nil {
		h.ring, d.err = mapRing(reports)
	}
	if d.err != nil {
		return nil, errors.Join(d.err, h.Close())
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
	for _, k := range h.texts {
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
