package shell

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/process"
)

// Command is one command to run. The paths, which the shell opens, must be good
// until Run returns.
type Command struct {
	ID             string // by which a later roll-back, and Resume, name it
	Text           string
	Stdin          string   // "": nothing to read
	Stdout, Stderr string   // these three are not used on a terminal
	Env            []string // NAME=value, or NAME to be unset, for this command alone
	Dir            string   // absolute, for this command alone
	Mark           uint32   // of the processes it starts
	Stop           <-chan struct{}
	// Keys tells of a key that signals INT or QUIT: if only the shell itself is
	// there to heed it, in a loop of its own, it is made to.
	Keys <-chan unix.Signal
	// Long is called once, if the command still runs after a few milliseconds.
	StillRunning func()
	// Heard is called once by Resume, when everything was heard that was said
	// while there was no daemon, unless the command has ended by then.
	CaughtUp func()
}

// Ending is what became of the shell.
type Ending int

// The endings.
const (
	Exited      Ending = iota // the command ended, the shell went on
	ShellExited               // the command ended its shell
	ShellDied                 // the shell was killed, crashed or could not go on
)

// Result is how a command ended.
type Result struct {
	Code         int
	Signal       unix.Signal // that ended the shell, or that stopped the command
	Ending       Ending
	Stopped      bool // Stop was closed before it ended by itself
	RolledBack   bool // the shell's state is now what it was after RolledBackTo
	RolledBackTo string
}

// running is the state of one command under way.
type running struct {
	*Shell
	cmd        Command
	stage      stage
	copyFDs    *copyFDs
	scripts    [3]*script // the command, and what is around it: enter and leave
	reportSeq  int        // the number its report carries
	reported   bool
	code       int
	calledExit bool // it called exit
	stop       stopping
	wedge      wedge
	keySignal  unix.Signal // it was made to heed a key
	res        Result

	// Of one that an earlier daemon began.
	wasStopped bool // its stop had begun
	doubtSeq   int  // number of the question whether the line has arrived; 0: none
	lineLost   bool // it has not

	isProbe bool // of a shell in doubt: nobody will ask for it
}

// Run runs one command and returns when it has ended and the shell (or the
// copy that took its place) is ready for the next. An error means that there
// is no shell any more.
func (s *Shell) Run(c Command) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runLocked(c)
}

// Resume goes on with a command where an earlier daemon has left it, and is
// else as Run. The command is the same; it is run only if it has not been.
func (s *Shell) Resume(c Command) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.current
	if r == nil || r.cmd.ID != c.ID {
		return s.runLocked(c)
	}
	if s.closed {
		return Result{}, ErrClosed
	}
	if r.stage == stageOver {
		return r.res, nil
	}
	r.cmd = c
	return r.end(r.resume())
}

func (s *Shell) runLocked(c Command) (Result, error) {
	if s.closed {
		return Result{}, ErrClosed
	}
	if s.idleTimer != nil {
		s.idleTimer.Stop()
	}
	r := &running{Shell: s, cmd: c}
	s.current = r
	return r.end(r.run())
}

// end is after the command: its result stands.
func (r *running) end(err error) (Result, error) {
	s := r.Shell
	r.cmd = Command{ID: r.cmd.ID}
	r.release()
	if err != nil {
		return r.res, err // Close gives up the rest, when nobody is left who knows it
	}
	s.lastCode = r.res.Code
	r.stage = stageOver
	s.save()
	s.adopted = s.adopted && s.pendingStandby != nil
	s.scheduleStandby()
	return r.res, nil
}

// run brings the shell into a state to run the command, and runs it.
func (r *running) run() error {
	err := r.prepare(&r.res)
	if err != nil {
		return err
	}
	if err = r.start(); err == nil {
		err = r.wait()
	}
	return r.conclude(err)
}

// resume goes on where the state that was saved last says.
func (r *running) resume() error {
	switch r.stage {
	case stageReady:
		return r.run()
	case stageReplaced:
		return r.fillResult(nil)
	case stageReplacing:
		return r.fillResult(r.replace(&r.res, r))
	default:
	}
	if r.stage == stageSending && r.doubtSeq == 0 {
		// If the shell answers this before it has said anything of the
		// command, it never got that. It is asked once: a shell that is busy
		// reads nothing, however many daemons come and go.
		err := r.askReady()
		if err != nil && !errors.Is(err, unix.EPIPE) {
			return r.conclude(err)
		}
		r.doubtSeq = r.seq
		r.save()
	}
	err := r.wait()
	if !r.lineLost {
		return r.conclude(err)
	}
	if r.stop.begun {
		r.reported = true // there was nothing to stop
		return r.conclude(err)
	}
	r.release()
	r.stage, r.doubtSeq, r.lineLost = stageReady, 0, false
	return r.run()
}

