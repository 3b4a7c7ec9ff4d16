package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/caller"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/transport"
)

var _ caller.Caller = handlerCaller{}

// handlerCaller calls the methods of a handler of this process on behalf of one
// actor.
type handlerCaller struct {
	handler transport.Handler
	actor   access.Actor
}

// Call calls a method on behalf of the actor.
func (h handlerCaller) Call(ctx context.Context, method string, params, result any) error {
	got, err := h.call(ctx, method, params)
	if err != nil || result == nil {
		return err
	}
	if opened, ok := got.(*service.OpenedStream); ok { // its feed is not started, and so holds nothing
		got = opened.Result
	}
	if answer, ok := got.(json.RawMessage); ok {
		return json.Unmarshal(answer, result)
	}
	reflect.ValueOf(result).Elem().Set(reflect.ValueOf(got).Elem())
	return nil
}

func (h handlerCaller) call(ctx context.Context, method string, params any) (any, error) {
	var raw json.RawMessage
	if params != nil {
		var err error
		if raw, err = json.Marshal(params); err != nil {
			return nil, err
		}
	}
	return h.handler.Call(access.With(ctx, h.actor), method, raw)
}

// Attach calls fn with each chunk of an exec's output until fn returns false.
func (h handlerCaller) Attach(ctx context.Context, params api.ExecAttachParams, fn func(*api.Chunk, []byte) bool) error {
	return h.follow(ctx, api.MethodExecAttach, params, func(n notify.Notification) (bool, error) {
		switch c := n.(type) {
		case *notify.RawChunk:
			return fn(&c.Chunk, c.Raw), nil
		case *api.Chunk:
			return pass(c, fn)
		case *notify.Passed:
			var chunk api.Chunk
			if err := chunk.ParseJSON(c.JSON); err != nil {
				return false, err
			}
			return pass(&chunk, fn)
		}
		return true, nil
	})
}

// pass calls fn with a chunk and its content, or returns the error that it is.
func pass(c *api.Chunk, fn func(*api.Chunk, []byte) bool) (more bool, err error) {
	if err := c.Err(); err != nil {
		return false, err
	}
	data, err := c.Content()
	return err == nil && fn(c, data), err
}

// Watch calls fn with each event until fn returns false.
func (h handlerCaller) Watch(ctx context.Context, params api.SessionWatchParams, fn func(*api.SessionEvent) bool) error {
	return h.follow(ctx, api.MethodSessionWatch, params, func(n notify.Notification) (bool, error) {
		switch event := n.(type) {
		case *api.SessionEvent:
			return fn(event), nil
		case *notify.Passed:
			var decoded api.SessionEvent
			err := json.Unmarshal(event.JSON, &decoded)
			return err == nil && fn(&decoded), err
		}
		return true, nil
	})
}

// errEnough ends a feed when its reader wants no more of it.
var errEnough = errors.New("enough")

// follow opens a stream and calls fn with its notifications until fn returns
// false or an error.
func (h handlerCaller) follow(ctx context.Context, method string, params any, fn func(notify.Notification) (more bool, err error)) error {
	got, err := h.call(ctx, method, params)
	if err != nil {
		return err
	}
	opened, ok := got.(*service.OpenedStream)
	if !ok {
		return fmt.Errorf("%s opened no stream", method)
	}
	err = opened.Feed(ctx, func(n notify.Notification) error {
		more, err := fn(n)
		if err == nil && !more {
			return errEnough
		}
		return err
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
