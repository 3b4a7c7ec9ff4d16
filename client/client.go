// Package client talks to a TRL daemon over any of its transports.
//
// Dial with an empty address connects to this user's daemon. NewSession starts a
// session, Session.Run runs a command in it, and Session.Start returns a handle
// to a command that runs on. Every method of the protocol is a method of Client,
// with the params and results of package api, except those for programs that act
// for others.
//
// A session runs on the daemon's machine, or in the place that its Runtime names: a
// container (docker:web), another machine (ssh:build.example.com) and others.
//
// A Client is safe for concurrent use. After a lost connection it repeats the
// calls that are safe to repeat: calls that only read, and those that create a
// session, run a command or send input, which carry a key so that the daemon
// never acts on them twice. A Stream resumes at the byte where it was cut off.
//
// Errors returned by the daemon are *api.Error; tell them apart by code with
// api.IsCode.
package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/locate"
	"github.com/terminal-runtime/trl/internal/peer"
)

// ErrNoDaemon is wrapped by the error of Dial if nothing listens at the
// address.
var ErrNoDaemon = peer.ErrNoDaemon

// ErrClosed is wrapped by the error of a call whose connection has ended,
// whichever side ended it. Whether the daemon received the call is then
// unknown.
var ErrClosed = peer.ErrClosed

// Options says how to reach a daemon. Zero values are the defaults.
type Options struct {
	// Token is sent with every request over HTTP and WebSocket.
	Token string
	// TLS is used for https and wss. Default: the system's certificate
	// authorities.
	TLS *tls.Config
	// Patience is how long a call that is safe to repeat, or a stream, tries to
	// reach a daemon again after losing it. Default 10 s, which is longer than
	// a daemon takes to restart; a negative value disables retries.
	Patience time.Duration
	// Also lists other addresses that serve the same sessions. When the address
	// in use cannot be reached, the client tries the next one, and after the
	// last one the first.
	Also []string
}

func (o *Options) setDefaults() {
	if o.Patience == 0 {
		o.Patience = 10 * time.Second
	}
}

// Client is a connection to a daemon. It is safe for concurrent use.
type Client struct {
	transport daemonTransport
	opts      Options
	keyless   atomic.Bool // the daemon is an older version that accepts keys only for commands
}

// daemonTransport is one way to reach a daemon. Its errors are *api.Error, wrap
// ErrClosed or ErrNoDaemon, or are the error of a context.
type daemonTransport interface {
	call(ctx context.Context, method string, params, result any) error
	// stream runs a command and follows it. A nil feed means that the caller
	// must attach to the exec.
	stream(ctx context.Context, p api.ExecStreamParams) (execID string, f *feed[api.Chunk], err error)
	attach(ctx context.Context, execID string, from int64) (*feed[api.Chunk], error)
	watch(ctx context.Context, p api.SessionWatchParams) (*feed[api.SessionEvent], error)
	// canRedial reports whether a lost connection can be made again.
	canRedial() bool
	close()
}

// Dial connects to the daemon at addr with the default options:
//
//	""                this user's daemon, found as the command line does: by TRL_ADDRESS
//	                  with TRL_TOKEN, TRL_SOCKET, the configuration file, or on the
//	                  default socket
//	unix:/path        a Unix socket; a plain path means the same. Dial refuses a
//	                  socket that another user could have made: the process that
//	                  listens and the directories of the path must belong to the
//	                  caller or root; root may also use the daemon of the user who
//	                  owns the directory
//	http://host:port  and https://: calls are requests, streams are Server-Sent Events
//	ws://host:port    and wss://: one WebSocket for calls, one for each stream
//	exec:["ssh","box","trl","connect"]
//	                  a command that relays to a daemon: see DialCommand
//	stdio:trl serve --stdio
//	                  a private daemon, started for this client
func Dial(ctx context.Context, addr string) (*Client, error) {
	return DialWith(ctx, addr, Options{})
}

// DialWith is Dial with options.
func DialWith(ctx context.Context, addr string, opts Options) (*Client, error) {
	opts.setDefaults()
	if addr == "" {
		found, token, err := locate.CurrentUser().Daemon()
		if err != nil {
			return nil, err
		}
		addr = found
		if opts.Token == "" {
			opts.Token = token
		}
	}
	connect := dial
	if len(opts.Also) > 0 {
		connect = dialFailover
	}
	t, err := connect(ctx, addr, opts)
	if err != nil {
		return nil, err
	}
	return &Client{transport: t, opts: opts}, nil
}

