package mcp

import (
	"context"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

type serverKey struct{}

// Handler serves MCP over Streamable HTTP, without state: each request has a
// server of its own, made of what configure says of it. Who may come in has been
// decided before.
func Handler(maxBodyBytes int64, configure func(*http.Request) Config) http.Handler {
	handler := sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		s, _ := r.Context().Value(serverKey{}).(*sdk.Server)
		return s
	}, &sdk.StreamableHTTPOptions{
		// A request that is lost does not take its command with it: whether its
		// client has cancelled it or was cut off can't be told.
		Stateless: true, MaxRequestBodyBytes: maxBodyBytes,
		// The door before it has looked at the host already, and knows more names.
		DisableLocalhostProtection: true,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := New(configure(r))
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), serverKey{}, s)))
	})
}
