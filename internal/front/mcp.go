package front

import (
	"net/http"

	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/mcp"
)

// webScope is the scope of the sessions of HTTP requests that do not name one.
const webScope = "http"

// mcpHandler serves the MCP tools over HTTP. It offers no secrets: every client
// could use those of the daemon.
func (f *Front) mcpHandler() http.Handler {
	return mcp.Handler(f.cfg.MaxRequestBytes, func(r *http.Request) mcp.Config {
		actor, _ := access.From(r.Context()) // without an actor every call is refused
		cfg := mcp.Config{
			Caller: handlerCaller{f.cfg.Handler, actor}, Version: f.cfg.Version, Log: f.log,
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
