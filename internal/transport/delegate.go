package transport

import (
	"context"
	"sync"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/service"
)

// Delegate makes every later request need an actor; see service.Delegation. No
// request slips through: the next one is read only after system.delegate has been
// served, because its calls are ordered.
func (c *conn) Delegate() int {
	c.delegated.Store(true)
	return maxCallers
}

// Disconnect ends the connection of a caller; see service.Delegation.
func (c *conn) Disconnect(name string) (ended, ok bool) {
	if !c.delegated.Load() {
		return false, false
	}
	return c.srv.callers.end(name), true
}

// identify returns the context of a request: of the connection's own actor, or of
// the caller that the request names. It is called before the next request is
// read. release, unless it is nil, must be called when the request and its stream
// have ended.
func (c *conn) identify(ctx context.Context, q *request) (_ context.Context, release func(), refusal *api.Error) {
	if !c.delegated.Load() {
		if q.actor != nil {
			return ctx, nil, q.refused(service.UnexpectedActor())
		}
		return ctx, nil, nil
	}
	if q.actor == nil {
		return ctx, nil, q.refused(service.MissingActor())
	}
	own, _ := access.From(c.ctx)
	actor, name, refusal := service.ActingFor(own, q.actor)
	if refusal != nil {
		return ctx, nil, q.refused(refusal)
	}
	ctx = access.With(ctx, actor)
	if name == "" {
		return arrival.ForConnection(ctx, nil), nil, nil
	}
	caller, refusal := c.srv.callers.join(c, name)
	if refusal != nil {
		return ctx, nil, q.refused(refusal)
	}
	// As over a connection of its own, the caller's requests end with it.
	ctx, cancel := context.WithCancel(arrival.ForConnection(ctx, caller))
	stop := context.AfterFunc(caller, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// refused makes sure that the refusal is answered: a request without an id whose
// actor is wrong is an invalid request.
func (q *request) refused(why *api.Error) *api.Error {
	if q.id == nil {
		q.id = null
	}
	return why
}

const (
	// maxCallers limits the connections of callers that the requests of one
	// connection may name at once: more than one daemon serves, and each costs
	// only some hundred bytes.
	maxCallers = 4096

	// maxEnded is the number of names of ended connections that are remembered:
	// more than a router has requests in flight.
	maxEnded = 4096
)

// callerConn is the connection of a caller to the program that acts for it. It
// lasts until system.disconnect, or until the last of the connections over which
// that program used its name has ended.
type callerConn struct {
	ctx    context.Context //nolint:containedctx // it stands for the connection, see arrival.Connection
	cancel context.CancelFunc
	users  map[*conn]struct{}
}

// callerConns holds the connections of callers by their names. They are shared by
// all connections of the server, because a router makes calls over one and opens
// streams over others. Its zero value is ready to use.
type callerConns struct {
	mu     sync.Mutex
	byName map[string]*callerConn
	ended  map[string]struct{} // names that system.disconnect has ended
	order  []string            // of the names in ended, the oldest first
}

// join returns the context of the caller's connection with this name, and makes
// it if it is new. A name that system.disconnect has ended does not come back:
// a request that was overtaken by it on another connection would bind a session
// to a connection that no one ends.
func (r *callerConns) join(c *conn, name string) (context.Context, *api.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := c.callers[name]; known != nil {
		return known.ctx, nil
	}
	if _, ended := r.ended[name]; ended || c.ctx.Err() != nil {
		return nil, api.Errorf(api.CodeInvalidRequest, "actor: the caller's connection has ended").
			With("field", "connection").WithHint("choose a new name for each connection of a caller")
	}
	if len(c.callers) >= maxCallers {
		return nil, api.Errorf(api.CodeInvalidRequest, "the requests of this connection already name %d connections of callers", maxCallers).
			With("field", "connection").With("max_connections", maxCallers).
			WithHint("call %s for callers that have left, or open another connection", api.MethodSystemDisconnect)
	}
	caller := r.byName[name]
	if caller == nil {
		caller = &callerConn{users: map[*conn]struct{}{}}
		caller.ctx, caller.cancel = context.WithCancel(context.Background())
		if r.byName == nil {
			r.byName = map[string]*callerConn{}
		}
		r.byName[name] = caller
	}
	caller.users[c] = struct{}{}
	if c.callers == nil {
		c.callers = map[string]*callerConn{}
	}
	c.callers[name] = caller
	return caller.ctx, nil
}

// end ends the connection with this name. It returns false if there is none.
func (r *callerConns) end(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ended := r.ended[name]; !ended {
		if len(r.order) >= maxEnded {
			delete(r.ended, r.order[0])
			r.order = r.order[1:]
		}
		if r.ended == nil {
			r.ended = map[string]struct{}{}
		}
		r.ended[name] = struct{}{}
		r.order = append(r.order, name)
	}
	caller := r.byName[name]
	if caller == nil {
		return false
	}
	for c := range caller.users {
		delete(c.callers, name)
	}
	delete(r.byName, name)
	caller.cancel()
	return true
}

// leave ends the use of all names by a connection that has ended: its context
// must be done. It may be called more than once.
func (r *callerConns) leave(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, caller := range c.callers {
		if delete(caller.users, c); len(caller.users) == 0 {
			delete(r.byName, name)
			caller.cancel()
		}
	}
	c.callers = nil
}
