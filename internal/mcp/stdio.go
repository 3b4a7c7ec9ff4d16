package mcp

import (
	"context"
	"errors"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// stdioLine is the longest request that is read on stdio: as long as one to the
// daemon may be.
const stdioLine = 8 << 20

// ServeStdio serves the client at standard input and output until it hangs up, or
// until ctx is done.
func ServeStdio(ctx context.Context, cfg Config) error {
	err := New(cfg).Run(ctx, &sdk.StdioTransport{MaxLineLength: stdioLine})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
