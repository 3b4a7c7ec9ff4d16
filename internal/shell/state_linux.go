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
	stageReady     stage = iota // nothing was said to the shell
	stageSending                // the line may have been written, or not
	stageSent                   // it was
	stageReplacing              // it is over, and the shell is being replaced
	stageReplaced               // and has been
	stageOver                   // its result stands
)

// save hands out what a restart needs. Afterwards nothing that was given up is
// known to anybody, and is really given up: a slot must not be another's while
// a state that names it could still be read.
func (s *Shell) save() {
	if s.cfg.Save != nil {
		s.stateBuf = s.appendState(s.stateBuf[:0])
		s.cfg.Save(s.stateBuf)
	}
	s.releasePending()
}

// settleSpent is what follows a save.
func (s *Shell) releasePending() {
	if s.unacked > 0 {
		s.driver.unsaved.Add(-s.unacked)
		s.unacked = 0
	}
	sp := &s.pendingRelease
	for _, k := range sp.fds {
		s.driver.drop(k)
	}
	for _, k := range sp.reusable {
		s.driver.copyPool.Put(k)
	}
	for _, k := range sp.usedCopyFDs {
		s.driver.copyPool.Drop(k)
	}
	for _, t := range sp.scripts {
		s.driver.returnScript(t)
	}
	sp.fds, sp.reusable, sp.usedCopyFDs, sp.scripts = sp.fds[:0], sp.reusable[:0], sp.usedCopyFDs[:0], sp.scripts[:0]
}

// spent is what is given up at the next save.
type pendingRelease struct {
	fds                   []heldFD
	reusable, usedCopyFDs []*copyFDs
	scripts               []*script
}

func (sp *pendingRelease) add(k heldFD) {
	if k.valid() {
		sp.fds = append(sp.fds, k)
	}
}

// dropKit is for a kit that somebody else may still have open.
func (sp *pendingRelease) dropCopyFDs(k *copyFDs) {
	if k != nil {
		sp.usedCopyFDs = append(sp.usedCopyFDs, k)
	}
}

func (sp *pendingRelease) reuseCopyFDs(k *copyFDs) {
	if k != nil {
		sp.reusable = append(sp.reusable, k)
	}
}

func (sp *pendingRelease) addScript(t *script) {
	if t != nil {
		sp.scripts = append(sp.scripts, t)
	}
}

// shellState is what Adopt needs to know of a shell. A slot that is 0 is none.
type shellState struct {
	driver          holder.Slot // where the shell reports: the status pipe of its hub
	token           string
	pid             int
	inCopy          bool
	promoting       promotion
	seq, last       int
	lastID          string
	acked           uint64
	control         holder.Slot
	controlRead     holder.Slot
	exits           bool // it said that it exits,
	exit            int  // with this status
	standby         copyState
	exitCopy        copyState
	pendingStandby  copyFDsState
	promotionScript holder.Slot
	hasRun          bool // of the last command, or the one under way:
	id              string
	stage           stage
	reportSeq       int
	copyFDs         copyFDsState
	scripts         [3]holder.Slot
	reported        bool
	calledExit      bool
	stopping        bool
	killed          bool
	aborted         bool
	emergency       bool
	stopSince       time.Duration
	doubtSeq        int
	code            int
	keySignal       unix.Signal
	stopped         bool
	rolledBack      bool
	resultCode      int
	resultSignal    unix.Signal
	ending          Ending
	rolledBackTo    string
}

// copyState is a sleeping copy; pid 0 is none.
type copyState struct {
	pid   int
	id    string
	traps []byte
}

type copyFDsState struct{ wake, traps holder.Slot }

