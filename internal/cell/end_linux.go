package cell

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
)

const (
	// stopGrace is how long the TRL of a cell whose session has ended may take to
	// deliver the last chunks, answers and events: milliseconds.
	stopGrace = time.Second
	// killTimeout bounds how long a killed tree may take to be gone, as in sessions.
	killTimeout = 10 * time.Second
)

// SessionDestroyed ends the cell, whose session is destroyed. It returns when
// nothing of it is left.
func (c *cell) SessionDestroyed() {
	c.end(func() {
		last := c.Describe(context.Background())
		c.stop(time.After(stopGrace), nil)
		c.kill(&last)
	})
}

// End ends the session because of why, and the cell with it. The commands of the
// session have the usual grace until force is closed.
func (c *cell) End(why string, force <-chan struct{}) {
	c.end(func() {
		c.stop(time.After(c.cells.cfg.Grace+stopGrace), force)
		last, _ := c.Known()
		last.Terminated = &api.Terminated{At: api.Time{Time: time.Now()}, Reason: why}
		c.kill(&last)
	})
}

// discard ends a cell that has no session.
func (c *cell) discard() { c.end(func() { c.kill(nil) }) }

// forgotten ends a cell whose session has ended before and is forgotten now.
func (c *cell) forgotten() {
	c.end(func() {
		c.stop(time.After(stopGrace), nil)
		c.kill(nil)
	})
}

// watchProcess ends the cell if its TRL dies.
func (c *cell) watchProcess() {
	select {
	case <-c.proc.Done():
	case <-c.ctx.Done():
		return
	}
	c.end(func() {
		c.cells.cfg.Log.Warn("the TRL of a confined session died; the session is lost", "event", "cell_lost", "cell", c.name, "session", c.id())
		last, _ := c.Known()
		last.Terminated = &api.Terminated{At: api.Time{Time: time.Now()}, Reason: api.ReasonLost}
		c.kill(&last)
	})
}

// end calls fn once, and returns when nothing of the cell is left.
func (c *cell) end(fn func()) {
	c.ending.Do(func() {
		fn()
		close(c.gone)
	})
	<-c.gone
}

// stop asks the TRL of the cell to end its sessions and itself, and waits until it
// has, or until one of the channels says that it had its time.
func (c *cell) stop(over <-chan time.Time, force <-chan struct{}) {
	c.proc.Signal(unix.SIGTERM)
	select {
	case <-c.proc.Done():
	case <-over:
	case <-force:
	}
}

// kill kills what is left of the cell, and forgets it. last is the session as it has
// ended; nil if it was no session, or has ended before.
func (c *cell) kill(last *api.Session) {
	left := c.tree.Kill(time.Now().Add(killTimeout))
	c.cancel()
	if len(left) > 0 {
		c.cells.cfg.Log.Error("cannot kill all processes of a cell", "event", "not_ended", "cell", c.name, "left", len(left))
	}
	c.mu.Lock()
	listed, record := c.listed, c.record
	c.mu.Unlock()
	if listed != nil && last != nil {
		listed.Ended(*last)
	}
	c.cells.cfg.Places.RemoveCell(c.place)
	c.cells.remove(c)
	c.cells.erase(c.name)
	c.cells.drop(record)
	_ = c.way.Close() // nothing was written
	if c.denials != nil {
		_ = c.denials.file.Close() // memory, whose reader is gone
	}
}
