// Package access defines who makes a request and what they may do: the actor in the
// context of every request, the scopes, the tokens of HTTP clients, and the rate and
// concurrency limits of a token.
//
// It decides nothing about single methods: the method table compares scopes and
// tags, and the transports check tokens and limits.
package access

import (
	"context"
	"slices"
)

// Scope is what a caller may do.
type Scope string

// The scopes. Each includes the one before it.
const (
	ScopeRead  Scope = "read"  // read only
	ScopeRun   Scope = "run"   // create sessions and run commands in them
	ScopeAdmin Scope = "admin" // change the daemon itself
)

var scopes = []Scope{ScopeRead, ScopeRun, ScopeAdmin}

// Scopes returns the scopes, the smallest first.
func Scopes() []Scope { return slices.Clone(scopes) }

// Valid reports whether s is one of the scopes.
func (s Scope) Valid() bool { return slices.Contains(scopes, s) }

// Covers reports whether a caller with scope s may do what requires scope need. An
// invalid scope covers nothing and is covered by nothing.
func (s Scope) Covers(need Scope) bool {
	return s.Valid() && need.Valid() && slices.Index(scopes, s) >= slices.Index(scopes, need)
}

// Actor is who makes a request, as far as the transport knows.
type Actor struct {
	UID       int    // -1: unknown
	PID       int    // 0: unknown
	Transport string // "unix", "stdio", "http", "websocket", or "delegated": see system.delegate
	TokenID   string // "": no token, over a transport that needs none
	TokenName string // for people; "": the token has none
	User      string // the name of the caller's user on the machine that acts for it; "": UID is the caller's
	Scope     Scope  // "": nothing is allowed
	Tag       string // unless "", limits the actor to sessions with this tag
	Sandbox   string // unless "", the profile that confines every session that the actor creates
}

type actorKey struct{}

// With returns a context for requests made by a.
func With(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// From returns the actor of the request that ctx belongs to. A request without an
// actor must be refused.
func From(ctx context.Context) (Actor, bool) {
	a, ok := ctx.Value(actorKey{}).(Actor)
	return a, ok
}
