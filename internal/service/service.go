// Package service is the method table: the name, the types, the scope and the
// handler of every method of the contract. It is the only place where a request
// becomes work.
//
// A transport passes a method name and raw parameters to Table.Call, and gets
// back a value to encode or an *api.Error; it decides nothing itself. The table
// also describes itself (Table.Methods), so that schemas, tool lists and
// reference pages are generated from what is actually served.
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
	"github.com/terminal-runtime/trl/internal/notify"
)

// Sessions is what the table needs to serve the methods of sessions.
type Sessions interface {
	// Create creates a session that belongs to owner. The table has already
	// handled the client field of the params.
	Create(ctx context.Context, params api.SessionCreateParams, owner string) (*api.Session, error)
	List(context.Context, api.SessionListParams) (*api.SessionListResult, error)
	Info(context.Context, api.SessionParams) (*api.SessionInfo, error)
	Destroy(context.Context, api.SessionDestroyParams) (*api.SessionDestroyResult, error)
	Watch(context.Context, api.SessionWatchParams) (*api.SessionWatchResult, notify.Feed, error)
	Resize(context.Context, api.SessionResizeParams) (*api.SessionResizeResult, error)
	Hold(context.Context, api.SessionHoldParams) (*api.SessionHoldResult, error)
	Release(context.Context, api.SessionReleaseParams) (*api.SessionReleaseResult, error)
	Screen(context.Context, api.SessionScreenParams) (*api.SessionScreenResult, error)

	// Visible returns nil if the named session and exec (either may be "")
	// belong to a session with that tag. Otherwise it returns the not-found
	// error.
	Visible(tag, sessionID, execID string) error
}

// Execs is what the table needs to serve the methods of execs.
type Execs interface {
	// Run, Stream and Input call arrival.MarkQueued once their position among the
	// calls for the same session or exec is fixed. Until then the next request
	// of the connection is not read.
	Run(context.Context, api.ExecRunParams) (*api.ExecResult, error)
	Stream(context.Context, api.ExecStreamParams) (*api.ExecStreamResult, notify.Feed, error)
	Attach(context.Context, api.ExecAttachParams) (*api.ExecAttachResult, notify.Feed, error)
	Output(context.Context, api.ExecOutputParams) (*api.ExecOutputResult, error)
	Input(context.Context, api.ExecInputParams) (*api.ExecInputResult, error)
	Signal(context.Context, api.ExecSignalParams) (*api.ExecSignalResult, error)
	Cancel(context.Context, api.ExecCancelParams) (*api.ExecCancelResult, error)
	ExecInfo(context.Context, api.ExecParams) (*api.ExecResult, error)
	ExecList(context.Context, api.SessionParams) (*api.ExecListResult, error)
}

// System is what the table needs from the daemon itself.
type System interface {
	Ping(context.Context) *api.PingResult
	SystemInfo(context.Context) *api.SystemInfo
	Stats(context.Context) *api.SystemStats
	Upgrade(context.Context) (*api.UpgradeResult, error)
}

// Places is what the table needs to serve the methods of places.
type Places interface {
	// List returns the noted places, connected or not, without a look at them.
	List(context.Context) *api.PlaceListResult
	// Add notes a place and connects to it.
	Add(context.Context, api.PlaceParams) (*api.Place, error)
	// Check connects to a place now, even if the last attempt just failed. A
	// place that can't be reached is a result, not an error.
	Check(context.Context, api.PlaceParams) (*api.Place, error)
	Remove(context.Context, api.PlaceRemoveParams) (*api.PlaceRemoveResult, error)
	// Upgrade replaces the program of a place with this daemon's; the place's
	// sessions continue.
	Upgrade(context.Context, api.PlaceParams) (*api.Place, error)
}

// Config is the configuration of a table.
type Config struct {
	// Sessions and Execs serve the methods whose names begin with session and
	// exec. If one is nil, its methods fail with RUNTIME_UNAVAILABLE; if both
	// are, so does every method but those about the daemon and the connection.
	Sessions Sessions
	Execs    Execs
	Places   Places       // nil: there are none, and none can be added
	System   System       // required
	Log      *slog.Logger // nil: nothing is logged

	// Observe is called after every call with the method, or "" if the method
	// does not exist, and the code of its error, or "" if it succeeded. nil
	// disables it.
	Observe func(method string, code api.Code, took time.Duration)
	// DefaultIsolation confines the sessions whose creator wants no isolation in
	// particular. "" confines none.
	DefaultIsolation api.Profile
	// UserName looks up the name of a user. nil: use the system's user database.
	UserName func(uid int) (string, error)
}

// Scope is the permission that a caller needs for a method.
type Scope = access.Scope

// The scopes. Each includes the one before it.
const (
	ScopeRead  = access.ScopeRead
	ScopeRun   = access.ScopeRun
	ScopeAdmin = access.ScopeAdmin
)

// Method is one entry of the table.
type Method struct {
	Name    string
	Scope   Scope
	Summary string       // one sentence, for a model that chooses a tool
	Params  reflect.Type // a struct
	Result  reflect.Type // a struct
	Sends   string       // the notification that follows the answer, or ""
	Routing Routing      // which of several places serves a call
	Reads   bool         // it changes nothing and opens no stream: calling it twice is harmless

	decode  func(params json.RawMessage) (any, error)
	call    func(ctx context.Context, sessions Sessions, params json.RawMessage) (any, error)
	ordered bool // calls keep the order of their connection: the handler reports when its position is fixed
	absent  bool // what serves it is nil, see Config
}

