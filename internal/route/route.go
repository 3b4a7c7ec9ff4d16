// Package route decides which place serves a request. A place is a TRL of its own:
// today there is one, this machine, where sessions run on Linux only.
//
// A Router stands in front of the method table and works on raw calls, a method
// name and undecoded parameters: it must pass on fields that it does not know,
// because the place that serves the call may be of a later version.
package route

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/service"
)

// Handler serves raw calls; *service.Table implements it, and so does *Router.
// params is valid only until Call returns.
type Handler interface {
	Call(ctx context.Context, method string, params json.RawMessage) (any, error)
}

// Config is the configuration of a Router.
type Config struct {
	// Local serves the calls for this machine. nil means that no sessions run on
	// it; then the Router answers the calls about the daemon itself, with the
	// fields below, and refuses all others.
	Local Handler

	System service.System // required if Local is nil
	Log    *slog.Logger   // nil: nothing is logged
	// Observe counts the calls; see service.Config. nil disables it.
	Observe func(method string, code api.Code, took time.Duration)
}

// Router passes each call to the place that serves it. It is immutable, and
// therefore safe for concurrent use.
type Router struct{ local Handler }

// New returns a Router.
func New(cfg Config) *Router {
	local := cfg.Local
	if local == nil {
		// Scopes and unknown methods are the same as with sessions.
		local = service.New(service.Config{System: cfg.System, Log: cfg.Log, Observe: cfg.Observe})
	}
	return &Router{local: local}
}

// Call serves one request of the actor in ctx. Every error is an *api.Error.
func (r *Router) Call(ctx context.Context, method string, params json.RawMessage) (any, error) {
	return r.local.Call(ctx, method, params)
}