// DialCommand connects to a daemon through a command that relays to it, such as
// `ssh box trl connect`. After a lost connection the client runs the command again,
// so calls are repeated and streams resume as over any other transport. The last
// lines that the command writes to standard error are part of the error if it ends.
func DialCommand(ctx context.Context, argv []string, opts Options) (*Client, error) {
	opts.setDefaults()
	t, err := dialCommand(ctx, argv)
	if err != nil {
		return nil, err
	}
	return &Client{transport: t, opts: opts}, nil
}

// NewConn returns a client that uses an existing connection, such as the
// standard input and output of a daemon that the caller started. Close closes
// conn, which must unblock its Read.
func NewConn(conn io.ReadWriteCloser) *Client {
	var opts Options
	opts.setDefaults()
	return &Client{transport: &lineTransport{conn: peer.NewConn(peer.NewLineWire(conn))}, opts: opts}
}

// Close ends the connection. Unanswered calls fail, and the daemon stops
// waiting on their behalf; running commands continue.
func (c *Client) Close() error {
	c.transport.close()
	return nil
}

// Call calls a method. It encodes params as the parameters unless params is
// nil, and decodes the result into result unless result is nil. When ctx is
// done, Call returns; the daemon may still execute the call. If the daemon
// defers a call (RUNTIME_UNAVAILABLE with retry_after_ms), Call repeats it
// after that time; if the call may have reached the place of its session
// (details sent: "maybe"), only if it is safe to repeat.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	var effect effect
	try := func() error { return effect.note(c.transport.call(ctx, method, params, result)) }
	safe := repeatable(method, params)
	err := try()
	if errors.Is(err, ErrNoDaemon) && !errors.Is(err, ErrClosed) {
		return err // there was no connection to lose
	}
	redial := safe && c.transport.canRedial()
	err = c.retry(ctx, err, try, func(err error) bool {
		return retryAfter(err) > 0 && (safe || !maybeSent(err)) || redial && lost(err)
	})
	if readOnly[method] {
		return err
	}
	return effect.correct(err)
}

// readOnly lists the methods that only read, so that calling them twice is
// harmless.
var readOnly = map[string]bool{
	api.MethodSystemPing: true, api.MethodSystemInfo: true, api.MethodSystemStats: true,
	api.MethodSessionList: true, api.MethodSessionInfo: true, api.MethodSessionScreen: true,
	api.MethodExecOutput: true, api.MethodExecInfo: true, api.MethodExecList: true,
	api.MethodPlaceList: true,
}

// repeatable reports whether repeating the call has the same effect as making
// it once.
func repeatable(method string, params any) bool {
	switch p := params.(type) {
	case api.ExecRunParams:
		return p.Key != ""
	case api.ExecStreamParams:
		return p.Key != ""
	case api.SessionCreateParams:
		return p.Key != ""
	case api.ExecInputParams:
		return p.Key != "" || p.At != nil
	case api.ExecCancelParams:
		return p.ExecID != "" // by session it could cancel the next command
	default:
		return readOnly[method]
	}
}

// newKey returns a key for a call whose caller set none.
func newKey() string { return "k-" + rand.Text() }

// The pauses between two attempts to reach a lost daemon: after a broken
// connection it is usually back at once, after a restart it takes a while.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = time.Second
)

// retry repeats try, which has failed with err, as long as the error is
// retryable and Patience has not run out.
func (c *Client) retry(ctx context.Context, err error, try func() error, retryable func(error) bool) error {
	deadline := time.Now().Add(c.opts.Patience)
	for pause := firstPause; err != nil && retryable(err); pause = min(2*pause, maxPause) {
		wait := max(jitter(pause), retryAfter(err))
		if time.Now().Add(wait).After(deadline) {
			break
		}
		if !sleep(ctx, wait) {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		err = try()
	}
	return err
}

// retryAfter returns how long the daemon asked the client to wait before it
// repeats the call; 0 means that it did not say.
func retryAfter(err error) time.Duration {
	if !api.IsCode(err, api.CodeRuntimeUnavailable) {
		return 0
	}
	ms, _ := api.AsError(err).Details["retry_after_ms"].(float64)
	return time.Duration(ms) * time.Millisecond
}

// maybeSent reports whether the call may have been executed: the daemon lost the
// place of the session after it had sent the call there.
func maybeSent(err error) bool { return err != nil && api.AsError(err).Details["sent"] == "maybe" }

// effect says whether one of several attempts to make a call may have been executed.
type effect struct{ possible bool }

// note records the result of an attempt, and returns it.
func (e *effect) note(err error) error {
	unsent := errors.Is(err, ErrNoDaemon) || peer.Unsent(err)
	e.possible = e.possible || maybeSent(err) || errors.Is(err, ErrClosed) && !unsent
	return err
}

// correct returns the error of the last attempt as that of the whole call: the daemon
// does not know whether an earlier attempt, perhaps to the daemon before it, reached
// the place of the session.
func (e *effect) correct(err error) error {
	var last *api.Error
	if e.possible && errors.As(err, &last) && last.Details["sent"] == "no" {
		_ = last.With("sent", "maybe").
			WithHint("the call may have been executed: check %s and %s before you repeat it", api.MethodExecList, api.MethodSessionList)
	}
	return err
}

// lost reports whether err only says that the daemon could not be reached. A
// daemon that refused the caller was reached, and will refuse it again, as will one
// that does not say when a place can be reached.
func lost(err error) bool {
	if api.IsCode(err, api.CodeUnauthorized) || err != nil && api.AsError(err).Details["runtime"] != nil && retryAfter(err) == 0 {
		return false
	}
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrNoDaemon) || api.IsCode(err, api.CodeRuntimeUnavailable)
}

