package session

import (
	"context"
	"slices"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
)

// A session may belong to something, and ends with it: to another session, its
// parent, or to the connections that use it.

const (
	// reconnectTime outlasts a lost connection that the client makes anew.
	defaultReconnect = 15 * time.Second
	// maxReconnect is a long way to another network.
	maxReconnect = 24 * time.Hour
)

// bonds are the connections that use a session which ends with them. They belong to
// the session, under whose mu they are.
type connections struct {
	stops          map[context.Context]func() bool // by connection: stops waiting for its end
	reconnectTimer *time.Timer                     // runs while there are none
}

// checkBonds refuses a session that would belong to what does not exist.
func checkLifetime(ctx context.Context, params *api.SessionCreateParams) error {
	if params.ReconnectMS != 0 && !params.WhileConnected {
		return api.Errorf(api.CodeInvalidParams, "reconnect_ms goes with while_connected").With("field", "reconnect_ms").
			WithHint("add while_connected: true, or leave it out: other sessions outlive every connection")
	}
	if params.ReconnectMS > maxReconnect.Milliseconds() {
		return api.Errorf(api.CodeInvalidParams, "reconnect_ms must be at most %d", maxReconnect.Milliseconds()).With("field", "reconnect_ms")
	}
	if _, ok := arrival.Connection(ctx); params.WhileConnected && !ok {
		return api.Errorf(api.CodeInvalidParams, "this request has no connection that a session could end with").With("field", "while_connected").
			WithHint("use the socket, stdio or a WebSocket; over plain HTTP, idle_ttl_ms ends a session that nobody uses")
	}
	return nil
}

// usedBy binds the session to the connection of a caller, if it ends with those. Who
// makes it, runs a command in it, writes input, holds or follows it uses it.
func (s *Session) trackConnection(ctx context.Context) {
	conn, ok := arrival.Connection(ctx)
	if !s.params.WhileConnected || !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending || s.state == api.StateTerminated || s.connections.stops[conn] != nil {
		return
	}
	if s.connections.stops == nil {
		s.connections.stops = map[context.Context]func() bool{}
	}
	s.connections.stops[conn] = context.AfterFunc(conn, func() { s.disconnected(conn) })
	if s.connections.reconnectTimer != nil {
		s.connections.reconnectTimer.Stop()
	}
}

func (s *Session) disconnected(conn context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections.stops, conn)
	s.startReconnectTimer()
}

// awaitConnection ends the session unless a connection uses it soon. Under s.mu.
func (s *Session) startReconnectTimer() {
	if s.ending || len(s.connections.stops) > 0 {
		return
	}
	if s.connections.reconnectTimer == nil {
		s.connections.reconnectTimer = time.AfterFunc(s.reconnect, s.endIfDisconnected)
	} else {
		s.connections.reconnectTimer.Reset(s.reconnect)
	}
}

// part ends a session that no connection has used in time.
func (s *Session) endIfDisconnected() {
	s.mu.Lock()
	alone := !s.ending && len(s.connections.stops) == 0
	s.mu.Unlock()
	if alone {
		s.destroy(api.ReasonDisconnected, false)
	}
}

// unbind forgets the connections of a session that has ended. Under s.mu.
func (s *Session) dropConnections() {
	for _, stop := range s.connections.stops {
		stop()
	}
	if s.connections.reconnectTimer != nil {
		s.connections.reconnectTimer.Stop()
	}
	s.connections = connections{}
}

// adoptBonds has a session of an earlier daemon end with what it belongs to: with its
// parent, if that is no more, or if no connection comes back.
func (s *Session) adoptLifetime() {
	if s.unreadable != "" {
		return // nothing is done to it
	}
	if parent := s.params.Parent; parent != "" && !s.pool.isLive(parent) {
		s.destroy(api.ReasonParent, false)
		return
	}
	if s.params.WhileConnected {
		s.mu.Lock()
		s.startReconnectTimer()
		s.mu.Unlock()
	}
}

func (p *Pool) isLive(id string) bool {
	p.mu.Lock()
	s := p.sessions[id]
	p.mu.Unlock()
	return s != nil && s.currentState() != api.StateTerminated
}

// errIfOrphan returns an error if the parent of a new session can't be one. Under
// p.mu, so that a parent which ends knows all its children.
func (p *Pool) checkParent(s *Session) error {
	id := s.params.Parent
	if id == "" {
		return nil
	}
	parent := p.sessions[id]
	if parent == nil {
		return api.AsError(errNoSession()).With("field", "parent")
	}
	parent.mu.Lock()
	defer parent.mu.Unlock()
	switch {
	case parent.ending || parent.state == api.StateTerminated:
		return parent.errTerminated().With("field", "parent")
	case parent.state == api.StateCreating:
		return parent.errCreating().With("field", "parent")
	}
	return nil
}

// bear makes a session known to its parent. Under p.mu.
func (p *Pool) addChild(s *Session) {
	if id := s.params.Parent; id != "" {
		p.children[id] = append(p.children[id], s)
	}
}

// bury has the parent of a session that has ended forget it. Under p.mu.
func (p *Pool) removeChild(s *Session) {
	id := s.params.Parent
	if id == "" {
		return
	}
	left := slices.DeleteFunc(p.children[id], func(c *Session) bool { return c == s })
	if len(left) == 0 {
		delete(p.children, id)
	} else {
		p.children[id] = left
	}
}

// endChildren begins the end of the sessions that end with this one, of which there
// will be no more.
func (s *Session) endChildren() []*Session {
	s.pool.mu.Lock()
	children := slices.Clone(s.pool.children[s.id])
	s.pool.mu.Unlock()
	for _, c := range children {
		c.destroy(api.ReasonParent, false)
	}
	return children
}

// awaitChildren returns when they have ended, and what was left of them.
func (s *Session) awaitChildren(children []*Session) (survivors []api.Process) {
	for _, c := range children {
		select {
		case <-c.destroyed:
		case <-s.forceKill:
			<-c.destroy(api.ReasonParent, true)
		}
		survivors = append(survivors, c.survivors...)
	}
	return survivors
}
