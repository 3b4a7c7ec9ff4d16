// Package client speaks to a TRL daemon, over any of its carriers.
//
// A Client is safe for concurrent use. What it can repeat without harm, it
// repeats after a lost connection: calls that only look, and those that make a
// session, run a command or give it input, which carry a key that keeps the daemon
// from doing it twice. A Stream goes on where it was cut, byte for byte.
//
// Errors that the daemon answers are *api.Error, to be told apart by their
// code; see api.IsCode.
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
)

// ErrNoDaemon is what Dial's error is when nobody listens at the address.
var ErrNoDaemon = errors.New("no TRL daemon is running")

// ErrClosed is what the error of a call is when its connection has ended,
// whichever side ended it. Whether the daemon got the call is then unknown.
var ErrClosed = errors.New("the connection to the daemon is closed")

// Options are how to reach a daemon. Zero values are the defaults.
type Options struct {
	// Token goes with every request over HTTP and WebSocket.
	Token string
	// TLS is for https and wss. Default: the system's authorities.
	TLS *tls.Config
	// Patience is how long a daemon that was lost is looked for, by what can
	// be repeated. Default 10 s, longer than a daemon takes to restart; less
	// than 0 is not at all.
	Patience time.Duration
	// Also are other addresses at which the same sessions are found. When the one
	// in use can't be reached, the next is tried, and after the last the first.
	Also []string
}

func (o *Options) setDefaults() {
	if o.Patience == 0 {
		o.Patience = 10 * time.Second
	}
}

// Client is a way to a daemon. It is safe for concurrent use.
type Client struct {
	transport daemonTransport
	opts      Options
	keyless   atomic.Bool // the daemon is of a version that takes keys with commands alone
}

// carrier is one of the ways to reach a daemon. Its errors are *api.Error, or
// wrap ErrClosed or ErrNoDaemon, or that of a context.
type daemonTransport interface {
	call(ctx context.Context, method string, params, result any) error
	// stream runs a command and follows it. The feed is nil when only its exec
	// is known, to be attached to.
	stream(ctx context.Context, p api.ExecStreamParams) (execID string, f *feed[api.Chunk], err error)
	attach(ctx context.Context, execID string, from int64) (*feed[api.Chunk], error)
	watch(ctx context.Context, p api.SessionWatchParams) (*feed[api.SessionEvent], error)
	// redials reports whether a lost connection can be made again.
	canRedial() bool
	close()
}

// Dial connects to the daemon at addr with the default options:
//
//	unix:/path        a Unix socket; so is a path alone. It is refused where another
//	                  user could have made it: the process that listens must be the
//	                  caller's or root's, and so must the directories of the path;
//	                  root may also use a daemon of the user in whose directory it is
//	http://host:port  and https://: calls are requests, streams Server-Sent Events
//	ws://host:port    and wss://: one WebSocket for calls, one for each stream
//	stdio:trl serve --stdio
//	                  a daemon of its own, started for this client
func Dial(ctx context.Context, addr string) (*Client, error) {
	return DialWith(ctx, addr, Options{})
}

// DialWith is Dial with options.
func DialWith(ctx context.Context, addr string, opts Options) (*Client, error) {
	opts.setDefaults()
	connect := dial
	if len(opts.Also) > 0 {
		connect = dialFailover
	}
	carrier, err := connect(ctx, addr, opts)
	if err != nil {
		return nil, err
	}
	return &Client{transport: carrier, opts: opts}, nil
}

// NewConn speaks over a connection that already exists, such as the standard
// input and output of a daemon that was started for it. Close closes conn,
// which must make a Read of it return.
func NewConn(conn io.ReadWriteCloser) *Client {
	var opts Options
	opts.setDefaults()
	return &Client{transport: &lineTransport{conn: newConn(newLineWire(conn))}, opts: opts}
}

// Close ends the connection. The daemon stops waiting on behalf of the calls
// that are unanswered, which fail; commands that run go on.
func (c *Client) Close() error {
	c.transport.close()
	return nil
}

