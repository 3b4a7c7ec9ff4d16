package session

import (
	"context"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
)

// A session may end with something else: with another session, its parent, or with
// the connections that use it.

const (
	// defaultReconnect is longer than a client needs to reconnect.
	defaultReconnect = 15 * time.Second
	// maxReconnect is enough to travel to another network.
	maxReconnect = 24 * time.Hour
)

// checkLifetime returns an error if the session is to end with something that does
// not exist.
func checkLifetime(ctx context.Context, params *api.SessionCreateParams) error {
	if params.ReconnectMS != 0 && !params.WhileConnected {
		return api.Errorf(api.CodeInvalidParams, "reconnect_ms needs while_connected").With("field", "reconnect_ms").
			WithHint("add while_connected: true, or leave reconnect_ms out")
	}
	if params.ReconnectMS > maxReconnect.Milliseconds() {
		return api.Errorf(api.CodeInvalidParams, "reconnect_ms must be at most %d", maxReconnect.Milliseconds()).With("field", "reconnect_ms")
	}
	if _, ok := arrival.Connection(ctx); params.WhileConnected && !ok {
		return api.Errorf(api.CodeInvalidParams, "this request has no connection for the session to end with").With("field", "while_connected").
			WithHint("use the socket, stdio or a WebSocket; over plain HTTP, set idle_ttl_ms to end an unused session")
	}
	return nil
}

// trackConnection makes the session live as long as the connection of the caller,
// if it ends with its connections. Clients that create the session, run a command
// in it, write input, hold or follow it use it.
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

// startReconnectTimer ends the session unless a connection uses it soon. The caller
// must hold s.mu.
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

// endIfDisconnected ends a session that no connection has used in time.
func (s *Session) endIfDisconnected() {
	s.mu.Lock()
	alone := !s.ending && len(s.connections.stops) == 0
	s.mu.Unlock()
	if alone {
		s.destroy(api.ReasonDisconnected, false)
	}
}
