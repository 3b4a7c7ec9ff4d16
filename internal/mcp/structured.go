package mcp

import (
	"context"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Structured selects the clients that get structured content in addition to the
// text.
type Structured string

const (
	// StructuredAuto sends it to all clients except those that are known to show
	// their model the structured content instead of the text, which reads better.
	StructuredAuto Structured = "auto"
	// StructuredAlways sends it to all clients.
	StructuredAlways Structured = "always"
	// StructuredNever sends it to none.
	StructuredNever Structured = "never"
)

// structuredOnlyClients are the names of clients that show the model only the
// structured content of a result, as JSON on one line.
var structuredOnlyClients = []string{"claude-code", "codex-mcp-client"}

// stripStructured removes structured content, and its schemas, from messages to
// clients that get only the text.
func (s *server) stripStructured(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		result, err := next(ctx, method, request)
		if err != nil {
			return result, err
		}
		switch r := result.(type) {
		case *sdk.ListToolsResult:
			if s.textOnly(request) {
				plain := make([]*sdk.Tool, len(r.Tools))
				for i, t := range r.Tools {
					bare := *t
					bare.OutputSchema = nil
					plain[i] = &bare
				}
				r.Tools = plain
			}
		case *sdk.CallToolResult:
			if s.textOnly(request) {
				r.StructuredContent = nil
			}
		}
		return result, nil
	}
}

func (s *server) textOnly(request sdk.Request) bool {
	switch s.Structured {
	case StructuredAlways:
		return false
	case StructuredNever:
		return true
	}
	known, ok := request.(interface{ ClientInfo() *sdk.Implementation })
	if !ok {
		return false
	}
	client := known.ClientInfo()
	return client != nil && slices.Contains(structuredOnlyClients, client.Name)
}