// conclude is after the wait: it finds out what became of the shell, and mends
// it.
func (r *running) conclude(err error) error {
	select {
	case <-r.abandoned:
		<-r.killed
		return ErrClosed
	default:
	}
	if err != nil && !errors.Is(err, errStuck) {
		return err
	}
	res := &r.res
	res.Stopped = r.stop.begun
	if r.reported && err == nil {
		res.Code = r.code % abortedBase
		if r.calledExit {
			res.Ending = ShellExited
		}
		if err = r.undoAborts(); err == nil && (r.wedge.emergency && !r.probe() || r.unusable()) {
			err = errStuck
		}
	}
	if !r.reported || err != nil {
		err = r.recoverShell(res, err != nil)
	} else {
		r.lastID = r.cmd.ID
	}
	return r.fillResult(err)
}

// concluded is when the shell is fit again.
func (r *running) fillResult(err error) error {
	res := &r.res
	r.applyKey(res)
	if res.Stopped && res.Signal == 0 && !r.endedItself() {
		res.Signal = r.stop.signal()
		res.Code = 128 + int(res.Signal)
	}
	return err
}

// gaveUp is added to the status that a shell reports of a command which it was told to
// give up: the status is that of what it ran last then.
const abortedBase = 1000

// endedItself reports whether the command was stopped, and what its shell waited for
// had a status of its own to say.
func (r *running) endedItself() bool {
	return r.reported && r.stop.awaited && !r.stop.killed && r.code >= abortedBase && r.code%abortedBase < 128
}

// start writes the texts and the control line.
func (r *running) start() (err error) {
	s, c := r.Shell, &r.cmd
	f := s.cfg.Program.Family
	text := func(i int, contents string) string {
		if contents == "" || err != nil {
			return ""
		}
		if r.scripts[i], err = s.driver.takeScript(contents); err != nil {
			return ""
		}
		return r.scripts[i].path
	}
	if r.copyFDs, err = s.driver.copyPool.Take(); err != nil {
		return err
	}
	s.seq++
	r.reportSeq = s.seq
	l := &controlLine{
		seq: r.reportSeq, last: s.lastCode, inCopy: s.inCopy, token: s.token,
		status: s.driver.statusW.path, exitScript: s.driver.bootScripts["zsh-exit"].path,
		stdin: c.Stdin, stdout: c.Stdout, stderr: c.Stderr, tty: s.cfg.TTY,
		wake: r.copyFDs.wake.path, traps: r.copyFDs.traps.path,
	}
	if l.stdin == "" {
		l.stdin = os.DevNull
	}
	if l.tty != "" {
		l.stdout, l.stderr = l.tty, l.tty
	}
	l.script = text(0, f.source(c.Text, l))
	if len(c.Env) > 0 || c.Dir != "" {
		enter, leave := f.scope(c.Env, c.Dir, s.driver.bootScripts["gone"].path)
		l.enter, l.leave = text(1, enter), text(2, leave)
		if c.Dir != "" {
			l.script = "${__trl_f:-" + l.script + "}"
		}
	}
	if err != nil {
		return err
	}
	if err := s.cfg.Tree.Mark(s.proc, c.Mark); err != nil {
		if s.proc.Exited() {
			return nil // this moment: wait will see
		}
		return fmt.Errorf("%w: %w", errStuck, err)
	}
	if !r.isProbe {
		r.stage = stageSending
		s.save()
	}
	err = s.send(f.packets(l)...)
	if errors.Is(err, unix.EPIPE) {
		err = nil // the command has ended its shell already: wait will see
	}
	return err
}

// leavePath is of the text that undoes its env and dir, "" if it has none.
func (r *running) leavePath() string {
	if r == nil || r.scripts[2] == nil {
		return ""
	}
	return r.scripts[2].path
}

