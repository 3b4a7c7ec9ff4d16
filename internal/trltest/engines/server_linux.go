package engines

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// pollInterval is the pause between two checks whether a server is ready or gone.
const pollInterval = 20 * time.Millisecond

// server is a process that serves until it is stopped. No goroutine waits for it, so
// that tests can check for leaked ones while it runs.
type server struct {
	pid int    // 0 if it is not running
	log string // path of its output
}

// start starts a server whose output is appended to s.log, and waits until ready
// returns nil.
func (s *server) start(ready func() error, argv ...string) error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.pid = cmd.Process.Pid
	if err := cmd.Process.Release(); err != nil {
		return err
	}
	for deadline := time.Now().Add(trltest.Patience); ; time.Sleep(pollInterval) {
		err := ready()
		switch {
		case err == nil:
			return nil
		case !s.running():
			return fmt.Errorf("%s exited while starting\n%s", argv[0], s.lastWords())
		case time.Now().After(deadline):
			return errors.Join(fmt.Errorf("%s is not ready after %s: %w\n%s", argv[0], trltest.Patience, err, s.lastWords()), s.end(unix.SIGKILL))
		}
	}
}

// running reports whether the server runs, and reaps it if it does not.
func (s *server) running() bool {
	if s.pid == 0 {
		return false
	}
	if pid, err := unix.Wait4(s.pid, nil, unix.WNOHANG, nil); pid == s.pid || errors.Is(err, unix.ECHILD) {
		s.pid = 0
	}
	return s.pid != 0
}

// end sends a signal to the server and waits until it has exited.
func (s *server) end(signal unix.Signal) error {
	if !s.running() {
		return nil
	}
	if err := unix.Kill(s.pid, signal); err != nil {
		return err
	}
	for deadline := time.Now().Add(trltest.Patience); s.running(); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d did not exit within %s of %s\n%s", s.pid, trltest.Patience, signal, s.lastWords())
		}
	}
	return nil
}

// maxLastWords is how much of a log a failure shows, in bytes.
const maxLastWords = 4 << 10

func (s *server) lastWords() string {
	log, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-maxLastWords):])
}
