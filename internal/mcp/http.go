package mcp

import (
	"context"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

type serverKey struct{}

// Handler serves MCP over Streamable HTTP, without state: each request gets its own
// server, with the Config that configure returns for it. The caller must have
// authorized the request.
func Handler(maxBodyBytes int64, configure func(*http.Request) Config) http.Handler {
	handler := sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		s, _ := r.Context().Value(serverKey{}).(*sdk.Server)
		return s
	}, &sdk.StreamableHTTPOptions{
		// A request that ends early does not stop its command: it is unknown
		// whether its client has cancelled it or was disconnected.
		Stateless: true, MaxRequestBodyBytes: maxBodyBytes,
		// The daemon's HTTP server has checked the host already, and knows more names.
		DisableLocalhostProtection: true,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := New(configure(r))
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), serverKey{}, s)))
	})
}
