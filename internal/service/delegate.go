package service

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/service/rawjson"
)

// This file is about connections over which a program, such as the router of
// another daemon, makes requests for its own callers.

// Delegation gives a request access to the connection that it was read from.
type Delegation interface {
	// Delegate makes every later request of the connection need an actor. It
	// returns how many connections of callers these may name at once.
	Delegate() (maxConnections int)
	// Disconnect ends the connection of a caller. It returns false if there is
	// none with this name. ok is false if the connection has not delegated.
	Disconnect(name string) (ended, ok bool)
}

type delegationKey struct{}

// WithDelegation sets the connection that a request with this context can make
// act for others.
func WithDelegation(ctx context.Context, d Delegation) context.Context {
	return context.WithValue(ctx, delegationKey{}, d)
}

// delegate is allowed only over the Unix socket and stdio, whose callers are the
// daemon's user and root: they may do everything already, so that acting for
// others only takes rights away. A request that is itself made for another caller
// comes over neither.
func delegate(ctx context.Context, _ api.None) (*api.DelegateResult, error) {
	d, ok := ctx.Value(delegationKey{}).(Delegation)
	if actor, _ := access.From(ctx); !ok || actor.Transport != "unix" && actor.Transport != "stdio" {
		return nil, api.Errorf(api.CodeForbidden, "%s is only available over the daemon's Unix socket and stdio", api.MethodSystemDelegate).
			WithHint("leave the call out: over this connection every request is made for the caller itself")
	}
	return &api.DelegateResult{MaxConnections: d.Delegate()}, nil
}

func disconnect(ctx context.Context, p api.DisconnectParams) (*api.DisconnectResult, error) {
	if p.Connection == "" || len(p.Connection) > access.MaxLabel {
		return nil, api.Errorf(api.CodeInvalidParams, "connection must have 1 to %d bytes", access.MaxLabel).With("field", "connection").
			WithHint("send the name that requests of the caller had in their actor")
	}
	if d, ok := ctx.Value(delegationKey{}).(Delegation); ok {
		if ended, ok := d.Disconnect(p.Connection); ok {
			return &api.DisconnectResult{Connection: p.Connection, Disconnected: ended}, nil
		}
	}
	return nil, api.Errorf(api.CodeInvalidRequest, "this connection does not act for others: no caller's connection can end").
		WithHint("close the connection itself, or call %s first", api.MethodSystemDelegate)
}

var actorDecoder = newDecoder("actor", reflect.TypeFor[api.Actor]())

const actorHint = `send a member next to method and params, such as "actor":{"scope":"run","user":"alice","connection":"c-1"}`

// ActingFor returns the actor of a request that the connection's own actor makes
// for another caller, and the name of that caller's connection, or "". raw is the
// member actor of the request. The new actor has no more rights than own, and
// none that depend on the transport.
func ActingFor(own access.Actor, raw json.RawMessage) (actor access.Actor, connection string, refusal *api.Error) {
	var a api.Actor
	if s := rawjson.Scan(raw); s.Kind() != rawjson.Object {
		return access.Actor{}, "", api.Errorf(api.CodeInvalidRequest, "actor must be an object").With("field", "actor").WithHint(actorHint)
	}
	if err := actorDecoder.into(reflect.ValueOf(&a).Elem(), raw); err != nil {
		refusal = api.AsError(err)
		refusal.Code = api.CodeInvalidRequest
		return access.Actor{}, "", refusal.WithHint(actorHint)
	}
	if refusal := checkActor(&a, own.Scope); refusal != nil {
		return access.Actor{}, "", refusal
	}
	return access.Actor{
		UID: own.UID, PID: own.PID, Transport: "delegated",
		TokenID: a.Token, TokenName: a.Name, User: a.User, Scope: access.Scope(a.Scope), Tag: a.Tag,
	}, a.Connection, nil
}

// checkActor returns an error if a field is invalid, or if the scope exceeds
// limit. The names of a token and of a user need not be printable: they are
// escaped where they are shown.
func checkActor(a *api.Actor, limit access.Scope) *api.Error {
	invalid := func(field, format string, args ...any) *api.Error {
		return api.Errorf(api.CodeInvalidRequest, "actor: %q "+format, append([]any{field}, args...)...).With("field", field).WithHint(actorHint)
	}
	if !access.Scope(a.Scope).Valid() {
		return invalid("scope", "must be read, run or admin")
	}
	for _, f := range []struct {
		name, text string
		shown      bool
	}{{"tag", a.Tag, true}, {"token", a.Token, true}, {"name", a.Name, false}, {"user", a.User, false}, {"connection", a.Connection, true}} {
		switch {
		case len(f.text) > access.MaxLabel:
			return invalid(f.name, "must have at most %d bytes", access.MaxLabel)
		case f.shown && !printable.Line(f.text):
			return invalid(f.name, "must have no control or invisible characters")
		}
	}
	if !limit.Covers(access.Scope(a.Scope)) {
		return api.Errorf(api.CodeForbidden, "actor: the scope %s exceeds that of the connection, %s", a.Scope, limit).
			With("field", "scope").With("scope", limit).WithHint("name a caller whose scope is at most %s", limit)
	}
	return nil
}

// MissingActor is the error of a request without an actor over a connection that
// acts for others.
func MissingActor() *api.Error {
	return api.Errorf(api.CodeUnauthorized, "this connection acts for others, and the request does not name a caller").WithHint(actorHint)
}

// UnexpectedActor is the error of a request with an actor over a connection that
// does not act for others. To ignore the actor would give the caller the rights
// of the connection.
func UnexpectedActor() *api.Error {
	return api.Errorf(api.CodeInvalidRequest, "the request names an actor, and this connection does not act for others").
		WithHint("call %s first, over the daemon's Unix socket or stdio, or leave actor out", api.MethodSystemDelegate)
}
