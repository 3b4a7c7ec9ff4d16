package cli

import (
	"context"
	"io"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// feedBytes is how much input goes into one call: few calls for a file, and no
// more than a moment's worth held by both sides.
const inputChunkBytes = 256 << 10

// feed passes input on to a command until either ends. Nobody waits for it: a
// command that has ended, or never reads, does not need the rest.
func feedInput(ctx context.Context, c *client.Client, exec string, from io.Reader) {
	buf := make([]byte, inputChunkBytes)
	for {
		n, err := from.Read(buf)
		params := api.ExecInputParams{ExecID: exec, EOF: err != nil}
		params.Data, params.Encoding = api.EncodeBytes(buf[:n])
		// An error is the command's: it takes no more input. How it ended is
		// told by its result.
		if _, failure := c.Input(ctx, params); failure != nil || err != nil {
			return
		}
	}
}
