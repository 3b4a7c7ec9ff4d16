//go:build !linux

package daemon

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Holder stands for the Linux type of this name; there is no holder here.
type Holder struct{}

// ErrNoHolder is returned if no process holds sessions for a socket.
var ErrNoHolder = errors.New("no holder")

// ErrNotHolder is not returned here.
var ErrNotHolder = errors.New("it does not hold the sessions of this socket")

// FindHolder returns ErrNoHolder.
func FindHolder(string) (*Holder, error) { return nil, errors.Join(ErrNoHolder, errLinuxOnly) }

// The methods do nothing.

func (*Holder) PID() int                    { return 0 }
func (*Holder) Waiting() bool               { return false }
func (*Holder) WaitExit(time.Duration) bool { return true }
func (*Holder) Renew() error                { return errLinuxOnly }
func (*Holder) Detach() error               { return errLinuxOnly }
func (*Holder) Stop() error                 { return errLinuxOnly }
func (*Holder) Close()                      {}
func (*Holder) LogTarget() (string, error)  { return "", errLinuxOnly }
func (*Holder) Unit() (string, bool)        { return "", false }

// Placeless is a daemon without a local place, seen from another process.
type Placeless struct {
	pid    int
	socket string
}

func openPlaceless(pid int, socket string) (*Placeless, error) {
	return &Placeless{pid, socket}, unix.Kill(pid, 0)
}

// PID returns its process id.
func (p *Placeless) PID() int { return p.pid }

// Signal sends it a signal.
func (p *Placeless) Signal(signal unix.Signal) error { return unix.Kill(p.pid, signal) }

// Close does nothing: there is no handle of a process here.
func (*Placeless) Close() {}

// exitPollInterval is short compared with what the daemon needs to exit.
const exitPollInterval = 10 * time.Millisecond

// WaitExit waits until it has exited, or, as its last act, removed its lock. It reports
// whether that happened in time.
func (p *Placeless) WaitExit(timeout time.Duration) bool {
	for deadline := time.Now().Add(timeout); ; time.Sleep(exitPollInterval) {
		_, err := os.Lstat(p.socket + ".lock")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(unix.Kill(p.pid, 0), unix.ESRCH) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// Check returns an error: the daemon runs on Linux only.
func Check(Config, Options) error { return errLinuxOnly }
