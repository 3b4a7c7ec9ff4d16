// Package caller is the way to a daemon for what sits above the contract, such as
// the tools for models: it calls methods and follows streams, and does not know
// whether the daemon is this process or another.
//
// Client calls a daemon in another process. Package front has the implementation
// that calls the daemon's own method table, so that this package does not depend
// on the daemon.
package caller

import (
	"context"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// Caller calls the methods of a daemon. It is safe for concurrent use.
type Caller interface {
	// Call calls a method and stores its result in result, a pointer to the
	// method's result type. params may be nil.
	Call(ctx context.Context, method string, params, result any) error
	// Attach calls fn with each chunk of an exec's output from an offset on, until
	// fn returns false or there is no more output. data is the chunk's output; fn
	// must not keep it.
	Attach(ctx context.Context, params api.ExecAttachParams, fn func(c *api.Chunk, data []byte) bool) error
	// Watch calls fn with each event of one session, or of all, from now on, until
	// fn returns false or the events end.
	Watch(ctx context.Context, params api.SessionWatchParams, fn func(*api.SessionEvent) bool) error
}

// Client returns a Caller that uses c. The caller of Client closes c.
func Client(c *client.Client) Caller { return clientCaller{c} }

type clientCaller struct{ client *client.Client }

func (c clientCaller) Call(ctx context.Context, method string, params, result any) error {
	return c.client.Call(ctx, method, params, result)
}

func (c clientCaller) Attach(ctx context.Context, params api.ExecAttachParams, fn func(*api.Chunk, []byte) bool) error {
	stream, err := c.client.Attach(ctx, params)
	if err != nil {
		return err
	}
	defer stream.Close()
	for chunk, err := range stream.Chunks() {
		if err != nil {
			return err
		}
		data, err := api.DecodeBytes(chunk.Data, chunk.Encoding)
		if err != nil {
			return err
		}
		if !fn(chunk, data) {
			return nil
		}
	}
	return nil
}

func (c clientCaller) Watch(ctx context.Context, params api.SessionWatchParams, fn func(*api.SessionEvent) bool) error {
	events, err := c.client.Watch(ctx, params)
	if err != nil {
		return err
	}
	defer events.Close()
	for event, err := range events.All() {
		if err != nil {
			return err
		}
		if !fn(event) {
			return nil
		}
	}
	return nil
}
