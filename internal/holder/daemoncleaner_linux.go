package holder

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// DaemonCleaner is the cleaner of a daemon that has no holder: a process that
// kills what the daemon leaves behind when it is killed.
type DaemonCleaner struct {
	pid      int
	lifeline int // writing end of a pipe that only the daemon has: EOF means the daemon died
}

// StartDaemonCleaner starts a cleaner for this process. The cleaner writes its
// one log line to stderr.
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

// Stop kills the cleaner when there is nothing left to clean up. It is safe on
// nil.
func (c *DaemonCleaner) Stop() error {
	if c == nil {
		return nil
	}
	_ = unix.Kill(c.pid, unix.SIGKILL) // safe: it is our child and not reaped yet
	_, err := unix.Wait4(c.pid, nil, 0, nil)
	return errors.Join(err, unix.Close(c.lifeline))
}

// forkCleaner starts a cleaner whose stdin is the reading end of the pipe.
func forkCleaner(argv, env []string, watch, stderr int) (pid int, err error) {
	return syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
		Dir: "/", Env: env,
		Files: []uintptr{uintptr(watch), uintptr(watch), uintptr(stderr)}, // stderr is for its one log line
		// In its own session, neither keys nor a hangup reach it.
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
}
