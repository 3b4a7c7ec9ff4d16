package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

// The resources, for people who put them before a model by hand.
const (
	sessionsURI = "trl://sessions"
	outputURI   = "trl://execs/{exec}/output"
	outputHead  = "trl://execs/"
	outputTail  = "/output"
	// resourceBytes is how much of an output a resource has: its end, in a size
	// that clients take.
	resourceBytes = 256 << 10
)

func (s *server) addResources(to *sdk.Server) {
	to.AddResource(&sdk.Resource{
		URI: sessionsURI, Name: "sessions", Title: "Sessions", MIMEType: "application/json",
		Description: "The sessions of this scope, what runs in them and what ran",
	}, func(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		list, err := s.sessions(ctx, &call{room: forText}, sessionsArguments{})
		if err != nil {
			return nil, err
		}
		text, err := json.MarshalIndent(list, "", "  ")
		return s.contents(r.Params.URI, "application/json", string(printable.JSON(s.redactJSON(text)))), err
	})
	to.AddResourceTemplate(&sdk.ResourceTemplate{
		URITemplate: outputURI, Name: "output", Title: "Output of a command", MIMEType: "text/plain",
		Description: "What a command wrote, as text; the end of it, if it is long",
	}, func(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		exec, ok := strings.CutPrefix(r.Params.URI, outputHead)
		exec, is := strings.CutSuffix(exec, outputTail)
		if !ok || !is {
			return nil, sdk.ResourceNotFoundError(r.Params.URI)
		}
		e, err := s.look(ctx, exec)
		if api.IsCode(err, api.CodeExecNotFound) {
			return nil, sdk.ResourceNotFoundError(r.Params.URI)
		}
		if err != nil {
			return nil, err
		}
		size := e.StdoutBytes + e.StderrBytes
		got, err := s.read(ctx, exec, "", span{max(size-resourceBytes, 0), size})
		if err != nil {
			return nil, err
		}
		text := plain(got.bytes())
		if got.From > 0 {
			text = fmt.Sprintf("[trl: %s before this are left out]\n", bytesOf(got.From)) + text
		}
		return s.contents(r.Params.URI, "text/plain", text), nil
	})
}

func (s *server) contents(uri, kind, text string) *sdk.ReadResourceResult {
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: kind, Text: s.redact(text)}}}
}
