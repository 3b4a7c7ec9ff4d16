package front

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/service"
)

// handlerFunc is a transport.Handler.
type handlerFunc func(ctx context.Context, method string, params json.RawMessage) (any, error)

func (f handlerFunc) Call(ctx context.Context, method string, params json.RawMessage) (any, error) {
	return f(ctx, method, params)
}

// A caller gets the same result from a handler of this process, which answers with
// values, and from one that passes on the answers of another.
func TestHandlerCallerResults(t *testing.T) {
	for name, answer := range map[string]any{
		"value":  &api.PingResult{Version: "test"},
		"raw":    json.RawMessage(`{"version":"test","later":1}`),
		"stream": &service.OpenedStream{Result: &api.PingResult{Version: "test"}},
		"passed": &service.OpenedStream{Result: json.RawMessage(`{"version":"test"}`)},
	} {
		var actor access.Actor
		var got string
		c := handlerCaller{handlerFunc(func(ctx context.Context, _ string, params json.RawMessage) (any, error) {
			actor, _ = access.From(ctx)
			got = string(params)
			return answer, nil
		}), access.Actor{TokenID: "t-1"}}
		var result api.PingResult
		if err := c.Call(t.Context(), api.MethodSystemPing, map[string]int{"a": 1}, &result); err != nil || result.Version != "test" {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
		if actor.TokenID != "t-1" || got != `{"a":1}` {
			t.Errorf("%s: called by %+v with %s", name, actor, got)
		}
		if err := c.Call(t.Context(), api.MethodSystemPing, nil, nil); err != nil || got != "" {
			t.Errorf("%s: without params and result: %q, %v", name, got, err)
		}
	}
	refused := handlerCaller{handlerFunc(func(context.Context, string, json.RawMessage) (any, error) {
		return nil, api.Errorf(api.CodeForbidden, "no")
	}), access.Actor{}}
	if err := refused.Call(t.Context(), api.MethodSystemPing, nil, &api.PingResult{}); !api.IsCode(err, api.CodeForbidden) {
		t.Errorf("refused: %v", err)
	}
}

// streams answers with a stream of these notifications.
func streams(notifications ...notify.Notification) handlerCaller {
	return handlerCaller{handlerFunc(func(context.Context, string, json.RawMessage) (any, error) {
		return &service.OpenedStream{Feed: func(_ context.Context, send func(notify.Notification) error) error {
			for _, n := range notifications {
				if err := send(n); err != nil {
					return err
				}
			}
			return nil
		}}, nil
	}), access.Actor{}}
}

func TestHandlerCallerStreams(t *testing.T) {
	c := streams(
		&notify.RawChunk{Chunk: api.Chunk{Type: api.ChunkStdout}, Raw: []byte("one")},
		&api.Chunk{Type: api.ChunkStdout, Data: "/w==", Encoding: api.Base64},
		&notify.Passed{Name: api.NotifyExecChunk, JSON: []byte(`{"stream_id":"st-1","type":"stdout","offset":4,"data":"two","next":7}`)},
		&api.Chunk{Type: api.ChunkExit},
	)
	var got []string
	add := func(c *api.Chunk, data []byte) bool {
		got = append(got, string(c.Type)+" "+string(data))
		return len(got) < 4
	}
	if err := c.Attach(t.Context(), api.ExecAttachParams{}, add); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"stdout one", "stdout \xff", "stdout two", "exit "}, got); diff != "" {
		t.Error(diff)
	}
	broken := streams(&api.Chunk{Data: "?", Encoding: api.Base64})
	if err := broken.Attach(t.Context(), api.ExecAttachParams{}, add); err == nil {
		t.Error("a chunk that cannot be decoded was accepted")
	}
	forgotten := streams(&api.Chunk{Type: api.ChunkError, Error: api.Errorf(api.CodeExecNotFound, "forgotten")}, &api.Chunk{Type: api.ChunkError})
	if err := forgotten.Attach(t.Context(), api.ExecAttachParams{}, add); !api.IsCode(err, api.CodeExecNotFound) {
		t.Error(err)
	}
	passed := streams(&notify.Passed{JSON: []byte(`{"type":"error","offset":0,"next":0,"error":{"code":-32006,"message":"forgotten"}}`)})
	if err := passed.Attach(t.Context(), api.ExecAttachParams{}, add); !api.IsCode(err, api.CodeExecNotFound) {
		t.Error(err)
	}
	events := streams(&api.SessionEvent{SessionID: "s-1"}, &notify.Passed{JSON: []byte(`{"session_id":"s-2"}`)}, &api.SessionEvent{SessionID: "s-3"})
	var seen []string
	if err := events.Watch(t.Context(), api.SessionWatchParams{}, func(e *api.SessionEvent) bool {
		seen = append(seen, e.SessionID)
		return len(seen) < 2
	}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"s-1", "s-2"}, seen); diff != "" {
		t.Error(diff)
	}
}
