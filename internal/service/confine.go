package service

import (
	"context"
	"errors"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/profile"
)

// Confine returns the isolation of a new session: the wanted one, nil for none, or the
// default if the caller wants nothing in particular, and at most what the caller may
// have. The error is FORBIDDEN if it wants more.
func Confine(ctx context.Context, wanted *api.Isolation, byDefault api.Profile) (*api.Isolation, error) {
	actor, _ := access.From(ctx)
	if wanted == nil && byDefault != "" {
		wanted = &api.Isolation{Profile: byDefault}
		if actor.Sandbox != "" {
			if _, err := profile.AtMost(api.Profile(actor.Sandbox), wanted); err != nil {
				wanted = nil // the caller's own is stricter
			}
		}
	}
	if actor.Sandbox == "" {
		return wanted, nil
	}
	out, err := profile.AtMost(api.Profile(actor.Sandbox), wanted)
	if wider, ok := errors.AsType[*profile.WideningError](err); ok {
		return nil, forbidden(actor, err.Error(), "isolation."+wider.Field)
	}
	return out, err
}

// forbidden is the error for an isolation that is wider than that of the caller's
// token.
func forbidden(actor access.Actor, why, field string) *api.Error {
	return api.Errorf(api.CodeForbidden, "%s; this token's sessions are confined by %s", why, actor.Sandbox).
		With("field", field).With("sandbox", actor.Sandbox).
		WithHint("leave isolation out to get %s, or narrow it; `trl token create` makes tokens that may do more", actor.Sandbox)
}

// AsForbidden returns the error of session.create, nil for nil, for a caller whose sessions are
// confined: members of isolation that would widen its profile are not invalid, but
// forbidden.
func AsForbidden(ctx context.Context, err error) error {
	actor, _ := access.From(ctx)
	if err == nil || actor.Sandbox == "" {
		return err
	}
	e := api.AsError(err)
	if e.Code != api.CodeInvalidParams || e.Details["profile"] == nil {
		return err
	}
	field, _ := e.Details["field"].(string)
	return forbidden(actor, e.Message, field)
}
