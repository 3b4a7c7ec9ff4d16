package cell

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// The pauses between attempts to watch a session again: its TRL was started anew, or
// is about to be found dead.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = 2 * time.Second
)

// mirror passes on the events of the session until the cell ends, so that the daemon
// knows when it changes.
func (c *cell) mirror() {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		if conn, err := c.follow(); err == nil {
			pause = firstPause
			select {
			case <-conn.Done():
			case <-c.ctx.Done():
				return
			}
			c.Touch() // events may be missing
		}
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			return
		}
	}
}

// follow begins to watch the session.
func (c *cell) follow() (*peer.Conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, askTimeout)
	defer cancel()
	conn, err := c.place.Conn(ctx)
	if err != nil {
		return nil, err
	}
	actor, err := json.Marshal(admin)
	if err != nil {
		return nil, err
	}
	q := peer.Request{Method: api.MethodSessionWatch, Params: api.SessionWatchParams{Execs: true}, Actor: actor}
	line, err := conn.Call(ctx, q, c.event)
	if err == nil {
		err = peer.Decode(api.MethodSessionWatch, line, nil)
	}
	if err != nil {
		return nil, err
	}
	c.Touch()
	c.check(c.Describe(ctx)) // it may have ended before
	return conn, nil
}

// execEvent is in the events of the beginning and the end of a command, and in no
// other: within a text the quotes are escaped.
var execEvent = []byte(`"type":"exec_`)

// event passes on one event. The reader of the connection calls it.
func (c *cell) event(_ string, params []byte) {
	c.Touch()
	if bytes.Contains(params, execEvent) && !c.cells.cfg.Pool.ExecsWatched() {
		return // no watcher asked for it, and a short command has two
	}
	var e api.SessionEvent
	if err := json.Unmarshal(params, &e); err != nil || e.SessionID != c.id() {
		return // a gap, or not of the session
	}
	switch e.Type {
	case api.EventDestroyed:
		c.cells.running.Go(func() { c.check(c.Describe(c.ctx)) })
	case api.EventCreated, api.EventSnapshot, api.EventSnapshotEnd:
	default:
		if listed := c.list(); listed != nil {
			listed.Event(e)
		}
	}
}

// check records that the session has ended by itself, if it has. The cell stays, for
// its output, until the session is forgotten.
func (c *cell) check(now api.Session) {
	listed := c.list()
	if now.State != api.StateTerminated || listed == nil {
		return
	}
	c.mu.Lock()
	before := c.record.ended
	c.record.ended = true
	r := c.record
	c.mu.Unlock()
	if !before {
		listed.Ended(now)
		c.cells.save(&r)
	}
}
