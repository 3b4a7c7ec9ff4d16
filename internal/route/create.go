package route

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/service"
)

// create serves session.create in the place of its runtime.
func (r *Router) create(ctx context.Context, m *service.Method, params json.RawMessage) (any, error) {
	runtime, parent, ok := r.wanted(params)
	if !ok || runtime == api.RuntimeHost && r.home(parent) == nil && !r.noHost {
		return r.createHere(ctx, m, params)
	}
	return r.local.Forward(ctx, m.Name, func(ctx context.Context) (any, error) {
		if runtime == api.RuntimeHost && r.noHost {
			return nil, service.NoLocalPlace()
		}
		if runtime == api.RuntimeHost {
			return nil, elsewhere(r.home(parent))
		}
		single, discard, err := r.single(ctx, m, runtime, params)
		if err != nil {
			return nil, err
		}
		if single != nil {
			result, err := r.createIn(ctx, m, single, params, "")
			if err != nil {
				discard()
			}
			return result, err
		}
		p, rest, err := r.places.Get(ctx, runtime)
		if err != nil {
			return nil, err
		}
		if home := r.home(parent); parent != "" && home != p {
			return nil, elsewhere(home)
		}
		return r.createIn(ctx, m, p, params, rest)
	})
}

// createIn creates a session in a place. rest is its runtime there.
func (r *Router) createIn(ctx context.Context, m *service.Method, p Place, params json.RawMessage, rest string) (any, error) {
	var inner json.RawMessage
	if rest != "" && rest != api.RuntimeHost {
		inner = quote(rest)
	}
	params, err := set(params, "runtime", inner)
	if err != nil {
		return nil, err
	}
	if !p.Delegates() && endsWithClient(params) {
		return nil, api.Errorf(api.CodeInvalidParams, "session.create: %s does not know when its client leaves", p.Runtime()).With("field", "while_connected").
			WithHint("set idle_ttl_ms to end an unused session")
	}
	if params, err = r.confine(ctx, p, params); err != nil {
		return nil, err
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
	return result, service.AsForbidden(ctx, err)
}

// confine sets the isolation of a session in a place to what its creator wants and may
// have. The members that it does not decide about stay as they are: the place knows
// them.
func (r *Router) confine(ctx context.Context, p Place, params json.RawMessage) (json.RawMessage, error) {
	var byDefault api.Profile
	if r.isolation != nil {
		byDefault = r.isolation(p.Runtime())
	}
	raw, err := member(params, "isolation")
	if err != nil {
		return nil, err
	}
	var wanted *api.Isolation
	if raw != nil && json.Unmarshal(raw, &wanted) != nil {
		return nil, api.Errorf(api.CodeInvalidParams, "session.create: \"isolation\" must be the name of a profile or an object").With("field", "isolation").
			WithHint("send a profile such as %q", api.ProfileWorkspace)
	}
	out, err := service.Confine(ctx, wanted, byDefault)
	if err != nil || out == nil || wanted != nil && out.Profile == wanted.Profile {
		return params, err
	}
	if wanted == nil {
		raw = nil
	}
	if raw, err = set(raw, "profile", quote(string(out.Profile))); err != nil {
		return nil, err
	}
	return set(params, "isolation", raw)
}

// single returns the place that is made for a new session alone, because of its
// limits; nil if it needs none.
func (r *Router) single(ctx context.Context, m *service.Method, runtime string, params json.RawMessage) (p Place, discard func(), err error) {
	if limits, _ := member(params, "limits"); limits == nil || !r.places.MakesSingle(runtime) {
		return nil, nil, nil
	}
	decoded, err := m.Decode(params) // before anything is made
	if err != nil {
		return nil, nil, err
	}
	asked, ok := decoded.(*api.SessionCreateParams)
	if !ok || asked.Limits == nil {
		return nil, nil, nil
	}
	outer := api.Limits{MemoryBytes: asked.Limits.MemoryBytes, CPU: asked.Limits.CPU, PIDs: asked.Limits.PIDs}
	if outer == (api.Limits{}) {
		return nil, nil, nil
	}
	if asked.Parent != "" {
		return nil, nil, api.Errorf(api.CodeInvalidParams, "session.create: a session with a container of its own cannot have a parent").With("field", "parent").
			WithHint("repeat session.create without parent, and destroy both sessions; or use while_connected")
	}
	key := ""
	if asked.Key != "" {
		who := r.local.ActorOf(ctx)
		sum := sha256.Sum256([]byte(strings.Join([]string{who.Token, who.Name, who.User, asked.Client, asked.Key}, "\x00")))
		key = hex.EncodeToString(sum[:])
	}
	return r.places.Single(ctx, runtime, outer, key)
}

// createHere creates a session on this machine. A confined one is in a place of its
// own, which has to know when its client leaves.
func (r *Router) createHere(ctx context.Context, m *service.Method, params json.RawMessage) (any, error) {
	from := r.clients.of(ctx)
	if from == nil || !endsWithClient(params) {
		return r.local.Call(ctx, m.Name, params) // it says what is wrong with them
	}
	ctx = context.WithValue(ctx, nameKey{}, from.name)
	result, err := r.local.Call(ctx, m.Name, params)
	made, ok := result.(*api.Session)
	if err != nil || !ok {
		return result, err
	}
	p := r.home(made.SessionID)
	if p == nil {
		return result, nil
	}
	id, err := set(nil, "session_id", quote(made.SessionID))
	if err != nil {
		return nil, err
	}
	c, err := r.newCall(ctx, r.methods[api.MethodSessionWatch], p, id)
	if err != nil {
		return nil, err
	}
	c.done()
	from.keep(c, made.SessionID)
	return result, nil
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
