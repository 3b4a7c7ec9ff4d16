package route

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/service"
)

// Table serves the calls for this machine; *service.Table implements it. params is
// valid only until Call returns.
type Table interface {
	Call(ctx context.Context, method string, params json.RawMessage) (any, error)
	// Serve is Call without counting, for a part of a call that Forward counts.
	Serve(ctx context.Context, method string, params json.RawMessage) (any, error)
	// Forward allows and counts a call that serve serves.
	Forward(ctx context.Context, method string, serve func(context.Context) (any, error)) (any, error)
	ActorOf(ctx context.Context) api.Actor
	Methods() []service.Method
}

// Config is the configuration of a Router.
type Config struct {
	// Local serves the calls for this machine. nil means that no sessions run on
	// it; then the Router answers the calls about the daemon itself, with the
	// fields below, and refuses all others that no place serves.
	Local Table

	System service.System // required if Local is nil
	Manage service.Places // serves the methods of places if Local is nil; nil: there are none
	Log    *slog.Logger   // nil: nothing is logged
	// Observe counts the calls; see service.Config. nil disables it.
	Observe func(method string, code api.Code, took time.Duration)

	// Places are the other places. nil means that there are none.
	Places Places
	// Node is the name of this daemon in ids, "" if they have none.
	Node string
	// NoHost refuses new sessions on this machine. Those that are there go on.
	NoHost bool
	// DefaultRuntime is where a session is created whose runtime is not given. ""
	// means host.
	DefaultRuntime string
	// Isolation returns the profile of sessions in a place whose creator wants no
	// isolation in particular, "" for none. nil means none in every place.
	Isolation func(runtime string) api.Profile
}

// Router passes each call to the place that serves it. It is safe for concurrent
// use.
type Router struct {
	local          Table
	places         Places // nil: none
	names          names
	noHost         bool
	defaultRuntime string
	isolation      func(runtime string) api.Profile
	methods        map[string]*service.Method
	clients        clients
}

// New returns a Router.
func New(cfg Config) *Router {
	local := cfg.Local
	if local == nil {
		// Scopes and unknown methods are the same as with sessions.
		local = service.New(service.Config{System: cfg.System, Places: cfg.Manage, Log: cfg.Log, Observe: cfg.Observe})
	}
	r := &Router{
		isolation: cfg.Isolation,
		local:     local, places: cfg.Places, names: newNames(cfg.Node), noHost: cfg.NoHost,
		defaultRuntime: cmp.Or(cfg.DefaultRuntime, api.RuntimeHost), methods: map[string]*service.Method{},
	}
	for _, m := range local.Methods() {
		r.methods[m.Name] = &m
	}
	return r
}
