package service

import (
	"context"
	"encoding/json"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/arrival"
)

// This file is for a router, which serves some calls elsewhere.

// Ordered reports whether calls over one connection are processed in the order
// in which they arrive.
func (m *Method) Ordered() bool { return m.ordered }

// Forward serves one request of the actor in ctx by serve, in place of the
// method's handler; it also does so if nothing serves the method here. The call
// is allowed and counted as in Call. If the method is ordered, serve must call
// arrival.MarkQueued.
func (t *Table) Forward(ctx context.Context, name string, serve func(context.Context) (any, error)) (any, error) {
	began, m := time.Now(), t.byName[name]
	result, err := t.forward(ctx, m, name, serve)
	if t.observe != nil {
		t.count(m, name, err, began)
	}
	return result, err
}

func (t *Table) forward(ctx context.Context, m *Method, name string, serve func(context.Context) (any, error)) (result any, err error) {
	if m == nil {
		return nil, t.notFound(name)
	}
	actor, known := access.From(ctx)
	if refusal := allowed(actor, known, m); refusal != nil {
		return nil, refusal
	}
	defer func() {
		if v := recover(); v != nil {
			result, err = nil, t.panicked(ctx, m, v)
		}
	}()
	if !m.ordered {
		arrival.MarkQueued(ctx)
	}
	if result, err = serve(ctx); err != nil {
		return nil, api.AsError(err)
	}
	return result, nil
}

// Serve is Call without counting: for a part of a call that Forward counts.
func (t *Table) Serve(ctx context.Context, name string, params json.RawMessage) (any, error) {
	return t.serve(ctx, t.byName[name], name, params)
}

// ActorOf describes the caller of a request as system.delegate requires it,
// without its connection.
func (t *Table) ActorOf(ctx context.Context) api.Actor {
	actor, _ := access.From(ctx) // a request without one was refused
	told := api.Actor{Scope: string(actor.Scope), Tag: actor.Tag, Token: actor.TokenID, Name: actor.TokenName}
	switch {
	case actor.User != "":
		told.User = actor.User
	case actor.TokenID == "" && actor.TokenName == "":
		told.User = t.who.caller(ctx)
	}
	return told
}
