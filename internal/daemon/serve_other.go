//go:build !linux

package daemon

import (
	"context"
	"errors"
)

var errLinuxOnly = errors.New("this build serves sessions on Linux only; the client commands work against a remote or forwarded socket")

// Prepare returns an error: the daemon runs on Linux only.
func Prepare(Environment) error { return errLinuxOnly }

// Serve returns an error: the daemon runs on Linux only.
func Serve(context.Context, Config, Options) error { return errLinuxOnly }
