// Package arrival lets the requests of one connection take their places in the order
// in which they were read, and be served side by side all the same: a carrier reads
// the next request when the last has its place.
package arrival

import "context"

type key struct{}

// request is one of a connection.
type request struct {
	connection context.Context //nolint:containedctx // it is what is asked for
	queued     func()
}

// With returns a context for a request of a connection, whose context is ctx. settled
// is called once the request has its place; it may be called more than once, and by
// whoever serves the request.
func With(ctx context.Context, settled func()) context.Context {
	return context.WithValue(ctx, key{}, request{ctx, settled})
}

// Settled says that the request has its place, or needs none.
func MarkQueued(ctx context.Context) {
	if r, ok := ctx.Value(key{}).(request); ok {
		r.queued()
	}
}

// Connection returns the context of the connection that a request came over, which is
// done when that has ended. A request that has none of its own, as over plain HTTP, is
// not ok.
func Connection(ctx context.Context) (connection context.Context, ok bool) {
	r, ok := ctx.Value(key{}).(request)
	return r.connection, ok
}
