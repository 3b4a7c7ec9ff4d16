package shell

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// errUnknownFamily is about the session of a version that knows more families.
var errUnknownFamily = errors.New("this version cannot drive the shell's family")

func (d *Driver) newShell(cfg Config) (*Shell, error) {
	f := known(cfg.Program.Family)
	if f == nil {
		return nil, errUnknownFamily
	}
	if cfg.Grace == 0 {
		cfg.Grace = defaultGrace
	}
	s := &Shell{
		driver: d, cfg: cfg, family: f, abandoned: make(chan struct{}), killed: make(chan struct{}),
		ctl: control{w: noFD, r: noFD, packets: f.packetPipe},
	}
	s.inbox = newInbox(s)
	s.idleTimer = time.AfterFunc(time.Hour, func() { d.begin(s.takeStandby) })
	s.idleTimer.Stop() // scheduleIdle starts it
	return s, nil
}

// Open starts a shell and returns when it is ready for a command. When ctx is
// cancelled before that, everything in its tree is killed, and the error is ErrClosed.
func (d *Driver) Open(ctx context.Context, cfg Config) (*Shell, error) {
	s, err := d.newShell(cfg)
	if err != nil {
		return nil, err
	}
	cut := make(chan struct{})
	inTime := context.AfterFunc(ctx, func() {
		defer close(cut)
		s.Abandon()
		cfg.Tree.Kill(time.Now().Add(killTime))
		_ = s.Close()
	})
	s.mu.Lock()
	err = s.boot(cmp.Or(cfg.BootTime, bootTime))
	s.mu.Unlock()
	if err == nil && cfg.Login {
		err = s.login(cmp.Or(cfg.BootTime, bootTime))
	}
	if !inTime() {
		<-cut
		err = ErrClosed
	}
	if err != nil {
		if s.proc != nil {
			s.proc.Signal(unix.SIGKILL)
			s.await(s.proc)
		}
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// login runs the login startup files as the session's first command, discards their
// output, and stops them after limit.
func (s *Shell) login(limit time.Duration) error {
	text, err := bootFiles.ReadFile("boot/" + s.family.login)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	timer := time.AfterFunc(limit, func() { close(stop) })
	defer timer.Stop()
	res, err := s.Run(Command{Text: string(text), Stdout: os.DevNull, Stderr: os.DevNull, Stop: stop})
	s.mu.Lock()
	s.lastCode = 0
	s.loginResult = &res
	s.mu.Unlock()
	return err
}

// Close releases the shell's descriptors. The caller must have called Abandon and
// killed the tree: a descriptor whose path a living shell may still open must not be
// released, because its number may be another session's a moment later.
func (s *Shell) Close() error {
	s.Abandon()
	s.killedOnce.Do(func() { close(s.killed) })
	s.driver.router.unregister(s.inbox)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.idleTimer.Stop()
	s.closeControl()
	s.pendingRelease.dropCopyFDs(s.pendingStandby)
	s.pendingRelease.addScript(s.promotionScript)
	s.pendingStandby, s.promotionScript = nil, nil
	s.releasePending()
	s.driver.router.empty(s.inbox)
	return nil
}
