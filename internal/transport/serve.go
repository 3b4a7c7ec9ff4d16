// Package transport carries requests to the method table and answers back:
// JSON-RPC 2.0, one object per line, over a Unix socket or standard input and
// output; and over HTTP, where a body, an event or a WebSocket message takes
// the place of a line. It decodes requests, authenticates callers and limits
// sizes; it decides nothing else.
//
// A few goroutines take turns at reading a connection (conn.go); lines.go is
// the codec; unix.go makes the socket that only its owner can reach. guard.go
// checks HTTP requests, and http.go serves them: single requests, streams as
// events (sse.go), and connections like those on the socket (websocket.go).
package transport

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/stdio"
)

// Handler serves requests; *service.Table implements it. params is valid only
// until Call returns.
type Handler interface {
	Call(ctx context.Context, method string, params json.RawMessage) (any, error)
}

// Config is the configuration of a server. Zero values are the defaults.
type Config struct {
	Handler Handler      // required
	Log     *slog.Logger // nil: nothing is logged

	// MaxRequestBytes limits one request line. Default 8 MiB, as in the
	// contract.
	MaxRequestBytes int

	// MaxInFlight limits the requests of one connection that are being served.
	// At the limit, reading pauses until one is answered. Default 1024: several
	// for each session that one agent can sensibly drive, while the goroutines
	// of a full connection stay within some 10 MiB.
	MaxInFlight int

	// WriteTimeout is how long a client may take to read a piece of an answer
	// (up to 1 MiB) before its connection is closed. Default 30 s: longer than
	// a client is usually suspended, short enough that answers for a dead
	// client are not kept forever.
	WriteTimeout time.Duration
	// RefusesPeer returns an error for a process that must not use a Unix socket. nil:
	// none is refused.
	RefusesPeer func(pid int) error

	// Heartbeats are those on the pipes of relays.
	Heartbeats stdio.Timing
}

// Server serves connections. It owns every connection and listener passed to it
// until Shutdown, or until the context passed with them is done.
type Server struct {
	cfg     Config
	log     *slog.Logger
	answers answers
	buffers bufferPool
	callers callerConns

	mu        sync.Mutex // guards the fields below; never held while waiting for a client or a handler
	conns     map[*conn]struct{}
	accepted  uint64 // connections so far
	listeners map[net.Listener]struct{}
	closing   bool
	running   sync.WaitGroup // connections; Add is called under mu while not closing
}

// NewServer returns a Server; call Serve or ServeStdio to serve connections.
func NewServer(cfg Config) *Server {
	if cfg.MaxRequestBytes == 0 {
		cfg.MaxRequestBytes = 8 << 20
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = 1024
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 30 * time.Second
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg, log: log, conns: map[*conn]struct{}{}, listeners: map[net.Listener]struct{}{}}
}

// ErrServerClosed is returned by Serve and ServeStdio after Shutdown was
// called.
var ErrServerClosed = errors.New("transport: server closed")

// Serve accepts connections until Shutdown or until ctx is done, and returns
// when all of them have ended. ctx is the parent of every request's context, so
// cancelling it ends them without grace. Serve always closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return errors.Join(ErrServerClosed, closeListener(l))
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	// Removed only after it is closed: Shutdown must not return before that.
	defer func() {
		_ = closeListener(l)
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	stop := context.AfterFunc(ctx, func() { stopAccepting(l) })
	defer stop()

	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		nc, err := accept(ctx, l, s.log)
		switch {
		case err == nil:
			serving.Go(func() { s.admit(ctx, nc) })
		case ctx.Err() != nil:
			return ctx.Err()
		case s.isClosing():
			return ErrServerClosed
		default:
			return err
		}
	}
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// stopAccepting refuses new connections. A Unix listener keeps its lock and its
// path until it is closed, so that no second daemon starts while this one
// drains.
func stopAccepting(l net.Listener) {
	if u, ok := l.(*UnixListener); ok {
		u.stop()
		return
	}
	_ = l.Close()
}

// maxAcceptPause limits the pause after a failed accept. The transient failure
// is a lack of file descriptors, which ends when connections do.
const maxAcceptPause = time.Second

func accept(ctx context.Context, l net.Listener, log *slog.Logger) (net.Conn, error) {
	pause := 5 * time.Millisecond
	for {
		nc, err := l.Accept()
		if err == nil || !isTransientAcceptError(err) {
			return nc, err
		}
		log.WarnContext(ctx, "cannot accept connections, retrying", "error", err, "pause", pause)
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxAcceptPause)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Connections returns how many connections are open, and how many there were.
func (s *Server) Connections() (open int, ever uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns), s.accepted
}

// run serves one connection to its end.
func (s *Server) run(ctx context.Context, actor access.Actor, l link) error {
	c := newConn(access.With(ctx, actor), s, l)
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		c.cancel()
		_ = l.close()
		return ErrServerClosed
	}
	s.conns[c] = struct{}{}
	s.accepted++
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	c.serve()
	if s.isClosing() {
		return ErrServerClosed
	}
	return ctx.Err()
}

// stuckGrace is how long Shutdown waits for handlers whose context it has
// cancelled. They return at once; one that does not is a bug, which must not
// keep the daemon from exiting.
const stuckGrace = 5 * time.Second

// Shutdown stops accepting and reading, and lets the requests in flight finish.
// When ctx is done it cancels the remaining requests, closes their connections,
// and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	for l := range s.listeners {
		stopAccepting(l)
	}
	for c := range s.conns {
		c.drain()
	}
	s.mu.Unlock()

	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
		s.mu.Lock()
		for c := range s.conns {
			c.cancel()
		}
		s.mu.Unlock()
		select {
		case <-done:
		case <-time.After(stuckGrace):
			s.log.ErrorContext(ctx, "requests did not end after cancellation")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		err = errors.Join(err, closeListener(l))
	}
	clear(s.listeners)
	return err
}

func closeListener(l net.Listener) error {
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// refuseTimeout limits the write of the one line that a refused peer receives.
const refuseTimeout = time.Second

// refuse tells a peer why it is refused, and closes the connection.
func (s *Server) refuse(nc net.Conn, actor access.Actor, reason error) {
	defer nc.Close()
	s.log.Warn("connection refused", "uid", actor.UID, "pid", actor.PID, "reason", reason)
	failure := api.Errorf(api.CodeUnauthorized, "connection refused: %w", reason).
		WithHint("run as the user who started the daemon, or start your own daemon with `trl serve`")
	a := s.answers.get()
	defer s.answers.put(a)
	_ = nc.SetWriteDeadline(time.Now().Add(refuseTimeout))
	_, _ = nc.Write(a.encode(null, nil, failure)) // the peer may be gone
}