// wait serves reports until the command is over: its status was reported, or
// its shell is exiting, dead or stuck. errStuck says that it must be killed.
func (r *running) wait() error {
	look := &r.wedgeWatch
	r.driver.clock.start(look, clockTick)
	defer r.driver.clock.stop(look)
	stop := r.cmd.Stop
	died := r.proc.Done()
	var tick, again <-chan time.Time
	beginStop := func() error {
		stop = nil
		tick = time.Tick(stopTick)
		r.stop.begin(r.cfg.Grace)
		r.save()
		return r.stopStep()
	}
	if r.cmd.CaughtUp != nil {
		if r.flushReports(); !r.over() {
			r.cmd.CaughtUp()
		}
	}
	if r.wasStopped {
		if err := beginStop(); err != nil {
			return err
		}
	}
	for !r.over() {
		select {
		case rep := <-r.reports:
			r.handleReport(rep, r)
		case <-died:
			died = nil
			r.flushReports()
			if !r.stop.begun {
				return nil
			} // else its processes are still to be stopped
		case <-r.abandoned:
			return ErrClosed
		case <-stop:
			if err := beginStop(); err != nil {
				return err
			}
		case sig := <-r.cmd.Keys:
			if r.abortByKey(sig); r.keySignal != 0 {
				again = time.Tick(abortEvery)
			}
		case <-again:
			r.abortByKey(r.keySignal)
		case <-tick:
			if err := r.stopStep(); err != nil {
				return err
			}
		case <-look.due:
			if r.wedge.every == 0 { // the first look
				r.wedge.every, r.wedge.since = wedgeFirst, time.Now()
				r.sent()
				if r.cmd.StillRunning != nil {
					r.cmd.StillRunning()
				}
			} else if stuck := r.checkWedge(); stuck {
				return errStuck
			}
			r.driver.clock.set(look, r.wedge.every)
		}
	}
	select {
	case r.keySignal = <-r.cmd.Keys: // the end was quicker than the word of it
	default:
	}
	return nil
}

// sent notes that the line was written. A short command is over before, and a
// restart that finds it in doubt asks the shell.
func (r *running) sent() {
	if r.stage == stageSending && r.doubtSeq == 0 && !r.isProbe {
		r.stage = stageSent
		r.save()
	}
}

// over is true when nothing more is to be waited for. A command that is being
// stopped is over only when its processes are gone too.
func (r *running) over() bool {
	if !r.stop.begun {
		return r.outcomeKnown()
	}
	return r.stop.done
}

// told is true when the shell has said what became of the command.
func (r *running) outcomeKnown() bool { return r.reported || r.lineLost || r.exitStatus != nil }

// heed makes a shell that is alone with its command give that up. It is asked
// again while it does not: a trap that runs may keep another from running.
func (r *running) abortByKey(sig unix.Signal) {
	if len(r.cfg.Tree.Marked(r.cmd.Mark, r.proc.PID())) == 0 {
		r.keySignal = sig
		r.save() // what it does to the shell must be undone, whoever is there then
		r.proc.Signal(abortSignal)
	}
}

// heedKeys tells an end by a key of the terminal from others: a shell that was
// made to give up may have done it by exiting, and left its heir.
func (r *running) applyKey(res *Result) {
	if r.keySignal != 0 {
		res.Code = 128 + int(r.keySignal)
	}
	byKey := r.cfg.Terminal != nil && (res.Code == 128+int(unix.SIGINT) || res.Code == 128+int(unix.SIGQUIT))
	if byKey && res.Ending == ShellExited && !res.RolledBack {
		res.Ending = Exited
	}
}

// giveUp gives back, at the next save, what the command was run with. A kit is
// good for another if no copy was made with it.
func (r *running) release() {
	if (r.reported || r.lineLost) && !r.stop.begun && r.exitStatus == nil {
		r.pendingRelease.reuseCopyFDs(r.copyFDs)
	} else {
		r.pendingRelease.dropCopyFDs(r.copyFDs) // a dying shell may still have it open
	}
	r.copyFDs = nil
	for i, t := range r.scripts {
		r.pendingRelease.addScript(t)
		r.scripts[i] = nil
	}
}

// afterAbort takes away what soft aborts have put in place, and those that the shell
// has not heeded yet: the next command is not meant.
func (r *running) undoAborts() error {
	if !r.stop.aborted && r.keySignal == 0 || r.proc.Exited() {
		return nil
	}
	// As long as a start: a machine that stalls must not cost the shell its state.
	return r.forgetAborts(bootTime)
}

