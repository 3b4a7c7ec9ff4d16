package shell

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/process"
)

// crashWait is how long after a new shell has failed its death is awaited, which is
// then the reason.
const crashWait = time.Second

// boot starts the shell process on a new control pipe and has it source the boot
// script. Its own stderr is kept until it has answered, to say why it did not.
func (s *Shell) boot(limit time.Duration) error {
	if err := s.openControl(); err != nil {
		return err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	stderr, err := memfd("stderr", "")
	if err != nil {
		return err
	}
	defer unix.Close(stderr)
	p := s.cfg.Program
	start := s.cfg.Tree.Start
	if s.cfg.Terminal != nil {
		start = s.cfg.Terminal.Start
	}
	proc, err := start(process.Spec{
		Path: p.Path, Argv: s.family.args(p.Argv0, s.ctl.r.path), Env: s.cfg.Env, Dir: s.cfg.Dir,
		Files: [3]int{null, null, stderr},
	})
	if err != nil {
		return &StartError{fmt.Errorf("start %s: %w", p.Path, err)}
	}
	err = s.setProc(proc)
	if err == nil {
		err = s.sendBoot(limit)
	}
	if errors.Is(err, errStuck) {
		proc.Signal(unix.SIGKILL)
	}
	// One that failed may have ended just before, and not be reaped yet.
	if err != nil && !errors.Is(err, ErrClosed) {
		select {
		case <-proc.Done():
		case <-s.abandoned:
		case <-time.After(crashWait):
		}
	}
	if proc.Exited() {
		said := make([]byte, 4096)
		n, _ := unix.Pread(stderr, said, 0)
		n = max(n, 0)
		return &CrashError{Status: proc.Status(), Stderr: bytes.TrimSpace(said[:n]), Stuck: errors.Is(err, errStuck)}
	}
	return err
}

// sendBoot has a new shell source the boot script, and waits until it answers.
func (s *Shell) sendBoot(limit time.Duration) error {
	s.inCopy, s.exitStatus, s.lastID, s.lastCode = false, nil, "", 0
	if err := s.newToken(); err != nil {
		return err
	}
	f := s.family
	err := s.ctl.send(
		"__trl_T="+s.token+" __trl_y="+s.cfg.TTY+"; "+f.builtin(".")+" "+s.driver.bootScripts[string(f.name)].path+"\n",
		f.redirect("2>/dev/null")+"\n")
	if err == nil {
		err = s.awaitReady(limit)
	}
	if err == nil {
		s.shellReplaced()
	}
	return err
}

// shellReplaced is called when there is a usable shell again.
func (s *Shell) shellReplaced() {
	s.promoting = promotionNone
	if r := s.current; r != nil && r.stage == stageReplacing {
		r.stage = stageReplaced
	}
	s.save()
}

// askReady asks for a report with a new number.
func (s *Shell) askReady() error {
	s.seq++
	return s.ctl.send(s.family.report(s.token, reportReady, s.seq, "") + " >|" + s.driver.router.statusW.path + "\n")
}

// awaitReady waits until the shell answers: then it reads its control pipe.
func (s *Shell) awaitReady(patience time.Duration) error {
	if err := s.askReady(); err != nil {
		return err
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case r := <-s.inbox.reports:
			if r.kind == reportReady && r.a == s.seq {
				s.ack(r)
				if !s.inCopy || !s.family.copyReopensControl {
					s.closeControlReader()
				}
				return nil
			}
			s.handleReport(r, nil)
		case <-s.proc.Done():
			return errors.New("the shell died")
		case <-s.abandoned:
			return ErrClosed
		case <-limit.C:
			return errStuck
		}
	}
}

// forgetAborts makes a shell that runs nothing forget soft aborts, and waits until it
// has.
func (s *Shell) forgetAborts(patience time.Duration) error {
	err := s.ctl.send(s.family.undoAbort + "\n")
	if err == nil {
		err = s.awaitReady(patience)
	}
	if err != nil && !errors.Is(err, ErrClosed) {
		return errStuck
	}
	return err
}
