package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/mcp"
	"github.com/terminal-runtime/trl/internal/service"
)

// webScope is the scope of the sessions of HTTP requests that do not name one.
const webScope = "http"

// mcpHandler serves the MCP tools over HTTP. It offers no secrets: every client
// could use those of the daemon.
func (d *daemon) mcpHandler() http.Handler {
	return mcp.Handler(d.cfg.MaxRequestBytes, func(r *http.Request) mcp.Config {
		actor, _ := access.From(r.Context()) // without an actor the table refuses every call
		cfg := mcp.Config{
			Runtime: &tableRuntime{table: d.table, actor: actor}, Version: d.opts.Version, Log: d.log,
			Scope: r.URL.Query().Get("scope"), Structured: mcp.Structured(r.URL.Query().Get("structured")),
		}
		if actor.Tag != "" {
			cfg.Tags = []string{actor.Tag}
		}
		if cfg.Scope == "" {
			cfg.Scope = webScope
		}
		return cfg
	})
}

// tableRuntime calls methods of the table on behalf of one actor.
type tableRuntime struct {
	table *service.Table
	actor access.Actor
}

// Call calls a method on behalf of the actor.
func (t *tableRuntime) Call(ctx context.Context, method string, params, result any) error {
	got, err := t.call(ctx, method, params)
	if err != nil {
		return err
	}
	reflect.ValueOf(result).Elem().Set(reflect.ValueOf(got).Elem())
	return nil
}

func (t *tableRuntime) call(ctx context.Context, method string, params any) (any, error) {
	var raw json.RawMessage
	if params != nil {
		var err error
		if raw, err = json.Marshal(params); err != nil {
			return nil, err
		}
	}
	return t.table.Call(access.With(ctx, t.actor), method, raw)
}

// errEnough ends a feed when its reader wants no more chunks.
var errEnough = errors.New("enough")

// Attach calls fn with each chunk of an exec's output until fn returns false.
func (t *tableRuntime) Attach(ctx context.Context, params api.ExecAttachParams, fn func(*api.Chunk, []byte) bool) error {
	got, err := t.call(ctx, api.MethodExecAttach, params)
	if err != nil {
		return err
	}
	err = got.(*service.OpenedStream).Feed(ctx, func(n api.Notification) error {
		on := true
		switch c := n.(type) {
		case *api.RawChunk:
			on = fn(&c.Chunk, c.Raw)
		case *api.Chunk:
			on = fn(c, nil)
		}
		if !on {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