// calm has a shell that runs nothing forget soft aborts, and waits until it has.
func (s *Shell) forgetAborts(patience time.Duration) error {
	err := s.send(s.cfg.Program.Family.undoAbort() + "\n")
	if err == nil {
		err = s.awaitReady(patience)
	}
	if err != nil && !errors.Is(err, ErrClosed) {
		return errStuck
	}
	return err
}

// minFDs is the least number of descriptors with which a shell can be driven:
// the driver opens three at a time, shells keep their script above 10.
const minFDs = 32

// crippled is true when the command set a limit on the shell under which the
// driver could not run another.
func (r *running) unusable() bool {
	var rl unix.Rlimit
	return unix.Prlimit(r.proc.PID(), unix.RLIMIT_NOFILE, nil, &rl) == nil && rl.Cur < minFDs ||
		!r.cfg.Tree.HasTag(r.proc) && !r.proc.Exited()
}

// wedge notices a shell that waits for its next line without having reported:
// what was to report has been redefined by the user.
type wedge struct {
	every     time.Duration // until the next look
	since     time.Time     // of the first one
	seen      int
	emergency bool // the emergency line was sent
}

const (
	wedgeFirst = 25 * time.Millisecond
	wedgeSlow  = 500 * time.Millisecond // until the command has run for wedgePart times as long
	wedgeMost  = 30 * time.Second
	// wedgePart is what part of its time a command that runs for long may have
	// ended in a wedged shell without being noticed. A look costs two system
	// calls and a wake-up, and hundreds may run: this many looks are all there
	// are while a command becomes e times as old, up to wedgeMost.
	wedgePart = 10
)

// pause is how long to wait for the next look.
func (w *wedge) pause() time.Duration {
	slow := max(wedgeSlow, min(time.Since(w.since)/wedgePart, wedgeMost))
	return min(w.every*2, slow)
}

// checkWedge looks once. Seen twice in a row it sends the emergency line, which
// reports with nothing that a function can stand in for; seen twice again the
// shell is given up.
func (r *running) checkWedge() (stuck bool) {
	w := &r.wedge
	if r.outcomeKnown() || !r.waitsForInput() {
		w.seen = 0
		w.every = w.pause()
		return false
	}
	w.seen++
	w.every = wedgeFirst
	if w.seen%2 == 0 {
		// Something is about to be done to it. A shell that waits has written its
		// report, if it can: on a busy machine that may still be on its way.
		if r.flushReports(); r.outcomeKnown() {
			return false
		}
	}
	if w.seen == 2 && !w.emergency {
		if line := r.emergencyLine(); line != "" {
			w.emergency = true
			r.save()
			_ = r.send(line)
			return false
		}
	}
	return w.seen >= 4
}

// waitsForInput: blocked in read(2) on the control pipe with nothing left in it.
func (s *Shell) waitsForInput() bool {
	if n, err := unix.IoctlGetInt(s.ctl.w.fd, unix.TIOCINQ); err != nil || n != 0 {
		return false
	}
	pid := s.proc.PID()
	fd, reads := process.ReadingFD(pid)
	if !reads {
		return false
	}
	link, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/" + strconv.Itoa(fd))
	return err == nil && link == "pipe:["+strconv.FormatUint(s.ctl.inode, 10)+"]"
}

func (r *running) emergencyLine() string {
	f := r.cfg.Program.Family
	l := &controlLine{seq: r.reportSeq, token: r.token}
	to := " >|" + r.driver.statusW.path
	switch f {
	case Dash, Ash:
		return `\unset -f command printf read kill; ` + l.done(f, to)
	case Bash:
		return `POSIXLY_CORRECT=1; \unset -f builtin command printf eval . trap set shopt read unset exit kill exec cd; \set +o posix; ` + l.done(f, to)
	default:
		return ""
	}
}

// probeTime is more than a shell needs for an empty command, on any machine.
const probeTime = time.Second

// probe proves that a shell which answered only the emergency line can run a
// command again.
func (r *running) probe() bool {
	stop := make(chan struct{})
	timer := time.AfterFunc(probeTime, func() { close(stop) })
	defer timer.Stop()
	p := &running{
		Shell: r.Shell, isProbe: true,
		cmd: Command{Text: ":", Stdout: os.DevNull, Stderr: os.DevNull, Mark: r.cmd.Mark, Stop: stop},
	}
	err := p.start()
	defer p.release()
	p.wedge.emergency = true // a second one would prove nothing
	return err == nil && p.wait() == nil && p.reported && !p.stop.begun && !p.proc.Exited()
}