// Call calls a method. params is encoded as its parameters, unless it is nil;
// the result is decoded into result, unless that is nil. When ctx is done the
// call is abandoned and returns; what the daemon does of it, it does. A call that
// the daemon put off (RUNTIME_UNAVAILABLE with retry_after_ms) is made again then.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	try := func() error { return c.transport.call(ctx, method, params, result) }
	safe := c.transport.canRedial() && repeatable(method, params)
	err := try()
	if errors.Is(err, ErrNoDaemon) && !errors.Is(err, ErrClosed) {
		return err // there was none to lose
	}
	return c.retry(ctx, err, try, func(err error) bool { return retryAfter(err) > 0 || safe && lost(err) })
}

// readOnly are the methods that can be called twice without harm.
var readOnly = map[string]bool{
	api.MethodSystemPing: true, api.MethodSystemInfo: true, api.MethodSystemStats: true,
	api.MethodSessionList: true, api.MethodSessionInfo: true, api.MethodSessionScreen: true,
	api.MethodExecOutput: true, api.MethodExecInfo: true, api.MethodExecList: true,
}

// repeatable reports whether a call has its effect once, however often it is
// made.
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
		return p.ExecID != "" // by session it could hit the next command
	default:
		return readOnly[method]
	}
}

// newKey makes the key of a call whose caller gave none.
func newKey() string { return "k-" + rand.Text() }

// The pauses between two attempts to reach a daemon that was lost: one that
// was cut off is there at once, one that restarts takes a while.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = time.Second
)

// persist repeats try, which has failed with err, as long as that may be mended by
// doing so and the patience is not over.
func (c *Client) retry(ctx context.Context, err error, try func() error, mend func(error) bool) error {
	deadline := time.Now().Add(c.opts.Patience)
	for pause := firstPause; err != nil && mend(err); pause = min(2*pause, maxPause) {
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

// putOff is after how long a daemon wants to be asked again; 0: it did not say.
func retryAfter(err error) time.Duration {
	if !api.IsCode(err, api.CodeRuntimeUnavailable) {
		return 0
	}
	ms, _ := api.AsError(err).Details["retry_after_ms"].(float64)
	return time.Duration(ms) * time.Millisecond
}

// lost reports whether an error says nothing of the call but that the daemon
// could not be reached. One that refused the caller was reached, and will refuse
// again.
func lost(err error) bool {
	if api.IsCode(err, api.CodeUnauthorized) {
		return false
	}
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrNoDaemon) || api.IsCode(err, api.CodeRuntimeUnavailable)
}

// jitter spreads the attempts of many clients that were cut off together.
func jitter(d time.Duration) time.Duration {
	var b [1]byte
	_, _ = rand.Read(b[:]) // it never fails
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

// lines is the carrier of daemons that speak a message at a time both ways.
type lineTransport struct {
	dial func(context.Context) (*conn, error) // nil: there is one connection only

	mu      sync.Mutex
	conn    *conn // the one for calls; it may have ended
	refused *conn // the last one whose refusal was told
	closed  bool
}

func (l *lineTransport) canRedial() bool { return l.dial != nil }

// current returns the connection for calls, and makes it again if it has ended.
func (l *lineTransport) current(ctx context.Context) (*conn, error) {
	l.mu.Lock()
	c, closed := l.conn, l.closed
	l.mu.Unlock()
	if !c.ended() || closed || l.dial == nil || l.refusal(c) {
		return c, nil
	}
	fresh, err := l.redial(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.conn.ended() { // closed, or another call was faster
		fresh.close()
		return l.conn, nil
	}
	l.conn = fresh
	return fresh, nil
}

// refusal reports whether the daemon has refused the caller on a connection, which
// the next call is to say before another connection is tried.
func (l *lineTransport) refusal(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused == c || !api.IsCode(c.err, api.CodeUnauthorized) {
		return false
	}
	l.refused = c
	return true
}

// redial connects once more. That it fails is the end of what there was.
func (l *lineTransport) redial(ctx context.Context) (*conn, error) {
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
	return c.call(ctx, method, params, result, nil)
}

func (l *lineTransport) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.conn.close()
}

// streamConn returns a connection for one stream: one of its own, so that a
// reader who lags is nobody's but the stream's, if there can be more than one.
func (l *lineTransport) streamConn(ctx context.Context) (c *conn, own bool, err error) {
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
