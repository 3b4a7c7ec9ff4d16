package route

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// This file is about sessions that end with the connections of their clients. A
// place takes a client for gone when its own connection to the router is lost, so
// the router must tell it that the client is still there.

// keep tells a place, whenever the connection to it was lost, that the client still
// uses a session. c is a call of the client.
func (cl *client) keep(c *outcall, session string) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.kept == nil {
		cl.kept = map[Place]map[string]bool{}
	}
	keeping := cl.kept[c.place] != nil
	if !keeping {
		cl.kept[c.place] = map[string]bool{}
	}
	cl.kept[c.place][session] = true
	if !keeping {
		again := *c
		again.lane, again.position = nil, nil
		again.request.Method = api.MethodSessionWatch
		go cl.keepIn(&again)
	}
}

// keepIn tells a place about the client's sessions until there are none, or the
// client has left.
func (cl *client) keepIn(c *outcall) {
	pause := firstPause
	told := c.answeredOver // the connection over which the place knows the client
	for {
		conn, err := c.place.Conn(cl.ctx)
		if err == nil && (conn == told || cl.tell(c)) {
			told = conn
			pause = firstPause
			select {
			case <-conn.Done():
			case <-cl.ctx.Done():
			}
		}
		if err != nil {
			pause = max(pause, min(retryAfter(err), maxStreamPause))
		}
		if cl.keepsNothing(c.place) || !sleep(cl.ctx, pause) {
			return
		}
		pause = min(2*pause, maxStreamPause)
	}
}

// keepsNothing reports whether no session is left. Then the next one is kept anew.
func (cl *client) keepsNothing(p Place) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if len(cl.kept[p]) > 0 {
		return false
	}
	delete(cl.kept, p)
	return true
}

// tellTimeout bounds one message about a session. The place waits longer than that
// for a client to return.
const tellTimeout = 5 * time.Second

// tell watches each session for a moment, which makes the client one of its users.
// It reports whether the place has answered for all.
func (cl *client) tell(c *outcall) bool {
	cl.mu.Lock()
	sessions := slices.Collect(maps.Keys(cl.kept[c.place]))
	cl.mu.Unlock()
	for _, session := range sessions {
		err := cl.use(c, session)
		if err != nil && !final(err) {
			return false
		}
		if err != nil { // it has ended
			cl.mu.Lock()
			delete(cl.kept[c.place], session)
			cl.mu.Unlock()
		}
	}
	return true
}

func (cl *client) use(c *outcall, session string) error {
	ctx, cancel := context.WithTimeout(cl.ctx, tellTimeout)
	defer cancel()
	conn, err := c.place.Conn(ctx)
	if err != nil {
		return &failedAttempt{unreachable, err}
	}
	params, err := set(nil, "session_id", quote(session))
	if err != nil {
		return err
	}
	c.request.Params = params
	a, _, err := c.attach(ctx, conn, false, func() {}, newStreamID(), eventBuffer)
	if err == nil {
		a.end()
	}
	return err
}

// endsWithClient reports whether the parameters of session.create ask for a session
// that ends with its client's connection.
func endsWithClient(params json.RawMessage) bool {
	while, err := member(params, "while_connected")
	return err == nil && string(while) == "true"
}

// keepSession keeps a new session if it ends with its client's connection.
func (r *Router) keepSession(ctx context.Context, c *outcall, params, result json.RawMessage) {
	from := r.clients.of(ctx)
	if from == nil || !endsWithClient(params) {
		return
	}
	raw, _ := member(result, "session_id")
	if id, ok := stringOf(raw); ok {
		from.keep(c, id)
	}
}
