package session

import (
	"time"

	"github.com/terminal-runtime/trl/api"
)

// keyboardLease is the right of one client to type in a session. It is guarded by
// the session's mu.
type keyboardLease struct {
	id      string
	holder  string
	since   time.Time
	until   time.Time
	ttl     time.Duration
	answers bool
	expiry  *time.Timer
}

func (h *keyboardLease) describe() *api.Hold {
	return &api.Hold{Holder: h.holder, Since: api.Time{Time: h.since}, Until: api.Time{Time: h.until}}
}

// extend postpones the end of the lease.
func (h *keyboardLease) extend(now time.Time) { h.until = now.Add(h.ttl) }
