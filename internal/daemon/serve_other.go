//go:build !linux

package daemon

import (
	"context"
	"errors"
)

// HasLocalPlace says whether sessions run on this system.
const HasLocalPlace = false

var errLinuxOnly = errors.New("this build serves sessions on Linux only; the client commands work against a remote or forwarded socket")

// Prepare does nothing: no session inherits anything from this process.
func Prepare(Environment) error { return nil }

// Managed returns false: there is no service manager to report to.
func Managed(Environment) bool { return false }

// Serve runs a daemon without a local place for sessions until ctx is done, a signal
// ends it, or, on stdio, its one connection ends. It returns nil after a clean
// shutdown.
func Serve(ctx context.Context, cfg Config, opts Options) error {
	return servePlaceless(ctx, cfg, opts)
}
