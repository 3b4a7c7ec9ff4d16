package route

import (
	"context"
	"encoding/json"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/service"
)

// create serves session.create in the place of its runtime.
func (r *Router) create(ctx context.Context, m *service.Method, params json.RawMessage) (any, error) {
	runtime, parent, ok := r.wanted(params)
	if !ok || runtime == api.RuntimeHost && r.home(parent) == nil && !r.noHost {
		return r.local.Call(ctx, m.Name, params) // it says what is wrong with them
	}
	return r.local.Forward(ctx, m.Name, func(ctx context.Context) (any, error) {
		if runtime == api.RuntimeHost && r.noHost {
			return nil, service.NoLocalPlace()
		}
		if runtime == api.RuntimeHost {
			return nil, elsewhere(r.home(parent))
		}
		p, rest, err := r.places.Get(ctx, runtime)
		if err != nil {
			return nil, err
		}
		if home := r.home(parent); parent != "" && home != p {
			return nil, elsewhere(home)
		}
		var inner json.RawMessage
		if rest != "" && rest != api.RuntimeHost {
			inner = quote(rest)
		}
		if params, err = set(params, "runtime", inner); err != nil {
			return nil, err
		}
		if !p.Delegates() && endsWithClient(params) {
			return nil, api.Errorf(api.CodeInvalidParams, "session.create: %s does not know when its client leaves", p.Runtime()).With("field", "while_connected").
				WithHint("set idle_ttl_ms to end an unused session")
		}
		c, err := r.newCall(ctx, m, p, params)
		if err != nil {
			return nil, err
		}
		defer c.done()
		result, err := c.calls(ctx)
		if err == nil {
			r.keepSession(ctx, c, params, result)
		}
		return result, err
	})
}

// wanted returns the runtime and the parent that the parameters ask for. A session
// with a parent is by default where its parent is. ok is false if they are not valid.
func (r *Router) wanted(params json.RawMessage) (runtime, parent string, ok bool) {
	ok = true
	var err error
	if len(params) > 0 {
		err = members(params, func(key, value []byte, _, _ int) {
			switch string(key) {
			case "runtime":
				runtime, ok = stringOf(value)
			case "parent":
				parent, _ = stringOf(value)
			}
		})
	}
	switch {
	case runtime != "":
	case parent == "":
		runtime = r.defaultRuntime
	default:
		runtime = runtimeOf(r.home(parent))
	}
	return runtime, parent, ok && err == nil
}

// home returns the place of an id, nil if it is this machine.
func (r *Router) home(id string) Place {
	if name := r.names.placeIn([]byte(id)); len(name) > 0 {
		return r.places.Find(string(name))
	}
	return nil
}

// elsewhere is the error for a parent, at home in a place, whose child would be in
// another: a session can end only with one in the same place.
func elsewhere(home Place) error {
	return api.Errorf(api.CodeInvalidParams, "session.create: the parent is in another place than the new session").With("field", "parent").
		WithHint("repeat session.create with runtime: %q, where the parent is, or without parent", runtimeOf(home))
}

// runtimeOf returns the runtime of a place, nil being this machine.
func runtimeOf(p Place) string {
	if p == nil {
		return api.RuntimeHost
	}
	return p.Runtime()
}
