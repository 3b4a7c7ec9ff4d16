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

// The resources, for people who add them to a model's context themselves.
const (
	sessionsURI = "trl://sessions"
	outputURI   = "trl://execs/{exec}/output"
	outputHead  = "trl://execs/"
	outputTail  = "/output"
	// resourceBytes is how much of an output a resource contains: its end, in a
	// size that clients accept.
	resourceBytes = 256 << 10
)

func (s *server) addResources(to *sdk.Server) {
	to.AddResource(&sdk.Resource{
		URI: sessionsURI, Name: "sessions", Title: "Sessions", MIMEType: "application/json",
		Description: "The sessions of this scope, what is running in them and what ran",
	}, func(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		list, err := s.sessions(ctx, &call{room: budgetTextOnly}, sessionsArguments{})
		if err != nil {
			return nil, err
		}
		text, err := json.MarshalIndent(list, "", "  ")
		return s.contents(r.Params.URI, "application/json", string(printable.JSON(s.redactJSON(text)))), err
	})
	to.AddResourceTemplate(&sdk.ResourceTemplate{
		URITemplate: outputURI, Name: "output", Title: "Output of a command", MIMEType: "text/plain",
		Description: "The output of a command as text; only its end if it is long",
	}, func(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		exec, ok := strings.CutPrefix(r.Params.URI, outputHead)
		exec, is := strings.CutSuffix(exec, outputTail)
		if !ok || !is {
			return nil, sdk.ResourceNotFoundError(r.Params.URI)
		}
		e, err := s.execInfo(ctx, exec)
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
			text = fmt.Sprintf("[trl: %s before this are left out]\n", formatBytes(got.From)) + text
		}
		return s.contents(r.Params.URI, "text/plain", text), nil
	})
}

func (s *server) contents(uri, kind, text string) *sdk.ReadResourceResult {
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: kind, Text: s.redact(text)}}}
}
