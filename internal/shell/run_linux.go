package shell

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Run runs one command and returns when it has ended and the shell (or the
// copy that took its place) is ready for the next. An error means that there
// is no shell any more.
func (s *Shell) Run(c Command) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runLocked(c)
}

// Resume continues a command that an earlier daemon began, and is otherwise like Run.
// The command must be the same; it is run only if it has not been.
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
	s.idleTimer.Stop()
	r := &running{shell: s, cmd: c}
	s.current = r
	return r.end(r.run())
}

// end is called after the command: its result is final.
func (r *running) end(err error) (Result, error) {
	s := r.shell
	r.cmd = Command{ID: r.cmd.ID}
	r.release()
	if err != nil {
		return r.res, err // Close releases the rest, when no process is left that knows it
	}
	s.lastCode = r.res.Code
	r.stage = stageOver
	s.save()
	s.adopted = s.adopted && s.pendingStandby != nil
	s.scheduleStandby()
	return r.res, nil
}

// run prepares the shell and runs the command.
func (r *running) run() error {
	err := r.shell.prepare(&r.res)
	if err != nil {
		return err
	}
	if err = r.start(); err == nil {
		err = r.wait()
	}
	return r.conclude(err)
}

// resume continues where the state that was saved last says.
func (r *running) resume() error {
	s := r.shell
	switch r.stage {
	case stageReady:
		return r.run()
	case stageReplaced:
		return r.fillResult(nil)
	case stageReplacing:
		return r.fillResult(s.replace(&r.res, r))
	default:
	}
	if r.stage == stageSending && r.doubtSeq == 0 {
		// If the shell answers this before it has reported anything about the
		// command, the line was lost. The question is asked once: a shell that is
		// busy reads nothing, however many daemons come and go.
		err := s.askReady()
		if err != nil && !errors.Is(err, unix.EPIPE) {
			return r.conclude(err)
		}
		r.doubtSeq = s.seq
		s.save()
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

// conclude follows wait: it finds out what became of the shell, and replaces it if it
// is unusable.
func (r *running) conclude(err error) error {
	s := r.shell
	select {
	case <-s.abandoned:
		<-s.killed
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
		s.lastID = r.cmd.ID
	}
	return r.fillResult(err)
}

// fillResult completes the result when the shell is usable again.
func (r *running) fillResult(err error) error {
	res := &r.res
	r.applyKey(res)
	if res.Stopped && res.Signal == 0 && !r.endedItself() {
		res.Signal = r.stop.signal()
		res.Code = 128 + int(res.Signal)
	}
	return err
}

// abortedBase is added to the status that a shell reports for an aborted command: the
// status is then that of what the command ran last.
const abortedBase = 1000

// endedItself reports whether the command was stopped, and the process that its shell
// waited for had exited with its own status.
func (r *running) endedItself() bool {
	return r.reported && r.stop.awaited && !r.stop.killed && r.code >= abortedBase && r.code%abortedBase < 128
}

// applyKey corrects the result of a command that was ended by a key of the terminal:
// a shell may have left an aborted command by exiting, and have left its exit copy.
func (r *running) applyKey(res *Result) {
	if r.keySignal != 0 {
		res.Code = 128 + int(r.keySignal)
	}
	byKey := r.shell.cfg.Terminal != nil && (res.Code == 128+int(unix.SIGINT) || res.Code == 128+int(unix.SIGQUIT))
	if byKey && res.Ending == ShellExited && !res.RolledBack {
		res.Ending = Exited
	}
}

// start writes the scripts and the control line.
func (r *running) start() (err error) {
	s, c := r.shell, &r.cmd
	d, f := s.driver, s.family
	write := func(i int, contents string) (path string) {
		if contents == "" || err != nil {
			return ""
		}
		if r.scripts[i], err = d.scripts.write(contents); err != nil {
			return ""
		}
		return r.scripts[i].path
	}
	if r.copyFDs, err = d.copyPool.Take(); err != nil {
		return err
	}
	s.seq++
	r.reportSeq = s.seq
	l := &controlLine{
		seq: r.reportSeq, last: s.lastCode, inCopy: s.inCopy, token: s.token,
		status: d.router.statusW.path, exitScript: d.bootScripts[f.exitScript].path,
		stdin: c.Stdin, stdout: c.Stdout, stderr: c.Stderr, tty: s.cfg.TTY,
		wake: r.copyFDs.wake.path, traps: r.copyFDs.traps.path,
	}
	if l.stdin == "" {
		l.stdin = os.DevNull
	}
	if l.tty != "" {
		l.stdout, l.stderr = l.tty, l.tty
	}
	l.script = write(0, f.sourced(c.Text, l))
	if len(c.Env) > 0 || c.Dir != "" {
		enter, leave := f.scope(c.Env, c.Dir, d.bootScripts["gone"].path)
		l.enter, l.leave = write(1, enter), write(2, leave)
		if c.Dir != "" {
			l.script = "${__trl_f:-" + l.script + "}"
		}
	}
	if err != nil {
		return err
	}
	if err := s.cfg.Tree.Mark(s.proc, c.Mark); err != nil {
		if s.proc.Exited() {
			return nil // just now: wait will notice
		}
		return fmt.Errorf("%w: %w", errStuck, err)
	}
	if !r.isProbe {
		r.stage = stageSending
		s.save()
	}
	err = s.ctl.send(f.packets(f, l)...)
	if errors.Is(err, unix.EPIPE) {
		err = nil // the shell has ended already: wait will notice
	}
	return err
}

// undoAborts removes what soft aborts have set, and those that are still pending in
// the shell: they must not hit the next command.
func (r *running) undoAborts() error {
	if !r.stop.aborted && r.keySignal == 0 || r.shell.proc.Exited() {
		return nil
	}
	// As long as a start: a machine that stalls must not cost the shell its state.
	return r.shell.forgetAborts(bootTime)
}

// minFDs is the least number of descriptors with which a shell can be driven:
// the driver opens three at a time, shells keep their script above 10.
const minFDs = 32

// unusable reports whether the command set a limit on the shell under which the
// driver could not run another.
func (r *running) unusable() bool {
	s := r.shell
	var rl unix.Rlimit
	return unix.Prlimit(s.proc.PID(), unix.RLIMIT_NOFILE, nil, &rl) == nil && rl.Cur < minFDs ||
		!s.cfg.Tree.HasTag(s.proc) && !s.proc.Exited()
}

// probeTime is more than a shell needs for an empty command, on any machine.
const probeTime = time.Second

// probe reports whether a shell that answered only the emergency line can run a
// command again.
func (r *running) probe() bool {
	stop := make(chan struct{})
	timer := time.AfterFunc(probeTime, func() { close(stop) })
	defer timer.Stop()
	p := &running{
		shell: r.shell, isProbe: true,
		cmd: Command{Text: ":", Stdout: os.DevNull, Stderr: os.DevNull, Mark: r.cmd.Mark, Stop: stop},
	}
	err := p.start()
	defer p.release()
	p.wedge.emergency = true // a second one would prove nothing
	return err == nil && p.wait() == nil && p.reported && !p.stop.begun && !r.shell.proc.Exited()
}
