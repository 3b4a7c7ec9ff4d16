package service

import (
	"context"

	"github.com/terminal-runtime/trl/api"
)

// visiblePlaces returns the places as the caller may see them. A tagged caller
// learns what it can pass to session.create and whether that works now, but
// nothing about the machines: users, versions and messages would reveal others.
func visiblePlaces(ctx context.Context, p Places) []api.Place {
	places := p.List(ctx).Places
	if tagOf(ctx) == "" || len(places) == 0 {
		return places
	}
	// Listed one by one, so that a new field is not shown by mistake.
	out := make([]api.Place, len(places))
	for i := range places {
		out[i] = api.Place{Name: places[i].Name, Runtime: places[i].Runtime, State: places[i].State}
	}
	return out
}

// visibleConfig returns the settings that a tagged caller may see: where its
// sessions run, and what confines them, decides what it can ask for.
func visibleConfig(config map[string]any) map[string]any {
	out := map[string]any{}
	for _, key := range []string{"default_runtime", "mcp_isolation"} {
		if value, ok := config[key]; ok {
			out[key] = value
		}
	}
	return out
}

func listPlaces(p Places) func(context.Context, api.None) (*api.PlaceListResult, error) {
	return func(ctx context.Context, _ api.None) (*api.PlaceListResult, error) {
		result := &api.PlaceListResult{Places: visiblePlaces(ctx, p)}
		if result.Places == nil {
			result.Places = []api.Place{}
		}
		return result, nil
	}
}

// wholeDaemon refuses a tagged caller: a place is shared by the sessions of
// all tags.
func wholeDaemon[P, R any](method string, fn func(context.Context, P) (*R, error)) func(context.Context, P) (*R, error) {
	return func(ctx context.Context, params P) (*R, error) {
		if tag := tagOf(ctx); tag != "" {
			return nil, api.Errorf(api.CodeForbidden, "%s is not available to a token with a tag", method).
				With("tag", tag).WithHint("ask for a token made with `trl token create --scope %s` and without --tag", ScopeAdmin)
		}
		return fn(ctx, params)
	}
}

// noPlaces stands for Places that are nil.
type noPlaces struct{}

// List returns no places.
func (noPlaces) List(context.Context) *api.PlaceListResult {
	return &api.PlaceListResult{}
}

// Add refuses the place.
func (noPlaces) Add(_ context.Context, p api.PlaceParams) (*api.Place, error) {
	return nil, placeNotFound(p.Runtime)
}

// Check refuses the place.
func (noPlaces) Check(_ context.Context, p api.PlaceParams) (*api.Place, error) {
	return nil, placeNotFound(p.Runtime)
}

// Remove refuses the place.
func (noPlaces) Remove(_ context.Context, p api.PlaceRemoveParams) (*api.PlaceRemoveResult, error) {
	return nil, placeNotFound(p.Runtime)
}

// Upgrade refuses the place.
func (noPlaces) Upgrade(_ context.Context, p api.PlaceParams) (*api.Place, error) {
	return nil, placeNotFound(p.Runtime)
}

func placeNotFound(runtime string) *api.Error {
	return api.Errorf(api.CodeRuntimeNotFound, "no place %q: this daemon serves no places", clip(runtime)).
		With("runtime", clip(runtime)).WithHint("call system.info, which lists the runtimes of this daemon")
}
