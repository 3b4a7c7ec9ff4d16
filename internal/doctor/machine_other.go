//go:build !linux

package doctor

import (
	"context"

	"github.com/terminal-runtime/trl/api"
)

// machine returns a note that sessions need Linux.
func (p Target) machine(context.Context, *api.SystemInfo) []Finding {
	return []Finding{note("system", "", "sessions run on Linux only; the client commands work here, with a forwarded socket or over HTTP")}
}
