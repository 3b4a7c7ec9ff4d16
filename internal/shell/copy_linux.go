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
	heirTime = 3 * time.Second
	// standbyTime is how long a shell may take to fork a standby; a command
	// that comes meanwhile waits for it.
	standbyTime = 500 * time.Millisecond
)

// adopt makes a copy that has reported ours: it is freed from the subshell
// that forked it and tracked. It returns nil if it is gone already.
func (s *Shell) adopt(rep report, k *kit, id string) *copied {
	s.spent.dropKit(k) // the copy holds what it needs
	if outer := rep.b; outer > 1 && outer != s.cfg.Tree.Parent() && outer != s.proc.PID() {
		// Around an heir all carries the command's mark, and would be taken for
		// what the command left running.
		var siblings []int
		if rep.kind == reportHeir {
			siblings = slices.DeleteFunc(process.Children(outer), func(pid int) bool { return pid == rep.a })
		}
		if s.cfg.Tree.Signal(outer, unix.SIGKILL) { // only if it is in the tree
			process.AwaitEnd(siblings, heirTime)
		}
	}
	p, err := s.cfg.Tree.Adopt(rep.a)
	if err != nil {
		s.hub.log.Debug("a copy of the shell is gone before it was adopted", "error", err)
		return nil
	}
	return &copied{proc: p, traps: k.readTraps(), id: id}
}

// ready brings the shell into a state to run a command: a standby under way is
// awaited, and a shell that went away while idle is replaced.
func (s *Shell) ready(res *Result) error {
	if s.waking == wakingNone {
		if s.adopted {
			s.settle()
		}
		s.awaitStandby()
		s.heedReports()
		if s.exit == nil && !s.proc.Exited() {
			return nil
		}
	}
	return s.replace(res, nil)
}

