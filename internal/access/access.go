// Package access says who makes a request and what that one may do: the actor
// in the context of every request, the scopes, the tokens of those who come in
// over HTTP, and how much of the daemon one token may use.
//
// It decides nothing about single methods: the method table compares scopes
// and tags, the carriers ask for a token and for room.
package access

import (
	"context"
	"slices"
)

// Scope is how much a caller may do.
type Scope string

// The scopes, each containing the one before it.
const (
	ScopeRead  Scope = "read"  // look, change nothing
	ScopeRun   Scope = "run"   // make sessions and run commands in them
	ScopeAdmin Scope = "admin" // change the daemon itself
)

var scopes = []Scope{ScopeRead, ScopeRun, ScopeAdmin}

// Scopes lists them, the smallest first.
func Scopes() []Scope { return slices.Clone(scopes) }

// Valid reports whether it is one of the scopes.
func (s Scope) Valid() bool { return slices.Contains(scopes, s) }

// Covers reports whether who has s may do what needs the other. What is no
// scope covers nothing and is covered by nothing.
func (s Scope) Covers(need Scope) bool {
	return s.Valid() && need.Valid() && slices.Index(scopes, s) >= slices.Index(scopes, need)
}

// Actor is who makes a request, as far as its carrier knows.
type Actor struct {
	UID       int    // -1: not known
	PID       int    // 0: not known
	Transport string // "unix", "stdio", "http" or "websocket"
	TokenID   string // "": it came without one, over a carrier that needs none
	TokenName string // for people; "": the token has none
	Scope     Scope  // "": none, so nothing is allowed
	Tag       string // not "": it sees and touches sessions with this tag alone
}

type actorKey struct{}

// With returns a context whose requests are made by a.
func With(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// From returns who makes the request that ctx belongs to. A request without
// an actor is to be refused.
func From(ctx context.Context) (Actor, bool) {
	a, ok := ctx.Value(actorKey{}).(Actor)
	return a, ok
}
