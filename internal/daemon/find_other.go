//go:build !linux

package daemon

import (
	"errors"
	"time"
)

// Holder is for Linux alone, as the daemon is; there is none here.
type Holder struct{}

// ErrNoHolder says that nobody holds sessions for a socket.
var ErrNoHolder = errors.New("no holder")

// ErrNotHolder says that a process does not hold the sessions of a socket.
var ErrNotHolder = errors.New("it does not hold the sessions of this socket")

// FindHolder finds none.
func FindHolder(string) (*Holder, error) { return nil, errors.Join(ErrNoHolder, errLinuxOnly) }

// The methods of none do nothing.

func (*Holder) PID() int                    { return 0 }
func (*Holder) Waiting() bool               { return false }
func (*Holder) WaitExit(time.Duration) bool { return true }
func (*Holder) Renew() error                { return errLinuxOnly }
func (*Holder) Detach() error               { return errLinuxOnly }
func (*Holder) Stop() error                 { return errLinuxOnly }
func (*Holder) Close()                      {}

// Check says that no program can take over here.
func Check(Config, Options) error { return errLinuxOnly }