// mend replaces the shell after a command that ended it or after which it
// can't go on (broken), and says in res what it was.
func (r *running) mend(res *Result, broken bool) error {
	switch {
	case r.exit != nil:
		res.Ending, res.Code = ShellExited, *r.exit
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
	r.stage = stageMending
	r.save()
	return r.replace(res, r)
}

// replace puts the best copy in the place of the shell: the heir, the standby,
// or a new shell. r is the command during which it went, or nil. If an earlier
// daemon was at it, it goes on from there.
func (s *Shell) replace(res *Result, r *running) error {
	if s.waking == wakingNone {
		if s.exit != nil {
			s.awaitHeir(r)
		}
		s.proc.Signal(unix.SIGKILL)
		if !s.await(s.proc) {
			return ErrClosed
		}
		s.endTaking()
		s.exit = nil
	}
	if heir := s.heir; heir != nil && s.waking <= wakingHeir {
		if err := s.wake(heir, wakingHeir, r.leavePath()); err == nil {
			if s.standby != nil {
				s.standby.proc.Signal(unix.SIGKILL)
			}
			s.awake()
			return nil
		}
	}
	s.heir = nil
	res.RolledBack = true
	if standby := s.standby; standby != nil && s.waking <= wakingStandby {
		res.RolledBackTo = standby.id
		if err := s.wake(standby, wakingStandby, ""); err == nil {
			s.awake()
			return nil
		}
	}
	s.setStandby(nil)
	select {
	case <-s.gone:
		return ErrClosed
	default:
	}
	res.RolledBackTo = ""
	if s.waking == wakingNew {
		s.killStrays() // what an earlier daemon has started
	}
	s.waking = wakingNew
	s.save()
	return s.boot(bootTime)
}

// awake is when a copy has become the shell.
func (s *Shell) awake() {
	s.heir = nil
	s.setStandby(nil)
	s.replaced()
}

// replaced is when there is a shell again.
func (s *Shell) replaced() {
	s.waking = wakingNone
	if r := s.now; r != nil && r.stage == stageMending {
		r.stage = stageMended
	}
	s.save()
}

// endTaking settles what became of a standby whose shell is dead: the copy may
// be alive all the same. What it left half-way is killed before the kit, whose
// paths it knows, is given up.
func (s *Shell) endTaking() {
	s.awaitStandby()
	if s.taking == nil {
		return
	}
	s.killStrays()
	s.spent.dropKit(s.taking)
	s.taking = nil
}

// settle brings a shell that was adopted while idle to where it would be: it
// may have been asked for a standby, or not yet. An older daemon may have left it an
// abort that came too late for its command; in bash it would be a DEBUG trap, which
// can't be told from one of the user's.
func (s *Shell) settle() {
	s.adopted = false
	s.heedReports()
	answered := false
	switch {
	case s.proc.Exited():
	case s.cfg.Program.Family != Bash:
		answered = s.calm(bootTime) == nil
	case s.taking != nil:
		answered = s.hello(bootTime) == nil
	}
	if answered && s.taking != nil { // it has read all that it was told
		s.endTaking()
		s.save()
	}
	if s.standby == nil && s.exit == nil {
		s.askStandby()
	}
}

// killStrays kills what the driver has had started and nobody knows.
func (s *Shell) killStrays() {
	known := map[int]bool{}
	for _, c := range []*copied{s.heir, s.standby} {
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
func (s *Shell) awaitHeir(r *running) {
	limit := time.NewTimer(heirTime)
	defer limit.Stop()
	done := s.proc.Done()
	for done != nil || r != nil && r.kit != nil && s.heir == nil {
		select {
		case rep := <-s.reports:
			s.handle(rep, r)
		case <-done:
			done = nil
		case <-s.gone:
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
func (s *Shell) wake(c *copied, as waking, leave string) error {
	if s.waking != as {
		if err := s.prepareWake(c); err != nil {
			return err
		}
		s.waking, s.inCopy = as, true
		if err := s.setProc(c.proc); err != nil {
			return err
		}
		s.save()
	}
	err := tell(c.proc, s.ctl.r.path+" "+s.rousing.path+" "+s.token+"\n")
	if err == nil && leave != "" {
		err = s.send(s.cfg.Program.Family.builtin(".") + " " + leave + "\n")
	}
	if err == nil {
		err = s.hello(bootTime)
	}
	s.spent.addText(s.rousing)
	s.rousing = nil
	if err != nil {
		c.proc.Signal(unix.SIGKILL)
		s.await(c.proc) // before the paths it was told are given up
		return fmt.Errorf("wake a copy: %w", err)
	}
	s.lastID = c.id
	return nil
}

// prepareWake makes what a copy is told of.
func (s *Shell) prepareWake(c *copied) error {
	if err := s.openControl(); err != nil {
		return err
	}
	s.spent.addText(s.rousing)
	s.rousing = nil
	traps, err := s.hub.borrow(string(c.traps))
	if err != nil {
		return err
	}
	s.rousing = traps
	return s.newToken()
}

// tell writes to the pipe on which a copy sleeps. The copy itself holds it, as
// its standard input, so an idle session costs the daemon no descriptor.
func tell(p *process.Proc, text string) error {
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
	budgetMost  = 4.0
	budgetShare = 40 // a token is worth this many times the cost
	// standbyCost is what one costs on a machine with nothing else to do, and
	// what is assumed at first. No less is reckoned with.
	standbyCost = time.Millisecond
	// dearestStandby bounds what is reckoned with: it is a bound of what a burst
	// may lose.
	dearestStandby = 50 * time.Millisecond
	// idleShare is the pause, in costs, after which a shell without a current
	// standby takes one.
	idleShare = 5
)

// paid notes what a standby has cost. One alone may have met a bad moment, so
// it counts for a quarter.
func (b *budget) paid(d time.Duration) {
	b.cost = b.each() + (min(d, dearestStandby)-b.each())/4
}

func (b *budget) each() time.Duration { return min(max(b.cost, standbyCost), dearestStandby) }

// pause is how long a shell must be idle to take a standby without a token.
func (b *budget) pause() time.Duration { return idleShare * b.each() }

func (b *budget) take(now time.Time) bool {
	if b.at.IsZero() {
		b.tokens = budgetMost
	} else {
		b.tokens = min(budgetMost, b.tokens+float64(now.Sub(b.at))/float64(budgetShare*b.each()))
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
		if s.taking != nil {
			go s.collectStandby()
		}
		return
	}
	s.scheduleIdle()
}

// scheduleIdle has a standby taken in the next pause, if there is none.
func (s *Shell) scheduleIdle() {
	if s.idle == nil {
		s.idle = time.AfterFunc(s.budget.pause(), s.takeStandby)
	} else {
		s.idle.Reset(s.budget.pause())
	}
}

// takeStandby is called in a pause.
func (s *Shell) takeStandby() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.waking != wakingNone {
		return
	}
	if s.adopted {
		s.settle()
		s.awaitStandby()
	}
	if s.taking != nil || s.proc.Exited() || s.standby != nil && s.standby.id == s.lastID {
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
	if s.taking != nil || s.proc.Exited() {
		return
	}
	k, err := s.hub.kits.Take()
	if err != nil {
		s.hub.log.Warn("no standby", "error", err)
		return
	}
	if err := s.cfg.Tree.Mark(s.proc, 0); err != nil {
		s.hub.kits.Put(k)
		return
	}
	ask := "__trl_k=t __trl_w=" + k.wake.path + " __trl_q=" + k.traps.path + "; "
	if s.cfg.Program.Family == Zsh {
		ask += `\builtin \. ` + s.hub.texts["zsh-copy"].path
	} else {
		ask += `__trl_t "$@"`
	}
	s.taking, s.askedAt = k, time.Now()
	s.save()
	if err := s.send(ask + "; __trl_w= __trl_q=\n"); err != nil {
		s.spent.dropKit(k)
		s.taking = nil
		s.save()
	}
}

// awaitStandby waits for the report of the standby that was asked for.
func (s *Shell) awaitStandby() {
	if s.taking == nil {
		return
	}
	limit := time.NewTimer(standbyTime)
	defer limit.Stop()
	done := s.proc.Done()
	for s.taking != nil {
		select {
		case rep := <-s.reports:
			s.handle(rep, nil)
		case <-done:
			done = nil
			limit.Reset(standbyTime / 10) // its report is in the pipe, or never comes
		case <-s.gone:
			return
		case <-limit.C:
			// It may yet come. The kit stays its own until then: a descriptor
			// whose path the shell knows must not become another session's.
			s.hub.log.Debug("a shell is slow to fork a standby")
			return
		}
	}
}

// standbyTries is how many copies in a row may fail before the shell is left
// without one until its next command.
const standbyTries = 3

// tookStandby replaces the older standby. nil means that the copy could not be
// adopted, as happens on a machine that stalls: another is taken in the next pause.
func (s *Shell) tookStandby(c *copied) {
	s.taking = nil
	if !s.askedAt.IsZero() { // else an earlier daemon has asked
		s.budget.paid(time.Since(s.askedAt))
	}
	if c == nil {
		if s.failed++; s.failed <= standbyTries {
			s.scheduleIdle()
		}
		return
	}
	s.failed = 0
	if s.standby != nil {
		s.standby.proc.Signal(unix.SIGKILL)
	}
	s.setStandby(c)
}
