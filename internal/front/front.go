// Package front is the side of a daemon that its clients see: the Unix socket or
// stdin and stdout, HTTP with its tokens, TLS, metrics and tools for models, and the
// reports to a service manager.
//
// It passes every request to one handler and knows nothing of what serves it:
// neither sessions nor their output. So it is the same on every system and in front
// of every place.
package front

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync/atomic"

	"github.com/terminal-runtime/trl/internal/transport"
)

// Config is the configuration of a Front.
type Config struct {
	Handler transport.Handler // of every request; required
	Version string            // of this program
	Log     *slog.Logger      // required

	// Socket is the Unix socket to serve on, and Path the path by which clients know
	// it. The caller closes Socket, which removes the path, after Shutdown. If
	// Socket is nil, the Front serves one connection on Stdin and Stdout.
	Socket        *transport.UnixListener
	Path          string
	Stdin, Stdout *os.File

	// RefusesPeer returns an error for a process that must not use Socket. nil: none
	// is refused.
	RefusesPeer func(pid int) error

	// HTTP is served if it is not nil and has a listener.
	HTTP *HTTP
	// State returns what the metrics show of the sessions. nil: nothing.
	State func() State
	// MaxRequestBytes limits a request. 0 means the default of package transport.
	MaxRequestBytes int64

	// Go starts a goroutine under a name and returns true, or returns false once the
	// daemon waits for its goroutines to end. Required.
	Go func(name string, fn func()) bool
}

// Front serves the clients of a daemon.
type Front struct {
	cfg      Config
	log      *slog.Logger
	server   *transport.Server
	http     *transport.HTTPServer // nil: HTTP is not served
	draining atomic.Bool
	ended    chan error // result of a server that stopped by itself; buffered for each transport
}

// New returns a Front that accepts no requests yet.
func New(cfg Config) *Front {
	f := &Front{cfg: cfg, log: cfg.Log, ended: make(chan error, 2)}
	f.server = transport.NewServer(transport.Config{Handler: cfg.Handler, MaxRequestBytes: int(cfg.MaxRequestBytes), RefusesPeer: cfg.RefusesPeer, Log: cfg.Log})
	if cfg.HTTP != nil && cfg.HTTP.listener != nil {
		f.http = f.newHTTPServer()
	}
	return f
}

// Serve starts to serve, and returns. A server that stops before Shutdown sends its
// result to Ended. Shutdown ends the requests; ctx does not.
func (f *Front) Serve(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	f.cfg.Go("serve", func() {
		if f.cfg.Socket == nil {
			f.ended <- f.serveStdio(ctx)
			return
		}
		f.ended <- unlessClosed(f.server.Serve(ctx, lockKeepingListener{f.cfg.Socket}))
	})
	if f.http != nil {
		f.cfg.Go("serve HTTP", func() {
			f.ended <- unlessClosed(f.http.Serve(ctx, f.cfg.HTTP.listener))
		})
	}
}

// Ended returns a channel that receives the result of each server that has stopped:
// nil if it was shut down, or its only client is gone.
func (f *Front) Ended() <-chan error { return f.ended }

// Clients returns how many connections and HTTP requests are open, and how many there
// were since the start.
func (f *Front) Clients() (now int, ever uint64) {
	now, ever = f.server.Connections()
	if f.http != nil {
		requests, all := f.http.Requests()
		now, ever = now+requests, ever+all
	}
	return now, ever
}

// Where describes the addresses that are served.
func (f *Front) Where() string {
	where := "stdin and stdout"
	if f.cfg.Socket != nil {
		where = f.cfg.Path
	}
	if f.http != nil {
		where += " and " + f.cfg.HTTP.url()
	}
	return where
}

// Drain reports to health checks that the daemon is shutting down. Requests are
// still served.
func (f *Front) Drain() { f.draining.Store(true) }

// Shutdown stops accepting, answers the pending requests, and closes the
// connections. When ctx is done it cancels the requests and returns ctx's error.
func (f *Front) Shutdown(ctx context.Context) error {
	if f.http == nil {
		return f.server.Shutdown(ctx)
	}
	// Concurrently: WebSockets belong to both servers.
	web := make(chan error, 1)
	go func() { web <- f.http.Shutdown(ctx) }()
	return errors.Join(f.server.Shutdown(ctx), <-web)
}

// StopAccepting refuses new connections on the listeners, either of which may be
// nil. It keeps the path and the lock of the socket. It may be called more than
// once.
func StopAccepting(socket *transport.UnixListener, web net.Listener) {
	if socket != nil {
		_ = lockKeepingListener{socket}.Close()
	}
	if web != nil {
		_ = web.Close()
	}
}

// lockKeepingListener stops accepting when it is closed, but keeps the path and the
// lock of the socket, which are removed last.
type lockKeepingListener struct{ *transport.UnixListener }

func (l lockKeepingListener) Close() error { return l.UnixListener.UnixListener.Close() }

// unlessClosed returns nil for the errors of a server that was closed on purpose.
func unlessClosed(err error) error {
	if errors.Is(err, transport.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
