package shell

import (
	"errors"
	"fmt"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/state"
)

// Adopt takes over a shell that an earlier daemon has saved the state of. It waits
// for nothing and starts nothing: Resume does, or the next Run. It must be called
// before Start.
//
// On an error everything that is held stays held, and only descriptors of this
// process are closed: a later daemon may be able to continue with the shell.
func (d *Driver) Adopt(cfg Config, saved []byte) (*Shell, error) {
	var st shellState
	if err := state.Decode(saved, st.fields); err != nil {
		return nil, fmt.Errorf("read the state of a shell: %w", err)
	}
	if st.driver != 0 && st.driver != d.router.statusW.slotOrZero() {
		return nil, errors.New("the shell reports to a driver that is gone")
	}
	s, err := d.newShell(cfg)
	if err != nil {
		return nil, err
	}
	a := shellAdoption{adoption: adoption{keeper: d.keeper}, shell: s}
	s.token, s.inCopy, s.adopted, s.promoting = st.token, st.inCopy, true, st.promoting
	s.seq = freshSeq(st.seq)
	s.lastCode, s.lastID, s.acked = st.last, st.lastID, st.acked
	s.inbox.staleReports, s.inbox.staleSeq = st.acked, s.seq
	s.ctl.w, s.ctl.r = a.take(st.control), d.keeper.heldSlot(st.controlRead)
	if st.exits {
		s.exitStatus = &st.exit
	}
	s.setStandby(a.sleepingCopy(st.standby))
	s.exitCopy = a.sleepingCopy(st.exitCopy)
	s.pendingStandby = a.copyFDs(st.pendingStandby)
	s.promotionScript = a.script(st.promotionScript)
	if st.hasRun {
		s.current = a.running(&st.command)
		s.inbox.awaitedSeq = s.current.doubtSeq
	}
	if a.err == nil {
		a.err = s.adoptProc(st.pid)
	}
	if a.err != nil {
		return nil, errors.Join(a.err, a.undo())
	}
	for range a.copyFDsTaken {
		d.copyPool.Adopt()
	}
	for range a.scriptsTaken {
		d.scripts.Adopt()
	}
	d.router.register(s.token, s.inbox)
	return s, nil
}

// freshSeq returns a number above all that were used for the shell's questions and
// lines before: by the daemon that saved the state, or by one that came later and
// died before it saved another. Their answers may still arrive.
func freshSeq(saved int) int { return max(saved, int(process.SinceBoot().Microseconds())) }

// shellAdoption takes over what a shell has.
type shellAdoption struct {
	adoption
	shell                      *Shell
	copyFDsTaken, scriptsTaken int
}

func (a *shellAdoption) copyFDs(st copyFDsState) *copyFDs {
	if st.wake == 0 || a.err != nil {
		return nil
	}
	a.copyFDsTaken++
	return &copyFDs{wake: a.keeper.heldSlot(st.wake), traps: a.take(st.traps)}
}

func (a *shellAdoption) script(slot holder.Slot) *script {
	h := a.take(slot)
	if !h.valid() {
		return nil
	}
	a.scriptsTaken++
	return &script{heldFD: h}
}

// sleepingCopy finds a sleeping copy, which may be gone by now.
func (a *shellAdoption) sleepingCopy(st copyState) *sleepingCopy {
	if st.pid == 0 || a.err != nil {
		return nil
	}
	p, err := a.shell.cfg.Tree.AdoptProc(st.pid)
	if err != nil {
		a.shell.driver.log.Debug("copy of a shell exited while there was no daemon", "error", err)
		return nil
	}
	return &sleepingCopy{proc: p, id: st.id, traps: st.traps}
}

// running restores the command that was running, or the last one.
func (a *shellAdoption) running(st *commandState) *running {
	r := &running{shell: a.shell, stage: st.stage, reportSeq: st.reportSeq, copyFDs: a.copyFDs(st.copyFDs)}
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

// adoptProc finds the process that is the shell, or was when its state was saved.
func (s *Shell) adoptProc(pid int) error {
	for _, c := range []*sleepingCopy{s.exitCopy, s.standby} {
		if c != nil && c.proc.PID() == pid { // it was being promoted
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
	inode, err := inodeOf(s.ctl.w.fd)
	s.ctl.inode = inode
	return err
}
