package shell

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/process"
)

const (
	// heirTime is how long an exiting shell may take to leave its heir.
	exitCopyTime = 3 * time.Second
	// standbyTime is how long a shell may take to fork a standby; a command
	// that comes meanwhile waits for it.
	standbyTime = 500 * time.Millisecond
)

// adopt makes a copy that has reported ours: it is freed from the subshell
// that forked it and tracked. It returns nil if it is gone already.
func (s *Shell) adoptCopy(rep report, k *copyFDs, id string) *sleepingCopy {
	s.pendingRelease.dropCopyFDs(k) // the copy holds what it needs
	if outer := rep.b; outer > 1 && outer != s.cfg.Tree.Parent() && outer != s.proc.PID() {
		// Around an heir all carries the command's mark, and would be taken for
		// what the command left running.
		var siblings []int
		if rep.kind == reportExitCopy {
			siblings = slices.DeleteFunc(process.Children(outer), func(pid int) bool { return pid == rep.a })
		}
		if s.cfg.Tree.Signal(outer, unix.SIGKILL) { // only if it is in the tree
			process.AwaitExit(siblings, exitCopyTime)
		}
	}
	p, err := s.cfg.Tree.Adopt(rep.a)
	if err != nil {
		s.driver.log.Debug("a copy of the shell is gone before it was adopted", "error", err)
		return nil
	}
	return &sleepingCopy{proc: p, traps: k.readTraps(), id: id}
}

// ready brings the shell into a state to run a command: a standby under way is
// awaited, and a shell that went away while idle is replaced.
func (s *Shell) prepare(res *Result) error {
	if s.promoting == promotionNone {
		if s.adopted {
			s.settleAdopted()
		}
		s.awaitStandby()
		s.handlePending()
		if s.exitStatus == nil && !s.proc.Exited() {
			return nil
		}
	}
	return s.replace(res, nil)
}

// mend replaces the shell after a command that ended it or after which it
// can't go on (broken), and says in res what it was.
func (r *running) recoverShell(res *Result, broken bool) error {
	switch {
	case r.exitStatus != nil:
		res.Ending, res.Code = ShellExited, *r.exitStatus
	case r.reported:
		res.Ending = ShellDied // by us: it ended well and left the shell unusable
	case broken:
		res.Ending, res.Signal = ShellDied, unix.SIGKILL
		res.Code = 128 + int(res.Signal)
	default:
		st := r.proc.Status() // it is dead
		res.Code, res.Signal, res.Ending = st.Code, st.Signal, ShellDied
		if st.Signal == 0 {
			res.Ending = ShellExited // exec, or an exit that could not be reported
		}
	}
	r.stage = stageReplacing
	r.save()
	return r.replace(res, r)
}

