package route

import (
	"context"
	"encoding/json"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/service"
)

// Call serves one request of the actor in ctx. Every error is an *api.Error.
func (r *Router) Call(ctx context.Context, method string, params json.RawMessage) (any, error) {
	m := r.methods[method]
	if r.places == nil || m == nil {
		return r.local.Call(ctx, method, params)
	}
	switch m.Routing.Kind {
	case service.Create:
		return r.create(ctx, m, params)
	case service.List:
		return r.list(ctx, m, params)
	case service.Watch, service.ByID:
		name := r.names.placeInParams(params)
		if len(name) > 0 {
			if p := r.places.Find(string(name)); p != nil {
				return r.inPlace(ctx, m, p, params)
			}
		}
		if m.Routing.Kind == service.Watch {
			return r.watch(ctx, m, params)
		}
	}
	return r.local.Call(ctx, method, params)
}

// inPlace serves a call about a session of a place.
func (r *Router) inPlace(ctx context.Context, m *service.Method, p Place, params json.RawMessage) (any, error) {
	return r.local.Forward(ctx, m.Name, func(ctx context.Context) (any, error) {
		switch {
		case m.Sends == api.NotifyExecChunk:
			return r.stream(ctx, m, p, params)
		case m.Routing.Kind == service.Watch:
			return r.watchOne(ctx, m, p, params)
		default:
			result, err := r.forward(ctx, m, p, params)
			if err == nil && m.Name == api.MethodSessionDestroy {
				p.SessionDestroyed()
			}
			return result, err
		}
	})
}
