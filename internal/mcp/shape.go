package mcp

import (
	"context"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Structured says who gets structured content beside the text.
type Structured string

// Who gets it.
const (
	// StructuredAuto: every client but those that are known to show their model
	// the structured content instead of the text, which reads better.
	StructuredAuto   Structured = "auto"
	StructuredAlways Structured = "always"
	StructuredNever  Structured = "never"
)

// textHiders are the names of clients that put only the structured content of a
// result before the model, as JSON in one line.
var textHiders = []string{"claude-code", "codex-mcp-client"}

// shape takes the structured content out of what is sent to a client that would
// show nothing else.
func (s *server) shape(next sdk.MethodHandler) sdk.MethodHandler {
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
	return client != nil && slices.Contains(textHiders, client.Name)
}