// inOrder marks a method whose calls over one connection are processed in the
// order in which they arrive.
func inOrder(m Method) Method {
	m.ordered = true
	return m
}

// method returns an entry for a typed handler. The parameters are validated and
// decoded before the handler is called; see decoder.
func method[P, R any](name string, scope Scope, summary string, fn func(context.Context, P) (*R, error)) Method {
	decode, named := newDecoder(name, reflect.TypeFor[P]()), idsOf(reflect.TypeFor[P]())
	return Method{
		Name: name, Scope: scope, Summary: summary,
		Params: reflect.TypeFor[P](), Result: reflect.TypeFor[R](),
		decode: func(params json.RawMessage) (any, error) {
			p := new(P)
			return p, decode.into(reflect.ValueOf(p).Elem(), params)
		},
		call: func(ctx context.Context, sessions Sessions, params json.RawMessage) (any, error) {
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

// Decode returns the parameters of a call, a pointer to what Params is, after the
// checks that each call makes.
func (m *Method) Decode(params json.RawMessage) (any, error) { return m.decode(params) }

// OpenedStream is the result of a method that opened a stream: the answer, and
// the notifications to send after it. A transport that cannot send
// notifications ignores the feed: an unstarted feed holds no resources.
type OpenedStream struct {
	Result   any
	StreamID string
	Feed     notify.Feed
}

// streamMethod returns an entry for a method that opens a stream. The stream's
// id is the field StreamID of the result.
func streamMethod[P, R any](name string, scope Scope, sends, summary string, fn func(context.Context, P) (*R, notify.Feed, error)) Method {
	id, ok := reflect.TypeFor[R]().FieldByName("StreamID")
	if !ok {
		panic("service: the result of " + name + " has no StreamID")
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

// Streams gives a request access to the streams of its connection.
type Streams interface {
	// CloseStream ends a stream and returns once no more notifications of it
	// follow. It returns false if there is no such stream.
	CloseStream(ctx context.Context, id string) bool
}

type streamsKey struct{}

// WithStreams sets the streams that a request with this context can close.
func WithStreams(ctx context.Context, s Streams) context.Context {
	return context.WithValue(ctx, streamsKey{}, s)
}

func closeStream(ctx context.Context, p api.StreamCloseParams) (*api.StreamCloseResult, error) {
	s, ok := ctx.Value(streamsKey{}).(Streams)
	return &api.StreamCloseResult{StreamID: p.StreamID, Closed: ok && s.CloseStream(ctx, p.StreamID)}, nil
}

// Table holds the methods that this daemon serves. It is immutable, and
// therefore safe for concurrent use.
type Table struct {
	methods  []Method
	byName   map[string]*Method
	sessions Sessions
	who      *accounts
	log      *slog.Logger
	observe  func(method string, code api.Code, took time.Duration)
}

// New returns a table with all methods of the contract.
func New(cfg Config) *Table {
	sessions, execs := cfg.Sessions, cfg.Execs
	if sessions == nil {
		sessions = noSessions{}
	}
	if execs == nil {
		execs = noExecs{}
	}
	places := cfg.Places
	if places == nil {
		places = noPlaces{}
	}
	t := &Table{sessions: sessions, who: newAccounts(cfg.UserName), log: cfg.Log, observe: cfg.Observe}
	t.methods = methods(sessions, execs, places, cfg.System, t.who, cfg.DefaultIsolation)
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.byName = make(map[string]*Method, len(t.methods))
	for i := range t.methods {
		mustBeGuarded(&t.methods[i])
		mustBeRouted(&t.methods[i])
		t.methods[i].absent = cfg.lacks(t.methods[i].Name)
		t.byName[t.methods[i].Name] = &t.methods[i]
	}
	return t
}

// Methods returns the table in the order of the contract.
func (t *Table) Methods() []Method { return slices.Clone(t.methods) }

// Call serves one request of the actor in ctx; it refuses a request without an
// actor. params may be nil, and is not kept after the call. Every error is an
// *api.Error. A handler that panics causes an INTERNAL error for its caller and
// affects no one else.
func (t *Table) Call(ctx context.Context, name string, params json.RawMessage) (result any, err error) {
	if t.observe == nil {
		return t.serve(ctx, t.byName[name], name, params)
	}
	began, m := time.Now(), t.byName[name]
	result, err = t.serve(ctx, m, name, params)
	t.count(m, name, err, began)
	return result, err
}

// count reports a call to the observer, which must not be nil.
func (t *Table) count(m *Method, name string, err error, began time.Time) {
	var code api.Code
	if err != nil {
		code = api.AsError(err).Code
	}
	if m == nil {
		name = "" // don't use client-supplied names as metric labels
	}
	t.observe(name, code, time.Since(began))
}

func (t *Table) serve(ctx context.Context, m *Method, name string, params json.RawMessage) (result any, err error) {
	if m == nil {
		return nil, t.notFound(name)
	}
	actor, known := access.From(ctx)
	if refusal := allowed(actor, known, m); refusal != nil {
		return nil, refusal
	}
	if m.absent {
		return nil, NoLocalPlace()
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
	// A panic value may contain parameters, which may be secret. Only the
	// errors of the Go runtime are known not to: they contain indexes and
	// types.
	what := fmt.Sprintf("%T", v)
	if err, ok := v.(runtime.Error); ok {
		what = err.Error()
	}
	t.log.ErrorContext(ctx, "handler panicked", "method", m.Name, "panic", what, "stack", string(debug.Stack()))
	return api.Errorf(api.CodeInternal, "%s failed inside the daemon", m.Name).
		WithHint("the call may have had effects: check session.list and exec.list before you repeat it")
}