// replace puts the best copy in the place of the shell: the heir, the standby,
// or a new shell. r is the command during which it went, or nil. If an earlier
// daemon was at it, it goes on from there.
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
	if heir := s.exitCopy; heir != nil && s.promoting <= promotionExitCopy {
		if err := s.promote(heir, promotionExitCopy, r.leavePath()); err == nil {
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

// awake is when a copy has become the shell.
func (s *Shell) promoted() {
	s.exitCopy = nil
	s.setStandby(nil)
	s.shellReplaced()
}

// replaced is when there is a shell again.
func (s *Shell) shellReplaced() {
	s.promoting = promotionNone
	if r := s.current; r != nil && r.stage == stageReplacing {
		r.stage = stageReplaced
	}
	s.save()
}

// endTaking settles what became of a standby whose shell is dead: the copy may
// be alive all the same. What it left half-way is killed before the kit, whose
// paths it knows, is given up.
func (s *Shell) settlePendingStandby() {
	s.awaitStandby()
	if s.pendingStandby == nil {
		return
	}
	s.killStrays()
	s.pendingRelease.dropCopyFDs(s.pendingStandby)
	s.pendingStandby = nil
}

// settle brings a shell that was adopted while idle to where it would be: it
// may have been asked for a standby, or not yet. An older daemon may have left it an
// abort that came too late for its command; in bash it would be a DEBUG trap, which
// can't be told from one of the user's.
func (s *Shell) settleAdopted() {
	s.adopted = false
	s.handlePending()
	answered := false
	switch {
	case s.proc.Exited():
	case s.cfg.Program.Family != Bash:
		answered = s.forgetAborts(bootTime) == nil
	case s.pendingStandby != nil:
		answered = s.awaitReady(bootTime) == nil
	}
	if answered && s.pendingStandby != nil { // it has read all that it was told
		s.settlePendingStandby()
		s.save()
	}
	if s.standby == nil && s.exitStatus == nil {
		s.askStandby()
	}
}

// killStrays kills what the driver has had started and nobody knows.
func (s *Shell) killStrays() {
	known := map[int]bool{}
	for _, c := range []*sleepingCopy{s.exitCopy, s.standby} {
		if c != nil {
			known[c.proc.PID()] = true
		}
	}
	if s.proc != nil {
		known[s.proc.PID()] = true
	}
	if s.cfg.Terminal != nil {
		known[s.cfg.Terminal.PID()] = true
	}
	s.cfg.Tree.KillMarked(func(pid int, mark uint32) bool { return mark == 0 && !known[pid] }, time.Now().Add(standbyTime))
}

// awaitHeir serves the reports of a shell that exits until it is dead and has
// left its heir. Without a command there is no kit, and so no heir.
func (s *Shell) awaitExitCopy(r *running) {
	limit := time.NewTimer(exitCopyTime)
	defer limit.Stop()
	done := s.proc.Done()
	for done != nil || r != nil && r.copyFDs != nil && s.exitCopy == nil {
		select {
		case rep := <-s.reports:
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

// wake makes a sleeping copy the shell: it is told its control pipe, where its
// traps are, and its token. leave is the path of what undoes the environment of
// a command, which an heir still has. All of it may be said twice, so it does
// not matter how much of it an earlier daemon has.
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
		err = s.send(s.cfg.Program.Family.builtin(".") + " " + leave + "\n")
	}
	if err == nil {
		err = s.awaitReady(bootTime)
	}
	s.pendingRelease.addScript(s.promotionScript)
	s.promotionScript = nil
	if err != nil {
		c.proc.Signal(unix.SIGKILL)
		s.await(c.proc) // before the paths it was told are given up
		return fmt.Errorf("wake a copy: %w", err)
	}
	s.lastID = c.id
	return nil
}

// prepareWake makes what a copy is told of.
func (s *Shell) preparePromotion(c *sleepingCopy) error {
	if err := s.openControl(); err != nil {
		return err
	}
	s.pendingRelease.addScript(s.promotionScript)
	s.promotionScript = nil
	traps, err := s.driver.takeScript(string(c.traps))
	if err != nil {
		return err
	}
	s.promotionScript = traps
	return s.newToken()
}

// tell writes to the pipe on which a copy sleeps. The copy itself holds it, as
// its standard input, so an idle session costs the daemon no descriptor.
func writeWakePipe(p *process.Proc, text string) error {
	fd, err := unix.Open("/proc/"+strconv.Itoa(p.PID())+"/fd/0", unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(text))
	return errors.Join(err, unix.Close(fd))
}

// budget decides when a standby is worth its fork. The fork is on nobody's way
// while the shell is idle; in a burst of commands it would delay each of them.
// So the first commands after a pause get a standby each, at once, and a burst
// gets one now and then: taking them costs a few percent of it at the most, and
// a roll-back loses at the most what ran since.
//
// What one costs is measured. It is longer where many shells are busy at once,
// or where a shell is large, and there both the time between two standbys and
// what counts as a pause are longer too: else the standbys of many shells would
// take the processors from all their commands.
type budget struct {
	tokens float64
	at     time.Time
	cost   time.Duration // of a standby, from when it was asked for
}

const (
	budgetMax   = 4.0
	budgetShare = 40 // a token is worth this many times the cost
	// standbyCost is what one costs on a machine with nothing else to do, and
	// what is assumed at first. No less is reckoned with.
	minStandbyCost = time.Millisecond
	// dearestStandby bounds what is reckoned with: it is a bound of what a burst
	// may lose.
	maxStandbyCost = 50 * time.Millisecond
	// idleShare is the pause, in costs, after which a shell without a current
	// standby takes one.
	idleShare = 5
)

// paid notes what a standby has cost. One alone may have met a bad moment, so
// it counts for a quarter.
func (b *budget) recordCost(d time.Duration) {
	b.cost = b.estimate() + (min(d, maxStandbyCost)-b.estimate())/4
}

func (b *budget) estimate() time.Duration { return min(max(b.cost, minStandbyCost), maxStandbyCost) }

// pause is how long a shell must be idle to take a standby without a token.
func (b *budget) pause() time.Duration { return idleShare * b.estimate() }

func (b *budget) take(now time.Time) bool {
	if b.at.IsZero() {
		b.tokens = budgetMax
	} else {
		b.tokens = min(budgetMax, b.tokens+float64(now.Sub(b.at))/float64(budgetShare*b.estimate()))
	}
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// scheduleStandby has a standby taken: now if the budget allows or there is
// none, else in the next pause.
func (s *Shell) scheduleStandby() {
	if s.budget.take(time.Now()) || s.standby == nil {
		s.askStandby()
		if s.pendingStandby != nil {
			go s.collectStandby()
		}
		return
	}
	s.scheduleIdle()
}

// scheduleIdle has a standby taken in the next pause, if there is none.
func (s *Shell) scheduleIdle() {
	if s.idleTimer == nil {
		s.idleTimer = time.AfterFunc(s.budget.pause(), s.takeStandby)
	} else {
		s.idleTimer.Reset(s.budget.pause())
	}
}

// takeStandby is called in a pause.
func (s *Shell) takeStandby() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.promoting != promotionNone {
		return
	}
	if s.adopted {
		s.settleAdopted()
		s.awaitStandby()
	}
	if s.pendingStandby != nil || s.proc.Exited() || s.standby != nil && s.standby.id == s.lastID {
		return
	}
	s.askStandby()
	s.awaitStandby()
}

// collectStandby adopts the standby that was asked for, unless a command has
// come and done it.
func (s *Shell) collectStandby() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.awaitStandby()
	}
}

// askStandby asks the shell to fork one. Processes of the driver's carry the
// mark 0, so that no command is blamed for them.
func (s *Shell) askStandby() {
	if s.pendingStandby != nil || s.proc.Exited() {
		return
	}
	k, err := s.driver.copyPool.Take()
	if err != nil {
		s.driver.log.Warn("no standby", "error", err)
		return
	}
	if err := s.cfg.Tree.Mark(s.proc, 0); err != nil {
		s.driver.copyPool.Put(k)
		return
	}
	ask := "__trl_k=t __trl_w=" + k.wake.path + " __trl_q=" + k.traps.path + "; "
	if s.cfg.Program.Family == Zsh {
		ask += `\builtin \. ` + s.driver.bootScripts["zsh-copy"].path
	} else {
		ask += `__trl_t "$@"`
	}
	s.pendingStandby, s.standbyAskedAt = k, time.Now()
	s.save()
	if err := s.send(ask + "; __trl_w= __trl_q=\n"); err != nil {
		s.pendingRelease.dropCopyFDs(k)
		s.pendingStandby = nil
		s.save()
	}
}

// awaitStandby waits for the report of the standby that was asked for.
func (s *Shell) awaitStandby() {
	if s.pendingStandby == nil {
		return
	}
	limit := time.NewTimer(standbyTime)
	defer limit.Stop()
	done := s.proc.Done()
	for s.pendingStandby != nil {
		select {
		case rep := <-s.reports:
			s.handleReport(rep, nil)
		case <-done:
			done = nil
			limit.Reset(standbyTime / 10) // its report is in the pipe, or never comes
		case <-s.abandoned:
			return
		case <-limit.C:
			// It may yet come. The kit stays its own until then: a descriptor
			// whose path the shell knows must not become another session's.
			s.driver.log.Debug("a shell is slow to fork a standby")
			return
		}
	}
}

// standbyTries is how many copies in a row may fail before the shell is left
// without one until its next command.
const standbyTries = 3

// tookStandby replaces the older standby. nil means that the copy could not be
// adopted, as happens on a machine that stalls: another is taken in the next pause.
func (s *Shell) standbyTaken(c *sleepingCopy) {
	s.pendingStandby = nil
	if !s.standbyAskedAt.IsZero() { // else an earlier daemon has asked
		s.budget.recordCost(time.Since(s.standbyAskedAt))
	}
	if c == nil {
		if s.failedCopies++; s.failedCopies <= standbyTries {
			s.scheduleIdle()
		}
		return
	}
	s.failedCopies = 0
	if s.standby != nil {
		s.standby.proc.Signal(unix.SIGKILL)
	}
	s.setStandby(c)
}
