package holder

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Mourner is the undertaker of a daemon that has no holder: it ends what the daemon
// leaves when it is killed.
type DaemonCleaner struct {
	pid      int
	lifeline int // writing end of a pipe that nobody else has: its end is the daemon's
}

// StartMourner starts the undertaker of this process. Its one line goes to stderr.
func StartDaemonCleaner(argv, env []string, stderr int) (*DaemonCleaner, error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	pid, err := forkCleaner(argv, env, pipe[0], stderr)
	if err = errors.Join(err, unix.Close(pipe[0])); err != nil {
		return nil, errors.Join(err, unix.Close(pipe[1]))
	}
	return &DaemonCleaner{pid, pipe[1]}, nil
}

// End is for when there is nothing left to do for it.
func (m *DaemonCleaner) Stop() error {
	if m == nil {
		return nil
	}
	_ = unix.Kill(m.pid, unix.SIGKILL) // it is our child, and not reaped
	_, err := unix.Wait4(m.pid, nil, 0, nil)
	return errors.Join(err, unix.Close(m.lifeline))
}

// forkUndertaker starts an undertaker that has the reading end of a pipe for its stdin.
func forkCleaner(argv, env []string, watch, stderr int) (pid int, err error) {
	return syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
		Dir: "/", Env: env,
		Files: []uintptr{uintptr(watch), uintptr(watch), uintptr(stderr)}, // stderr is for its one line
		// In a session of its own no key and no hangup reaches it.
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
}
