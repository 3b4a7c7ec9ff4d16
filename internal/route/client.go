package route

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/peer"
)

// clients are the client connections that have called a place. It is safe for
// concurrent use.
type clients struct {
	mu     sync.Mutex
	byConn map[context.Context]*client
}

// client is a client connection. It ends with the connection.
type client struct {
	name string // random: places know the connection by it

	ctx context.Context //nolint:containedctx // of the connection

	mu    sync.Mutex
	lanes map[Place]*lane           // of the places that it has called
	kept  map[Place]map[string]bool // by place: the sessions that end with the connection; see keep

	// The actor of the last request, which is rarely another than that of the next.
	actor     api.Actor
	actorJSON json.RawMessage // nil: there was none
}

// of returns the client connection of a request, nil if it has none.
func (c *clients) of(ctx context.Context) *client {
	conn, ok := arrival.Connection(ctx)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.byConn[conn]
	if known == nil {
		known = &client{name: "c-" + rand.Text(), ctx: conn, lanes: map[Place]*lane{}}
		if c.byConn == nil {
			c.byConn = map[context.Context]*client{}
		}
		c.byConn[conn] = known
		context.AfterFunc(conn, func() {
			c.mu.Lock()
			delete(c.byConn, conn)
			c.mu.Unlock()
			known.left()
		})
	}
	return known
}

// nameKey is the key of the name of a client connection in a context.
type nameKey struct{}

// ClientOf returns the name by which places know the client connection of a request;
// "" if it has none.
func ClientOf(ctx context.Context) string {
	name, _ := ctx.Value(nameKey{}).(string)
	return name
}

// lane returns the lane to a place.
func (cl *client) lane(p Place) *lane {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	l := cl.lanes[p]
	if l == nil {
		l = &lane{}
		cl.lanes[p] = l
	}
	return l
}

// encoded returns an actor of the client as JSON.
func (cl *client) encoded(actor api.Actor) (json.RawMessage, error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.actorJSON != nil && cl.actor == actor {
		return cl.actorJSON, nil
	}
	raw, err := json.Marshal(actor)
	if err != nil {
		return nil, err
	}
	cl.actor, cl.actorJSON = actor, raw
	return raw, nil
}

// leaveTimeout bounds the message that a client has left. A place that is not
// reached within it notices the end of the connection to it.
const leaveTimeout = 5 * time.Second

// left tells the places that a client has left.
func (cl *client) left() {
	cl.mu.Lock()
	lanes := cl.lanes
	cl.mu.Unlock()
	var told sync.WaitGroup
	for p := range lanes {
		if !p.Connected() || !p.Delegates() {
			continue
		}
		told.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
			defer cancel()
			conn, err := p.Conn(ctx)
			if err != nil {
				return // the place has seen the end of the connection
			}
			q := peer.Request{Method: api.MethodSystemDisconnect, Params: api.DisconnectParams{Connection: cl.name}, Actor: json.RawMessage(`{"scope":"read"}`)}
			_, _ = conn.Call(ctx, q, nil) // as above
		})
	}
	told.Wait()
}