// jitter spreads the attempts of many clients that were disconnected together.
func jitter(d time.Duration) time.Duration {
	var b [1]byte
	_, _ = rand.Read(b[:]) // never fails
	return d/2 + d*time.Duration(b[0])/256/2
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lineTransport is the transport over connections that carry one message at a
// time in both directions.
type lineTransport struct {
	dial func(context.Context) (*peer.Conn, error) // nil: there is only one connection

	mu      sync.Mutex
	conn    *peer.Conn // for calls; it may have ended
	refused *peer.Conn // the last one whose refusal was reported
	closed  bool
}

func (l *lineTransport) canRedial() bool { return l.dial != nil }

// current returns the connection for calls. It reconnects if that has ended.
func (l *lineTransport) current(ctx context.Context) (*peer.Conn, error) {
	l.mu.Lock()
	c, closed := l.conn, l.closed
	l.mu.Unlock()
	if !c.Ended() || closed || l.dial == nil || l.refusal(c) {
		return c, nil
	}
	fresh, err := l.redial(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.conn.Ended() { // closed, or another call was faster
		fresh.Close()
		return l.conn, nil
	}
	l.conn = fresh
	return fresh, nil
}

// refusal reports whether the daemon refused the caller on c and the refusal
// has not been reported yet. The next call reports it before another connection
// is tried.
func (l *lineTransport) refusal(c *peer.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused == c || !api.IsCode(c.Err(), api.CodeUnauthorized) {
		return false
	}
	l.refused = c
	return true
}

// redial connects again. A failure means that the previous connection is lost.
func (l *lineTransport) redial(ctx context.Context) (*peer.Conn, error) {
	c, err := l.dial(ctx)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return c, err
}

func (l *lineTransport) call(ctx context.Context, method string, params, result any) error {
	c, err := l.current(ctx)
	if err != nil {
		return err
	}
	return callOver(ctx, c, method, params, result)
}

// callOver makes a call that opens no stream.
func callOver(ctx context.Context, c *peer.Conn, method string, params, result any) error {
	line, err := c.Call(ctx, peer.Request{Method: method, Params: params}, nil)
	if err != nil {
		return err
	}
	return peer.Decode(method, line, result)
}

func (l *lineTransport) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.conn.Close()
}

// streamConn returns a connection for one stream. If more than one connection
// is possible the stream gets its own, so that a slow reader delays only its
// own stream.
func (l *lineTransport) streamConn(ctx context.Context) (c *peer.Conn, own bool, err error) {
	if l.dial == nil {
		return l.conn, false, nil
	}
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return nil, false, ErrClosed
	}
	c, err = l.redial(ctx)
	return c, true, err
}

func (l *lineTransport) stream(ctx context.Context, p api.ExecStreamParams) (string, *feed[api.Chunk], error) {
	var r api.ExecStreamResult
	f, err := follow(ctx, l, api.MethodExecStream, p, &r, parseChunk)
	return r.ExecID, f, err
}

func (l *lineTransport) attach(ctx context.Context, execID string, from int64) (*feed[api.Chunk], error) {
	var r api.ExecAttachResult
	return follow(ctx, l, api.MethodExecAttach, api.ExecAttachParams{ExecID: execID, From: from}, &r, parseChunk)
}

func (l *lineTransport) watch(ctx context.Context, p api.SessionWatchParams) (*feed[api.SessionEvent], error) {
	var r api.SessionWatchResult
	return follow(ctx, l, api.MethodSessionWatch, p, &r, parseEvent)
}
