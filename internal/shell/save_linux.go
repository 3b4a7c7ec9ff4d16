package shell

import (
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/state"
)

// save hands out what a restart needs. Afterwards no readable state names what is
// pending, which is then released: a slot must not be reused while a state that
// names it could still be read.
func (s *Shell) save() {
	if s.cfg.Save != nil {
		s.fillState(&s.stateScratch)
		c := state.Writer(s.stateBuf[:0])
		s.stateScratch.fields(&c)
		s.stateBuf = c.Value()
		s.cfg.Save(s.stateBuf)
	}
	s.releasePending()
}

// releasePending follows a save.
func (s *Shell) releasePending() {
	d := s.driver
	if s.unacked > 0 {
		d.router.saved(s.unacked)
		s.unacked = 0
	}
	p := &s.pendingRelease
	for _, h := range p.fds {
		d.keeper.drop(h)
	}
	for _, c := range p.reusable {
		d.copyPool.Put(c)
	}
	for _, c := range p.usedCopyFDs {
		d.copyPool.Drop(c)
	}
	for _, t := range p.scripts {
		d.scripts.wipe(t)
	}
	p.fds, p.reusable, p.usedCopyFDs, p.scripts = p.fds[:0], p.reusable[:0], p.usedCopyFDs[:0], p.scripts[:0]
}

// fillState makes st the state of the shell as it is now. Adopt does the reverse.
func (s *Shell) fillState(st *shellState) {
	*st = shellState{
		driver: s.driver.router.statusW.slotOrZero(), token: s.token, pid: int(s.pid.Load()), inCopy: s.inCopy, promoting: s.promoting,
		seq: s.seq, last: s.lastCode, lastID: s.lastID, acked: s.acked,
		control: s.ctl.w.slotOrZero(), controlRead: s.ctl.r.slotOrZero(), exits: s.exitStatus != nil,
		standby: s.standby.persisted(), exitCopy: s.exitCopy.persisted(),
		pendingStandby: s.pendingStandby.persisted(), promotionScript: s.promotionScript.persisted(),
	}
	if s.exitStatus != nil {
		st.exit = *s.exitStatus
	}
	if s.current != nil {
		st.hasRun = true
		s.current.fillState(&st.command)
	}
}

func (r *running) fillState(st *commandState) {
	st.id, st.stage, st.reportSeq, st.copyFDs = r.cmd.ID, r.stage, r.reportSeq, r.copyFDs.persisted()
	for i, t := range r.scripts {
		st.scripts[i] = t.persisted()
	}
	st.reported, st.calledExit, st.doubtSeq, st.code, st.keySignal = r.reported, r.calledExit, r.doubtSeq, r.code, r.keySignal
	st.stopping, st.killed, st.aborted, st.stopSince = r.stop.begun, r.stop.killed, r.stop.aborted, r.stop.since
	st.emergency = r.wedge.emergency
	st.stopped, st.rolledBack, st.rolledBackTo = r.res.Stopped, r.res.RolledBack, r.res.RolledBackTo
	st.resultCode, st.resultSignal, st.ending = r.res.Code, r.res.Signal, r.res.Ending
}

func (c *copyFDs) persisted() copyFDsState {
	if c == nil {
		return copyFDsState{}
	}
	return copyFDsState{wake: c.wake.slotOrZero(), traps: c.traps.slotOrZero()}
}

func (t *script) persisted() holder.Slot {
	if t == nil {
		return 0
	}
	return t.slotOrZero()
}

func (c *sleepingCopy) persisted() copyState {
	if c == nil {
		return copyState{}
	}
	return copyState{pid: c.proc.PID(), id: c.id, traps: c.traps}
}
