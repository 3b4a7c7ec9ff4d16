package shell

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Command is one command to run. The descriptors are this process's; they must
// stay open until Run returns.
type Command struct {
	ID             string // by which a later roll-back names it
	Text           string
	Stdin          int      // -1: nothing to read
	Stdout, Stderr int      // these three are not used on a terminal
	Env            []string // NAME=value, for this command alone
	Dir            string   // absolute, for this command alone
	Mark           uint32   // of the processes it starts
	Stop           <-chan struct{}
	// Keys tells of a key that signals INT or QUIT: if only the shell itself is
	// there to heed it, in a loop of its own, it is made to.
	Keys <-chan unix.Signal
	// Long is called once, if the command still runs after a few milliseconds.
	Long func()
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
	cmd      Command
	kit      *kit
	seqOf    int    // the number its report carries
	leave    string // path of the text that undoes its env and dir
	reported bool
	code     int
	left     bool // it called exit
	stop     stopping
	wedge    wedge
	keyed    unix.Signal // it was made to heed a key
}

// Run runs one command and returns when it has ended and the shell (or the
// copy that took its place) is ready for the next. An error means that there
// is no shell any more.
func (s *Shell) Run(c Command) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return Result{}, ErrClosed
	}
	if s.idle != nil {
		s.idle.Stop()
	}
	var res Result
	if err := s.ready(&res); err != nil {
		return res, err
	}
	r := &running{Shell: s, cmd: c}
	if err := r.run(&res); err != nil {
		return res, err
	}
	s.last = res.Code
	s.scheduleStandby()
	return res, nil
}

// run sends the command, waits for its end, and mends the shell.
func (r *running) run(res *Result) error {
	closeTexts, err := r.start()
	defer closeTexts()
	if err == nil {
		err = r.wait()
	}
	select {
	case <-r.gone:
		<-r.killed
		r.finishKit()
		return ErrClosed
	default:
	}
	if err != nil && !errors.Is(err, errStuck) {
		return err
	}
	res.Stopped = r.stop.begun
	if r.reported && err == nil {
		res.Code = r.code
		if r.left {
			res.Ending = ShellExited
		}
		r.afterAbort()
		if r.wedge.emergency && !r.probe() || r.crippled() {
			err = errStuck
		}
	}
	if !r.reported || err != nil {
		err = r.mend(res, err != nil)
	} else {
		r.lastID = r.cmd.ID
	}
	r.heedKeys(res)
	if res.Stopped && res.Signal == 0 {
		res.Signal = r.stop.signal()
		res.Code = 128 + int(res.Signal)
	}
	r.finishKit()
	return err
}

// start writes the texts and the control line.
func (r *running) start() (closeTexts func(), err error) {
	s, c := r.Shell, &r.cmd
	f := s.cfg.Program.Family
	var fds []int
	closeTexts = func() { _ = closeFDs(fds...) }
	text := func(name, t string) string {
		if t == "" || err != nil {
			return ""
		}
		var fd int
		if fd, err = memfd(name, t); err != nil {
			return ""
		}
		fds = append(fds, fd)
		return s.hub.path(fd)
	}
	if r.kit, err = s.hub.kits.take(); err != nil {
		return closeTexts, err
	}
	s.seq++
	r.seqOf = s.seq
	l := &line{
		seq: r.seqOf, last: s.last, inCopy: s.inCopy, token: s.token,
		status: s.hub.path(s.hub.statusW), exitText: s.hub.texts["exit"],
		stdin: os.DevNull, stdout: s.hub.path(c.Stdout), stderr: s.hub.path(c.Stderr), tty: s.cfg.TTY,
		wake: s.hub.path(r.kit.wake[0]), traps: s.hub.path(r.kit.traps[1]),
		text: text("command", c.Text+"\n"),
	}
	if c.Stdin >= 0 {
		l.stdin = s.hub.path(c.Stdin)
	}
	if len(c.Env) > 0 || c.Dir != "" {
		enter, leave := f.scope(c.Env, c.Dir, s.hub.texts["gone"])
		l.enter, l.leave = text("enter", enter), text("leave", leave)
		r.leave = l.leave
		if c.Dir != "" {
			l.text = "${__trl_f:-" + l.text + "}"
		}
	}
	if err != nil {
		return closeTexts, err
	}
	if err := s.cfg.Tree.Mark(s.proc, c.Mark); err != nil {
		if s.proc.Exited() {
			return closeTexts, nil // this moment: wait will see
		}
		return closeTexts, fmt.Errorf("%w: %w", errStuck, err)
	}
	err = s.send(f.packets(l)...)
	if errors.Is(err, unix.EPIPE) {
		err = nil // the command has ended its shell already: wait will see
	}
	return closeTexts, err
}