func (st *shellState) fields(c *state.Coder) {
	state.Int(c, 1, &st.driver)
	state.Text(c, 2, &st.token)
	state.Int(c, 3, &st.pid)
	state.Bool(c, 4, &st.inCopy)
	state.Int(c, 5, &st.promoting)
	state.Int(c, 6, &st.seq)
	state.Int(c, 7, &st.last)
	state.Text(c, 8, &st.lastID)
	state.Int(c, 9, &st.acked)
	state.Int(c, 10, &st.control)
	state.Int(c, 11, &st.controlRead)
	state.Bool(c, 12, &st.exits)
	state.Int(c, 13, &st.exit)
	st.standby.fields(c, 14)
	st.exitCopy.fields(c, 17)
	st.pendingStandby.fields(c, 20)
	state.Int(c, 22, &st.promotionScript)
	state.Bool(c, 23, &st.hasRun)
	state.Text(c, 24, &st.id)
	state.Int(c, 25, &st.stage)
	state.Int(c, 26, &st.reportSeq)
	st.copyFDs.fields(c, 27)
	for i := range st.scripts {
		state.Int(c, uint64(29+i), &st.scripts[i])
	}
	state.Bool(c, 32, &st.reported)
	state.Bool(c, 33, &st.calledExit)
	state.Bool(c, 34, &st.stopping)
	state.Bool(c, 35, &st.killed)
	state.Bool(c, 36, &st.aborted)
	state.Bool(c, 37, &st.emergency)
	state.Int(c, 38, &st.stopSince)
	state.Int(c, 39, &st.doubtSeq)
	state.Int(c, 40, &st.code)
	state.Int(c, 41, &st.keySignal)
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

func (ks *copyFDsState) fields(c *state.Coder, tag uint64) {
	state.Int(c, tag, &ks.wake)
	state.Int(c, tag+1, &ks.traps)
}

// appendState adds what Adopt needs to b.
func (s *Shell) appendState(b []byte) []byte {
	st := &s.stateScratch
	s.fillState(st)
	c := state.Writer(b)
	st.fields(&c)
	return c.Value()
}

// persist makes st the state of the shell as it is now.
func (s *Shell) fillState(st *shellState) {
	*st = shellState{
		driver: s.driver.statusW.slotOrZero(), token: s.token, pid: int(s.pid.Load()), inCopy: s.inCopy, promoting: s.promoting,
		seq: s.seq, last: s.lastCode, lastID: s.lastID, acked: s.acked,
		control: s.ctl.w.slotOrZero(), controlRead: s.ctl.r.slotOrZero(), exits: s.exitStatus != nil,
		standby: s.standby.persisted(), exitCopy: s.exitCopy.persisted(), pendingStandby: s.pendingStandby.persisted(), promotionScript: s.promotionScript.persisted(),
	}
	if s.exitStatus != nil {
		st.exit = *s.exitStatus
	}
	r := s.current
	if r == nil {
		return
	}
	st.hasRun, st.id, st.stage, st.reportSeq, st.copyFDs = true, r.cmd.ID, r.stage, r.reportSeq, r.copyFDs.persisted()
	for i, t := range r.scripts {
		st.scripts[i] = t.persisted()
	}
	st.reported, st.calledExit, st.doubtSeq, st.code, st.keySignal = r.reported, r.calledExit, r.doubtSeq, r.code, r.keySignal
	st.stopping, st.killed, st.aborted, st.stopSince = r.stop.begun, r.stop.killed, r.stop.aborted, r.stop.since
	st.emergency = r.wedge.emergency
	st.stopped, st.rolledBack, st.rolledBackTo = r.res.Stopped, r.res.RolledBack, r.res.RolledBackTo
	st.resultCode, st.resultSignal, st.ending = r.res.Code, r.res.Signal, r.res.Ending
}

// kept returns the slot, 0 for none.
func (k heldFD) slotOrZero() holder.Slot {
	if !k.valid() {
		return 0
	}
	return k.slot
}

func (k *copyFDs) persisted() copyFDsState {
	if k == nil {
		return copyFDsState{}
	}
	return copyFDsState{wake: k.wake.slotOrZero(), traps: k.traps.slotOrZero()}
}

func (t *script) persisted() holder.Slot {
	if t == nil {
		return 0
	}
	return t.heldFD.slotOrZero()
}

func (c *sleepingCopy) persisted() copyState {
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
		st.control, st.controlRead, st.pendingStandby.wake, st.pendingStandby.traps, st.promotionScript,
		st.copyFDs.wake, st.copyFDs.traps, st.scripts[0], st.scripts[1], st.scripts[2],
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
func (h *Driver) Adopt(cfg Config, saved []byte) (*Shell, error) {
	var st shellState
	if err := state.Decode(saved, st.fields); err != nil {
		return nil, fmt.Errorf("read the state of a shell: %w", err)
	}
	if st.driver != 0 && st.driver != h.statusW.slotOrZero() {
		return nil, errors.New("the shell reports to a driver that is gone")
	}
	s := newShell(h, cfg)
	a := adoption{driver: h, tree: cfg.Tree}
	s.token, s.inCopy, s.adopted, s.promoting = st.token, st.inCopy, true, st.promoting
	s.seq = freshSeq(st.seq)
	s.staleSeq = s.seq
	s.lastCode, s.lastID, s.staleReports, s.acked = st.last, st.lastID, st.acked, st.acked
	s.ctl.w, s.ctl.r = a.take(st.control), h.heldSlot(st.controlRead)
	if st.exits {
		s.exitStatus = &st.exit
	}
	s.setStandby(a.sleepingCopy(st.standby))
	s.exitCopy = a.sleepingCopy(st.exitCopy)
	s.pendingStandby = a.copyFDs(st.pendingStandby)
	s.promotionScript = a.script(st.promotionScript)
	if st.hasRun {
		s.current = a.running(s, &st)
		s.awaitedSeq = s.current.doubtSeq
	}
	if a.err == nil {
		a.err = s.adoptProc(st.pid)
	}
	if a.err != nil {
		return nil, errors.Join(a.err, a.release())
	}
	for range a.copyFDsTaken {
		h.copyPool.Adopt()
	}
	for range a.scriptsTaken {
		h.scriptPool.Adopt()
	}
	h.mu.Lock()
	h.shells[s.token] = s
	h.mu.Unlock()
	return s, nil
}

// adoption takes what was kept of one owner. It owns nothing but the
// descriptors of this process, until the whole has succeeded.
type adoption struct {
	driver                     *Driver
	tree                       *process.Tree
	fds                        []int
	copyFDsTaken, scriptsTaken int   // taken so far
	err                        error // the first one; nothing is taken after it
}

// release closes what was taken.
func (a *adoption) release() error { return closeFDs(a.fds...) }

func (a *adoption) take(slot holder.Slot) heldFD {
	if slot == 0 || a.err != nil {
		return noFD
	}
	k, err := a.driver.takeHeld(slot)
	if err != nil {
		a.err = err
		return noFD
	}
	a.fds = append(a.fds, k.fd)
	return k
}

func (a *adoption) copyFDs(st copyFDsState) *copyFDs {
	if st.wake == 0 || a.err != nil {
		return nil
	}
	a.copyFDsTaken++
	return &copyFDs{wake: a.driver.heldSlot(st.wake), traps: a.take(st.traps)}
}

func (a *adoption) script(slot holder.Slot) *script {
	k := a.take(slot)
	if !k.valid() {
		return nil
	}
	a.scriptsTaken++
	return &script{heldFD: k}
}

// copied finds a sleeping copy, which may be gone by now.
func (a *adoption) sleepingCopy(st copyState) *sleepingCopy {
	if st.pid == 0 || a.err != nil {
		return nil
	}
	p, err := a.tree.AdoptProc(st.pid)
	if err != nil {
		a.driver.log.Debug("a copy of a shell is gone", "error", err)
		return nil
	}
	return &sleepingCopy{proc: p, id: st.id, traps: st.traps}
}

// running makes the command again that was under way, or the last one.
func (a *adoption) running(s *Shell, st *shellState) *running {
	r := &running{Shell: s, stage: st.stage, reportSeq: st.reportSeq, copyFDs: a.copyFDs(st.copyFDs)}
	r.cmd.ID = st.id
	for i, slot := range st.scripts {
		r.scripts[i] = a.script(slot)
	}
	r.reported, r.calledExit, r.wasStopped, r.doubtSeq, r.code, r.keySignal = st.reported, st.calledExit, st.stopping, st.doubtSeq, st.code, st.keySignal
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
	for _, c := range []*sleepingCopy{s.exitCopy, s.standby} {
		if c != nil && c.proc.PID() == pid { // it was being woken
			s.proc = c.proc
		}
	}
	if s.proc == nil {
		p, err := s.cfg.Tree.AdoptProc(pid)
		if err != nil && s.promoting == promotionNone {
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
type driverState struct {
	statusR, statusW, ring holder.Slot
	scripts                []scriptState
}

// scriptState is where a script that shells read is kept.
type scriptState struct {
	key  string // before scripts had keys: the name
	slot holder.Slot
}

func (st *driverState) fields(c *state.Coder) {
	state.Int(c, 1, &st.statusR)
	state.Int(c, 2, &st.statusW)
	state.Int(c, 3, &st.ring)
	state.List(c, 4, &st.scripts, func(c *state.Coder, s *scriptState) {
		state.Text(c, 1, &s.key)
		state.Int(c, 2, &s.slot)
	})
}

// CheckHubState returns an error for a state that AdoptHub could not read.
func CheckDriverState(saved []byte) error { return state.Decode(saved, new(driverState).fields) }

// State is what AdoptHub needs. It changes only when AdoptHub has added scripts.
func (h *Driver) State() []byte {
	st := driverState{statusR: h.statusR.slotOrZero(), statusW: h.statusW.slotOrZero(), ring: h.ring.heldFD.slotOrZero()}
	for _, key := range slices.Sorted(maps.Keys(h.loadedScripts)) {
		st.scripts = append(st.scripts, scriptState{key, h.loadedScripts[key].slotOrZero()})
	}
	return state.Encode(st.fields)
}

// AdoptHub makes the hub again of which an earlier daemon has saved the state.
// When its shells have been adopted it must be started. Scripts that the earlier
// one did not have are loaded; those that this one does not know stay.
//
// On an error everything that was kept stays kept.
func AdoptDriver(cfg DriverConfig, saved []byte) (*Driver, error) {
	var st driverState
	if err := state.Decode(saved, st.fields); err != nil {
		return nil, fmt.Errorf("read the state of the driver: %w", err)
	}
	h := newDriver(cfg)
	a := adoption{driver: h}
	h.statusR, h.statusW = a.take(st.statusR), a.take(st.statusW)
	reports := a.take(st.ring)
	if a.err == nil && (!h.statusR.valid() || !h.statusW.valid() || !reports.valid()) {
		a.err = errors.New("the state of the driver does not name its pipes")
	}
	for _, s := range st.scripts {
		h.loadedScripts[s.key] = h.heldSlot(s.slot)
	}
	if a.err == nil {
		h.ring, a.err = mapRing(reports)
	}
	if a.err == nil {
		if a.err = h.loadBootScripts(); a.err != nil {
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
func (h *Driver) Slots() []holder.Slot {
	var slots []holder.Slot
	add := func(ks ...heldFD) {
		for _, k := range ks {
			if k.valid() {
				slots = append(slots, k.slot)
			}
		}
	}
	addKit := func(k *copyFDs) {
		if k != nil {
			add(k.wake, k.traps)
		}
	}
	addText := func(t *script) {
		if t != nil {
			add(t.heldFD)
		}
	}
	add(h.statusR, h.statusW, h.ring.heldFD)
	for _, k := range h.loadedScripts {
		add(k)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.shells {
		add(s.ctl.w, s.ctl.r)
		addKit(s.pendingStandby)
		addText(s.promotionScript)
		if r := s.current; r != nil {
			addKit(r.copyFDs)
			for _, t := range r.scripts {
				addText(t)
			}
		}
	}
	return slots
}
