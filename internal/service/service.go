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

	"github.com/terminal-runtime/trl/api"
)

// Backend is what the table needs of the sessions.
type Backend interface {
	Create(context.Context, api.SessionCreateParams) (*api.Session, error)
	List(context.Context, api.SessionListParams) (*api.SessionListResult, error)
	Info(context.Context, api.SessionParams) (*api.SessionInfo, error)
	Destroy(context.Context, api.SessionDestroyParams) (*api.SessionDestroyResult, error)

	Run(context.Context, api.ExecRunParams) (*api.ExecResult, error)
	Output(context.Context, api.ExecOutputParams) (*api.ExecOutputResult, error)
	Input(context.Context, api.ExecInputParams) (*api.ExecInputResult, error)
	Signal(context.Context, api.ExecSignalParams) (*api.ExecSignalResult, error)
	Cancel(context.Context, api.ExecCancelParams) (*api.ExecCancelResult, error)
	ExecInfo(context.Context, api.ExecParams) (*api.ExecResult, error)
	ExecList(context.Context, api.SessionParams) (*api.ExecListResult, error)
}

// System is what the table needs of the daemon itself.
type System interface {
	Ping(context.Context) *api.PingResult
	SystemInfo(context.Context) *api.SystemInfo
	Stats(context.Context) *api.SystemStats
}

// Config is what a table is made of.
type Config struct {
	Sessions Backend      // required
	System   System       // required
	Log      *slog.Logger // nil: nothing is logged
}

// Scope is what a caller must be allowed to do to call a method.
type Scope string

// The scopes, each containing the one before it.
const (
	ScopeRead  Scope = "read"  // look, change nothing
	ScopeRun   Scope = "run"   // make sessions and run commands in them
	ScopeAdmin Scope = "admin" // change the daemon itself
)

// Method is one entry of the table.
type Method struct {
	Name    string
	Scope   Scope
	Summary string       // one sentence, written for a model that chooses a tool
	Params  reflect.Type // a struct
	Result  reflect.Type // a struct

	call func(ctx context.Context, params json.RawMessage) (any, error)
}

// method makes an entry from a typed handler. The parameters are checked and
// decoded before the handler sees them; see decoder.
func method[P, R any](name string, scope Scope, summary string, fn func(context.Context, P) (*R, error)) Method {
	decode := newDecoder(name, reflect.TypeFor[P]())
	return Method{
		Name: name, Scope: scope, Summary: summary,
		Params: reflect.TypeFor[P](), Result: reflect.TypeFor[R](),
		call: func(ctx context.Context, params json.RawMessage) (any, error) {
			var p P
			if err := decode.into(reflect.ValueOf(&p).Elem(), params); err != nil {
				return nil, err
			}
			result, err := fn(ctx, p)
			if err != nil {
				return nil, api.AsError(err)
			}
			return result, nil
		},
	}
}

// Table is the methods that this daemon serves. It is fixed once made, and so
// safe for concurrent use.
type Table struct {
	methods []Method
	byName  map[string]*Method
	log     *slog.Logger
}

// New makes the table over its backends.
func New(cfg Config) *Table {
	t := &Table{methods: methods(cfg.Sessions, cfg.System), log: cfg.Log}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.byName = make(map[string]*Method, len(t.methods))
	for i := range t.methods {
		t.byName[t.methods[i].Name] = &t.methods[i]
	}
	return t
}

// Methods lists the table in the order of the contract.
func (t *Table) Methods() []Method { return slices.Clone(t.methods) }

// Call serves one request. params may be nil, for none; it is not kept after
// the call. Every error is an *api.Error. A handler that panics costs its
// caller an INTERNAL error, and nobody else anything.
func (t *Table) Call(ctx context.Context, name string, params json.RawMessage) (result any, err error) {
	m, ok := t.byName[name]
	if !ok {
		return nil, t.notFound(name)
	}
	defer func() {
		if v := recover(); v != nil {
			result, err = nil, t.panicked(ctx, m, v)
		}
	}()
	return m.call(ctx, params)
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