// wait serves reports until the command is over: its status was reported, or
// its shell is exiting, dead or stuck. errStuck says that it must be killed.
func (r *running) wait() error {
	look := r.hub.clock.start(clockTick)
	defer r.hub.clock.stop(look)
	stop := r.cmd.Stop
	died := r.proc.Done()
	var tick, again <-chan time.Time
	for !r.over() {
		select {
		case rep := <-r.reports:
			r.handle(rep, r)
		case <-died:
			died = nil
			r.flush()
			if !r.stop.begun {
				return nil
			} // else its processes are still to be stopped
		case <-r.gone:
			return ErrClosed
		case <-stop:
			stop = nil
			tick = time.Tick(stopTick)
			r.stop.begin(r.cfg.Grace)
			if err := r.stopStep(); err != nil {
				return err
			}
		case sig := <-r.cmd.Keys:
			if r.heed(sig); r.keyed != 0 {
				again = time.Tick(abortEvery)
			}
		case <-again:
			r.heed(r.keyed)
		case <-tick:
			if err := r.stopStep(); err != nil {
				return err
			}
		case <-look.due:
			if r.wedge.every == 0 { // the first look
				r.wedge.every = wedgeFirst
				if r.cmd.Long != nil {
					r.cmd.Long()
				}
			} else if stuck := r.checkWedge(); stuck {
				return errStuck
			}
			r.hub.clock.set(look, r.wedge.every)
		}
	}
	select {
	case r.keyed = <-r.cmd.Keys: // the end was quicker than the word of it
	default:
	}
	return nil
}

// over is true when nothing more is to be waited for. A command that is being
// stopped is over only when its processes are gone too.
func (r *running) over() bool {
	ended := r.reported || r.exit != nil
	if !r.stop.begun {
		return ended
	}
	return r.stop.done
}

// drain takes the reports that have arrived already.
func (r *running) drain() {
	for {
		select {
		case rep := <-r.reports:
			r.handle(rep, r)
		default:
			return
		}
	}
}

// flush takes the reports that were written before now. The pipe keeps the
// order, so a line of our own that has come through it says that all are in.
func (r *running) flush() {
	r.seq++
	line := "\n" + r.token + " " + string(reportReady) + " " + strconv.Itoa(r.seq) + "\n"
	mark := r.seq
	if _, err := unix.Write(r.hub.statusW, []byte(line)); err != nil {
		return
	}
	limit := time.NewTimer(time.Second) // forged reports may have crowded it out
	defer limit.Stop()
	for {
		select {
		case rep := <-r.reports:
			if rep.kind == reportReady && rep.a == mark {
				return
			}
			r.handle(rep, r)
		case <-r.gone:
			return
		case <-limit.C:
			return
		}
	}
}

// handle acts on one report. r is nil when no command runs.
func (s *Shell) handle(rep report, r *running) {
	switch rep.kind {
	case reportDone, reportLeft:
		if r != nil && rep.a == r.seqOf {
			r.reported, r.code, r.left = true, rep.b, rep.kind == reportLeft
		}
	case reportExit:
		code := rep.a
		s.exit = &code
	case reportHeir:
		if r != nil && r.kit != nil && s.heir == nil {
			s.heir = s.adopt(rep, r.kit, r.cmd.ID)
			r.kit = nil
		}
	case reportStandby:
		if s.taking != nil {
			s.tookStandby(s.adopt(rep, s.taking, s.lastID))
		}
	case reportReady: // late: its asker gave up
	}
}

// heed makes a shell that is alone with its command give that up. It is asked
// again while it does not: a trap that runs may keep another from running.
func (r *running) heed(sig unix.Signal) {
	if len(r.cfg.Tree.Marked(r.cmd.Mark, r.proc.PID())) == 0 {
		r.keyed = sig
		r.proc.Signal(abortSignal)
	}
}

// heedKeys tells an end by a key of the terminal from others: a shell that was
// made to give up may have done it by exiting, and left its heir.
func (r *running) heedKeys(res *Result) {
	if r.keyed != 0 {
		res.Code = 128 + int(r.keyed)
	}
	byKey := r.cfg.Terminal != nil && (res.Code == 128+int(unix.SIGINT) || res.Code == 128+int(unix.SIGQUIT))
	if byKey && res.Ending == ShellExited && !res.RolledBack {
		res.Ending = Exited
	}
}

