package session

import (
	"context"
	"time"
)

// connections are the connections that use a session which ends with them. They are
// guarded by the session's mu.
type connections struct {
	stops          map[context.Context]func() bool // by connection: stops waiting for its end
	reconnectTimer *time.Timer                     // runs while there are none
}

// drop stops waiting for the end of the connections.
func (c *connections) drop() {
	for _, stop := range c.stops {
		stop()
	}
	if c.reconnectTimer != nil {
		c.reconnectTimer.Stop()
	}
	*c = connections{}
}
