//go:build !linux

package daemon

import (
	"context"
	"errors"
)

var errLinuxOnly = errors.New("this build serves sessions on Linux only; the client commands work against a remote or forwarded socket")

// Prepare makes this process fit to be a daemon, which it can't be here.
func Prepare(Environment) error { return errLinuxOnly }

// Serve says that there is no serving here.
func Serve(context.Context, Config, Options) error { return errLinuxOnly }
