// Package arrival lets the requests of one connection take their places in the order
// in which they were read, and be served side by side all the same: a carrier reads
// the next request when the last has its place.
package arrival

import "context"

type key struct{}

// With returns a context for a request. settled is called once the request has its
// place; it may be called more than once, and by whoever serves the request.
func With(ctx context.Context, settled func()) context.Context {
	return context.WithValue(ctx, key{}, settled)
}

// Settled says that the request has its place, or needs none.
func Settled(ctx context.Context) {
	if settled, ok := ctx.Value(key{}).(func()); ok {
		settled()
	}
}
