//go:build !linux

package daemon

import (
	"errors"
	"time"
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

// Check returns an error: the daemon runs on Linux only.
func Check(Config, Options) error { return errLinuxOnly }
