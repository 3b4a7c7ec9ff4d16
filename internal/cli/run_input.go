package cli

import (
	"context"
	"io"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// inputChunkBytes is how much input goes into one call: few calls for a file,
// and little memory on both sides.
const inputChunkBytes = 256 << 10

// feedInput passes input to a command until either ends. Nothing waits for it:
// a command that has ended, or never reads, does not need the rest.
func feedInput(ctx context.Context, c *client.Client, exec string, from io.Reader) {
	buf := make([]byte, inputChunkBytes)
	for {
		n, err := from.Read(buf)
		params := api.ExecInputParams{ExecID: exec, EOF: err != nil}
		params.Data, params.Encoding = api.EncodeBytes(buf[:n])
		// An error means that the command takes no more input; its result says
		// how it ended.
		if _, failure := c.Input(ctx, params); failure != nil || err != nil {
			return
		}
	}
}
