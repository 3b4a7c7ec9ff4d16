package daemon

import (
	"log/slog"
	"time"
)

// idleChecks is how often within daemon_ttl_ms a daemon looks for sessions and
// clients; so it may exit a little later than the setting says.
const idleChecks = 16

// minIdleCheck is the shortest time between two looks.
const minIdleCheck = 10 * time.Millisecond

// whenIdle returns a channel that is closed when there have been no live sessions and
// no clients for ttl; nil if ttl is 0. live returns how many there are, and clients
// also how many there ever were. The task ends with closed.
func whenIdle(ttl time.Duration, live func() int, clients func() (now int, ever uint64), tasks *tasks, closed <-chan struct{}) <-chan struct{} {
	if ttl == 0 {
		return nil
	}
	idle := make(chan struct{})
	tasks.start("wait for idleness", func() {
		ticker := time.NewTicker(max(ttl/idleChecks, minIdleCheck))
		defer ticker.Stop()
		since, seen := time.Now(), uint64(0)
		for {
			select {
			case <-ticker.C:
			case <-closed:
				return
			}
			now, ever := clients()
			if now > 0 || ever != seen || live() > 0 {
				since, seen = time.Now(), ever
			} else if time.Since(since) >= ttl {
				close(idle)
				return
			}
		}
	})
	return idle
}

// logIdleExit reports why the daemon exits.
func logIdleExit(log *slog.Logger, ttlMS int64) {
	log.Info("no live sessions and no clients for daemon_ttl_ms; shutting down", "event", "idle_exit", "daemon_ttl_ms", ttlMS)
}
