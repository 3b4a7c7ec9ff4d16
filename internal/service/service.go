// Package service is the method table: the name, the types, the scope and the
// handler of every method of the contract. It is the only place where a
// request becomes work.
//
// A carrier hands Table.Call a method name and raw parameters and gets back a
// value to encode or an *api.Error; it decides nothing itself. The table also
// describes itself (Table.Methods), so that schemas, tool lists and reference
// pages are generated from what is really served.
package service

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/arrival"
)

// Backend is what the table needs of the sessions.
type Backend interface {
	// Create makes a session of owner's. The table has read what the params say
	// of the client.
	Create(ctx context.Context, params api.SessionCreateParams, owner string) (*api.Session, error)
	List(context.Context, api.SessionListParams) (*api.SessionListResult, error)
	Info(context.Context, api.SessionParams) (*api.SessionInfo, error)
	Destroy(context.Context, api.SessionDestroyParams) (*api.SessionDestroyResult, error)
	Watch(context.Context, api.SessionWatchParams) (*api.SessionWatchResult, api.Feed, error)
	Resize(context.Context, api.SessionResizeParams) (*api.SessionResizeResult, error)
	Hold(context.Context, api.SessionHoldParams) (*api.SessionHoldResult, error)
	Release(context.Context, api.SessionReleaseParams) (*api.SessionReleaseResult, error)
	Screen(context.Context, api.SessionScreenParams) (*api.SessionScreenResult, error)

	// Run, Stream and Input call arrival.Settled when they have their place among
	// those of the same session or exec: until then the next request of the
	// connection is not read.
	Run(context.Context, api.ExecRunParams) (*api.ExecResult, error)
	Stream(context.Context, api.ExecStreamParams) (*api.ExecStreamResult, api.Feed, error)
	Attach(context.Context, api.ExecAttachParams) (*api.ExecAttachResult, api.Feed, error)
	Output(context.Context, api.ExecOutputParams) (*api.ExecOutputResult, error)
	Input(context.Context, api.ExecInputParams) (*api.ExecInputResult, error)
	Signal(context.Context, api.ExecSignalParams) (*api.ExecSignalResult, error)
	Cancel(context.Context, api.ExecCancelParams) (*api.ExecCancelResult, error)
	ExecInfo(context.Context, api.ExecParams) (*api.ExecResult, error)
	ExecList(context.Context, api.SessionParams) (*api.ExecListResult, error)

	// Visible returns nil if the session and the exec that are named (either
	// may be "") belong to a session with that tag. If not, it is the error of
	// what does not exist.
	Visible(tag, sessionID, execID string) error
}

// System is what the table needs of the daemon itself.
type System interface {
	Ping(context.Context) *api.PingResult
	SystemInfo(context.Context) *api.SystemInfo
	Stats(context.Context) *api.SystemStats
	Upgrade(context.Context) (*api.UpgradeResult, error)
}

// Config is what a table is made of.
type Config struct {
	Sessions Backend      // required
	System   System       // required
	Log      *slog.Logger // nil: nothing is logged

	// Observe is told of every call once it is answered: the method, "" if
	// there is none of that name, and the code of its error, "" if it has
	// none. nil: nobody is.
	Observe func(method string, code api.Code, took time.Duration)
	// UserName is the name of a user. nil: that of the system's user database.
	UserName func(uid int) (string, error)
}

// Scope is what a caller must be allowed to do to call a method.
type Scope = access.Scope

// The scopes, each containing the one before it.
const (
	ScopeRead  = access.ScopeRead
	ScopeRun   = access.ScopeRun
	ScopeAdmin = access.ScopeAdmin
)

// Method is one entry of the table.
type Method struct {
	Name    string
	Scope   Scope
	Summary string       // one sentence, written for a model that chooses a tool
	Params  reflect.Type // a struct
	Result  reflect.Type // a struct
	Sends   string       // the notification that follows the answer, if any does

	call    func(ctx context.Context, sessions Backend, params json.RawMessage) (any, error)
	ordered bool // it has a place among those of its connection: the handler says when it has taken it
}

// inOrder is a method whose calls over one connection take their places in the order
// in which they come.
func inOrder(m Method) Method {
	m.ordered = true
	return m
}

// method makes an entry from a typed handler. The parameters are checked and
// decoded before the handler sees them; see decoder.
func method[P, R any](name string, scope Scope, summary string, fn func(context.Context, P) (*R, error)) Method {
	decode, named := newDecoder(name, reflect.TypeFor[P]()), idsOf(reflect.TypeFor[P]())
	return Method{
		Name: name, Scope: scope, Summary: summary,
		Params: reflect.TypeFor[P](), Result: reflect.TypeFor[R](),
		call: func(ctx context.Context, sessions Backend, params json.RawMessage) (any, error) {
			var p P
			if err := decode.into(reflect.ValueOf(&p).Elem(), params); err != nil {
				return nil, err
			}
			if err := named.check(ctx, sessions, reflect.ValueOf(&p).Elem()); err != nil {
				return nil, api.AsError(err)
			}
			result, err := fn(ctx, p)
			if err != nil {
				return nil, api.AsError(err)
			}
			return result, nil
		},
	}
}

