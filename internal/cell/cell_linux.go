package cell

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/place"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/session"
)

// cell is one cell. It is safe for concurrent use.
type cell struct {
	cells *Cells
	name  string
	tree  *process.Tree
	proc  *process.Proc // the holder of its TRL, whose death is that of the cell
	way   *os.File      // to its socket
	place *place.Place

	denials *denialLog // nil: it has no allow-list

	ctx    context.Context // of everything that it does by itself; done when it ends
	cancel context.CancelFunc
	ending sync.Once
	gone   chan struct{} // closed when nothing of it is left

	touched atomic.Int64 // how often something may have changed the session

	mu      sync.Mutex
	record  record
	listed  *session.Listed // nil: the session does not exist yet, or has ended before this daemon
	known   bool            // record.session.Last is how the session was when touched was knownAt
	knownAt int64
}

// Dial connects to the TRL of the cell.
func (c *cell) Dial(ctx context.Context) (net.Conn, error) { return dial(ctx, c.way) }

// Touch records that something may change the session.
func (c *cell) Touch() { c.touched.Add(1) }

// admin is who makes the requests of the daemon itself.
var admin = api.Actor{Scope: "admin"}

// askTimeout is how long the TRL of a cell may take to describe its session: a
// person waits for the list.
const askTimeout = 5 * time.Second

// Known returns the session if nothing can have changed since it was last asked for.
func (c *cell) Known() (api.Session, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.session.Last, c.known && c.knownAt == c.touched.Load()
}

// Describe asks for the session as it is now. It returns it as it was last known if
// the TRL of the cell does not answer in time.
func (c *cell) Describe(ctx context.Context) api.Session {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	before := c.touched.Load()
	var list api.SessionListResult
	err := c.place.Request(ctx, api.MethodSessionList, nil, admin, &list)
	c.mu.Lock()
	defer c.mu.Unlock()
	last := &c.record.session.Last
	for i := range list.Sessions {
		if err == nil && list.Sessions[i].SessionID == last.SessionID {
			*last = trusted(list.Sessions[i], *last)
			// While a command runs, the directory can change without an event.
			c.known, c.knownAt = last.State == api.StateIdle, before
		}
	}
	return *last
}

// trusted returns a session as the TRL of its cell describes it, with what can't have
// changed as the daemon knows it. The session may have broken its TRL, and its tags
// and its owner decide which callers see it.
func trusted(described, known api.Session) api.Session {
	described.SessionID, described.Runtime = known.SessionID, api.RuntimeHost
	described.Name, described.Tags, described.Owner, described.CreatedAt = known.Name, known.Tags, known.Owner, known.CreatedAt
	described.Limits, described.Isolation = known.Limits, known.Isolation
	return described
}

// id returns the id of the session; "" before it exists.
func (c *cell) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.session.Last.SessionID
}

// list returns the session as the pool lists it; nil before it exists.
func (c *cell) list() *session.Listed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed
}
