package shell

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/process"
)

// prepare brings the shell into a state to run a command: it awaits a standby that
// was asked for, and replaces a shell that went away while idle.
func (s *Shell) prepare(res *Result) error {
	if s.promoting == promotionNone {
		if s.adopted {
			s.settleAdopted()
		}
		s.awaitStandby()
		if s.standby == nil && s.failedCopies > 0 && s.failedCopies <= standbyTries {
			// A machine that stalls must not leave the state without a copy: this
			// command may end the shell.
			s.askStandby()
			s.awaitStandby()
		}
		s.handlePending()
		if s.exitStatus == nil && !s.proc.Exited() {
			return nil
		}
	}
	return s.replace(res, nil)
}

// recoverShell replaces the shell after a command that ended it or after which it is
// unusable (broken), and records the cause in res.
func (r *running) recoverShell(res *Result, broken bool) error {
	s := r.shell
	switch {
	case s.exitStatus != nil:
		res.Ending, res.Code = ShellExited, *s.exitStatus
	case r.reported:
		res.Ending = ShellDied // killed by the driver: the command left the shell unusable
	case broken:
		res.Ending, res.Signal = ShellDied, unix.SIGKILL
		res.Code = 128 + int(res.Signal)
	default:
		st := s.proc.Status() // it is dead
		res.Code, res.Signal, res.Ending = st.Code, st.Signal, ShellDied
		if st.Signal == 0 {
			res.Ending = ShellExited // exec, or an exit that could not be reported
		}
	}
	r.stage = stageReplacing
	s.save()
	return s.replace(res, r)
}

// replace puts the best copy in the place of the shell: the exit copy, the standby,
// or a new shell. r is the command during which it went away, or nil. It continues
// where an earlier daemon was interrupted.
func (s *Shell) replace(res *Result, r *running) error {
	if s.promoting == promotionNone {
		if s.exitStatus != nil {
			s.awaitExitCopy(r)
		}
		s.proc.Signal(unix.SIGKILL)
		if !s.await(s.proc) {
			return ErrClosed
		}
		s.settlePendingStandby()
		s.exitStatus = nil
	}
	if c := s.exitCopy; c != nil && s.promoting <= promotionExitCopy {
		if err := s.promote(c, promotionExitCopy, r.leavePath()); err == nil {
			if s.standby != nil {
				s.standby.proc.Signal(unix.SIGKILL)
			}
			s.promoted()
			return nil
		}
	}
	s.exitCopy = nil
	res.RolledBack = true
	if standby := s.standby; standby != nil && s.promoting <= promotionStandby {
		res.RolledBackTo = standby.id
		if err := s.promote(standby, promotionStandby, ""); err == nil {
			s.promoted()
			return nil
		}
	}
	s.setStandby(nil)
	select {
	case <-s.abandoned:
		return ErrClosed
	default:
	}
	res.RolledBackTo = ""
	if s.promoting == promotionNewShell {
		s.killStrays() // what an earlier daemon has started
	}
	s.promoting = promotionNewShell
	s.save()
	return s.boot(bootTime)
}

// promoted is called when a copy has become the shell.
func (s *Shell) promoted() {
	s.exitCopy = nil
	s.setStandby(nil)
	s.shellReplaced()
}

// awaitExitCopy handles the reports of a shell that exits until it is dead and has
// left its exit copy. Without a command there are no copyFDs, and so no exit copy.
func (s *Shell) awaitExitCopy(r *running) {
	limit := time.NewTimer(exitCopyTime)
	defer limit.Stop()
	done := s.proc.Done()
	for done != nil || r != nil && r.copyFDs != nil && s.exitCopy == nil {
		select {
		case rep := <-s.inbox.reports:
			s.handleReport(rep, r)
		case <-done:
			done = nil
		case <-s.abandoned:
			return
		case <-limit.C:
			return
		}
	}
}

// promote makes a sleeping copy the shell: it sends the copy its control pipe, where
// its traps are, and its token. leave is the path of the script that undoes the
// environment of a command, which an exit copy still has. All of it may be sent
// twice, so it does not matter how much of it an earlier daemon has sent.
func (s *Shell) promote(c *sleepingCopy, as promotion, leave string) error {
	if s.promoting != as {
		if err := s.preparePromotion(c); err != nil {
			return err
		}
		s.promoting, s.inCopy = as, true
		if err := s.setProc(c.proc); err != nil {
			return err
		}
		s.save()
	}
	err := writeWakePipe(c.proc, s.ctl.r.path+" "+s.promotionScript.path+" "+s.token+"\n")
	if err == nil && leave != "" {
		err = s.ctl.send(s.family.builtin(".") + " " + leave + "\n")
	}
	if err == nil {
		err = s.awaitReady(bootTime)
	}
	s.pendingRelease.addScript(s.promotionScript)
	s.promotionScript = nil
	if err != nil {
		c.proc.Signal(unix.SIGKILL)
		s.await(c.proc) // before the paths that it knows are released
		return fmt.Errorf("promote a copy: %w", err)
	}
	s.lastID = c.id
	return nil
}

// preparePromotion makes what promote sends to a copy.
func (s *Shell) preparePromotion(c *sleepingCopy) error {
	if err := s.openControl(); err != nil {
		return err
	}
	s.pendingRelease.addScript(s.promotionScript)
	s.promotionScript = nil
	traps, err := s.driver.scripts.write(string(c.traps))
	if err != nil {
		return err
	}
	s.promotionScript = traps
	return s.newToken()
}

// writeWakePipe writes to the pipe on which a copy sleeps. The copy itself holds it,
// as its standard input, so an idle session costs the daemon no descriptor.
func writeWakePipe(p *process.Proc, line string) error {
	fd, err := unix.Open("/proc/"+strconv.Itoa(p.PID())+"/fd/0", unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(line))
	return errors.Join(err, unix.Close(fd))
}