// Opened is the result of a method that opened a stream: what to answer, and
// what to send after the answer. A carrier that can send nothing after it lets
// the feed be: nothing is held for one that was never begun.
type OpenedStream struct {
	Result   any
	StreamID string
	Feed     api.Feed
}

// opening makes an entry for a method that opens a stream, whose id is the
// field StreamID of the result.
func streamMethod[P, R any](name string, scope Scope, sends, summary string, fn func(context.Context, P) (*R, api.Feed, error)) Method {
	id, ok := reflect.TypeFor[R]().FieldByName("StreamID")
	if !ok {
		panic("service: the result of " + name + " names no stream")
	}
	m := method(name, scope, summary, func(ctx context.Context, p P) (*OpenedStream, error) {
		result, feed, err := fn(ctx, p)
		if err != nil {
			return nil, err
		}
		return &OpenedStream{Result: result, StreamID: reflect.ValueOf(result).Elem().FieldByIndex(id.Index).String(), Feed: feed}, nil
	})
	m.Result, m.Sends = reflect.TypeFor[R](), sends
	return m
}

// Streams is what a connection knows of the streams that were opened over it.
type Streams interface {
	// CloseStream ends a stream and returns when nothing more of it follows.
	// It is false when there is no such stream.
	CloseStream(ctx context.Context, id string) bool
}

type streamsKey struct{}

// WithStreams says which connection's streams a request can close.
func WithStreams(ctx context.Context, s Streams) context.Context {
	return context.WithValue(ctx, streamsKey{}, s)
}

func closeStream(ctx context.Context, p api.StreamCloseParams) (*api.StreamCloseResult, error) {
	s, ok := ctx.Value(streamsKey{}).(Streams)
	return &api.StreamCloseResult{StreamID: p.StreamID, Closed: ok && s.CloseStream(ctx, p.StreamID)}, nil
}

// Table is the methods that this daemon serves. It is fixed once made, and so
// safe for concurrent use.
type Table struct {
	methods  []Method
	byName   map[string]*Method
	sessions Backend
	log      *slog.Logger
	observe  func(method string, code api.Code, took time.Duration)
}

// New makes the table over its backends.
func New(cfg Config) *Table {
	t := &Table{methods: methods(cfg.Sessions, cfg.System, newAccounts(cfg.UserName)), sessions: cfg.Sessions, log: cfg.Log, observe: cfg.Observe}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.byName = make(map[string]*Method, len(t.methods))
	for i := range t.methods {
		mustBeGuarded(&t.methods[i])
		t.byName[t.methods[i].Name] = &t.methods[i]
	}
	return t
}

// Methods lists the table in the order of the contract.
func (t *Table) Methods() []Method { return slices.Clone(t.methods) }

// Call serves one request of the actor in ctx; without one it is refused.
// params may be nil, for none; it is not kept after the call. Every error is
// an *api.Error. A handler that panics costs its caller an INTERNAL error, and
// nobody else anything.
func (t *Table) Call(ctx context.Context, name string, params json.RawMessage) (result any, err error) {
	if t.observe == nil {
		return t.serve(ctx, t.byName[name], name, params)
	}
	began, m := time.Now(), t.byName[name]
	result, err = t.serve(ctx, m, name, params)
	var code api.Code
	if err != nil {
		code = api.AsError(err).Code
	}
	if m == nil {
		name = "" // what a client made up is nobody's
	}
	t.observe(name, code, time.Since(began))
	return result, err
}

func (t *Table) serve(ctx context.Context, m *Method, name string, params json.RawMessage) (result any, err error) {
	if m == nil {
		return nil, t.notFound(name)
	}
	actor, known := access.From(ctx)
	if refusal := allowed(actor, known, m); refusal != nil {
		return nil, refusal
	}
	defer func() {
		if v := recover(); v != nil {
			result, err = nil, t.panicked(ctx, m, v)
		}
	}()
	if !m.ordered {
		arrival.MarkQueued(ctx)
	}
	return m.call(ctx, t.sessions, params)
}

func (t *Table) panicked(ctx context.Context, m *Method, v any) error {
	// A panic value may quote parameters, which may be secret. Only the Go
	// runtime's own are known not to: they speak of indexes and types.
	what := fmt.Sprintf("%T", v)
	if err, ok := v.(runtime.Error); ok {
		what = err.Error()
	}
	t.log.ErrorContext(ctx, "handler panicked", "method", m.Name, "panic", what, "stack", string(debug.Stack()))
	return api.Errorf(api.CodeInternal, "%s failed inside the daemon", m.Name).
		WithHint("the call was well formed and may have had effects: look with session.list and exec.list before you repeat it")
}
