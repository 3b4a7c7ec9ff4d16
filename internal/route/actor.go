package route

import (
	"context"
	"encoding/json"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
)

// actor describes who makes a request to a place, nil if the place takes none.
func (r *Router) actor(ctx context.Context, p Place, from *client) (json.RawMessage, error) {
	actor, _ := access.From(ctx) // the table refuses a request without one
	if !p.Delegates() {
		if actor.Tag == "" {
			return nil, nil
		}
		return nil, api.Errorf(api.CodeForbidden, "%s can't limit a caller to the sessions with a tag", p.Runtime()).
			With("runtime", p.Runtime()).WithHint("use a token without a tag, made with `trl token create`, or another runtime")
	}
	told := r.local.ActorOf(ctx)
	if from == nil {
		return json.Marshal(told)
	}
	told.Connection = from.name
	return from.encoded(told)
}