// finishKit gives the kit back if no copy was made with it.
func (r *running) finishKit() {
	if r.kit == nil {
		return
	}
	if r.reported && !r.stop.begun && r.exit == nil {
		r.hub.kits.put(r.kit)
	} else {
		r.hub.kits.drop(r.kit) // a dying shell may still have it open
	}
	r.kit = nil
}

// afterAbort takes away what the soft abort of bash has put in place.
func (r *running) afterAbort() {
	if (r.stop.aborted || r.keyed != 0) && r.cfg.Program.Family == Bash {
		_ = r.send(undoAbort + "\n")
	}
}

// minFDs is the least number of descriptors with which a shell can be driven:
// the driver opens three at a time, shells keep their script above 10.
const minFDs = 32

// crippled is true when the command set a limit on the shell under which the
// driver could not run another.
func (r *running) crippled() bool {
	var rl unix.Rlimit
	return unix.Prlimit(r.proc.PID(), unix.RLIMIT_NOFILE, nil, &rl) == nil && rl.Cur < minFDs ||
		!r.cfg.Tree.Holds(r.proc) && !r.proc.Exited()
}

// wedge notices a shell that waits for its next line without having reported:
// what was to report has been redefined by the user.
type wedge struct {
	every     time.Duration // until the next look
	seen      int
	emergency bool // the emergency line was sent
}

const (
	wedgeFirst = 25 * time.Millisecond
	wedgeSlow  = 500 * time.Millisecond // a look costs two system calls; hundreds may run
)

// checkWedge looks once. Seen twice in a row it sends the emergency line, which
// reports with nothing that a function can stand in for; seen twice again the
// shell is given up.
func (r *running) checkWedge() (stuck bool) {
	w := &r.wedge
	if !r.waitsForInput() {
		w.seen = 0
		w.every = min(w.every*2, wedgeSlow)
		return false
	}
	r.drain()
	w.seen++
	w.every = wedgeFirst
	if w.seen == 2 && !w.emergency {
		if line := r.emergencyLine(); line != "" {
			w.emergency = true
			_ = r.send(line)
			return false
		}
	}
	return w.seen >= 4
}

// waitsForInput: blocked in read(2) on the control pipe with nothing left in it.
func (s *Shell) waitsForInput() bool {
	if n, err := unix.IoctlGetInt(s.ctl.w, unix.TIOCINQ); err != nil || n != 0 {
		return false
	}
	proc := "/proc/" + strconv.Itoa(s.proc.PID())
	b, err := os.ReadFile(proc + "/syscall")
	if err != nil {
		return false
	}
	number, rest, _ := strings.Cut(string(b), " ")
	arg, _, _ := strings.Cut(rest, " ")
	if number != strconv.Itoa(unix.SYS_READ) {
		return false
	}
	fd, err := strconv.ParseInt(strings.TrimPrefix(arg, "0x"), 16, 32)
	if err != nil {
		return false
	}
	link, err := os.Readlink(proc + "/fd/" + strconv.FormatInt(fd, 10))
	return err == nil && link == "pipe:["+strconv.FormatUint(s.ctl.inode, 10)+"]"
}

func (r *running) emergencyLine() string {
	f := r.cfg.Program.Family
	l := &line{seq: r.seqOf, token: r.token, status: r.hub.path(r.hub.statusW)}
	switch f {
	case Dash, Ash:
		return `\unset -f command printf read kill; ` + l.done(f)
	case Bash:
		return `POSIXLY_CORRECT=1; \unset -f builtin command printf eval . trap set shopt read unset exit kill exec cd; \set +o posix; ` + l.done(f)
	default:
		return ""
	}
}

// probeTime is more than a shell needs for an empty command, on any machine.
const probeTime = time.Second

// probe proves that a shell which answered only the emergency line can run a
// command again.
func (r *running) probe() bool {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(null)
	stop := make(chan struct{})
	timer := time.AfterFunc(probeTime, func() { close(stop) })
	defer timer.Stop()
	p := &running{Shell: r.Shell, cmd: Command{Text: ":", Stdin: -1, Stdout: null, Stderr: null, Mark: r.cmd.Mark, Stop: stop}}
	closeTexts, err := p.start()
	defer closeTexts()
	defer p.finishKit()
	p.wedge.emergency = true // a second one would prove nothing
	return err == nil && p.wait() == nil && p.reported && !p.stop.begun && !p.proc.Exited()
}
