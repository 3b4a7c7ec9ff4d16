//go:build !linux

package doctor

import (
	"context"

	"github.com/terminal-runtime/trl/api"
)

// machine says that there is nothing to look at.
func (p Target) machine(context.Context, *api.SystemInfo) []Finding {
	return []Finding{note("system", "", "sessions are served on Linux only; here the client commands work, with a forwarded socket or over HTTP")}
}
