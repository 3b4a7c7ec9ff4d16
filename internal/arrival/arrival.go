// Package arrival keeps the requests of one connection in order while they are
// served concurrently: a transport reads the next request only after the
// previous one has been queued.
package arrival

import "context"

type key struct{}

// request is what With stores in the context of a request.
type request struct {
	connection context.Context //nolint:containedctx // Connection returns it
	queued     func()
}

// With returns a context for a request that was read from a connection. ctx is
// the context of the connection. MarkQueued calls queued, possibly more than
// once and from another goroutine.
func With(ctx context.Context, queued func()) context.Context {
	return context.WithValue(ctx, key{}, request{ctx, queued})
}

// ForConnection returns a context for the request of ctx, made for a caller with
// a connection of its own: Connection returns that one. nil means that the caller
// has none.
func ForConnection(ctx, connection context.Context) context.Context {
	r, _ := ctx.Value(key{}).(request)
	r.connection = connection
	return context.WithValue(ctx, key{}, r)
}

// MarkQueued reports that the request of ctx has been queued, or does not need
// to be, so that the next request may be read.
func MarkQueued(ctx context.Context) {
	if r, _ := ctx.Value(key{}).(request); r.queued != nil {
		r.queued()
	}
}

// Connection returns the context of the connection that a request was read
// from. It is done when the connection has ended. ok is false for a request
// that has no connection of its own, as with plain HTTP.
func Connection(ctx context.Context) (connection context.Context, ok bool) {
	r, _ := ctx.Value(key{}).(request)
	return r.connection, r.connection != nil
}
