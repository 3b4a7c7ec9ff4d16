package cli

import (
	"context"
	"errors"
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
	// An error means that the command takes no more input; its result says how
	// it ended.
	_ = copyInput(from, func(b []byte, last bool) error {
		params := api.ExecInputParams{ExecID: exec, EOF: last}
		params.Data, params.Encoding = api.EncodeBytes(b)
		_, err := c.Input(ctx, params)
		return err
	})
}

// copyInput calls send with each piece as soon as it was read, and sets last in
// the call after which there is no more.
func copyInput(from io.Reader, send func(b []byte, last bool) error) error {
	buf := make([]byte, inputChunkBytes)
	for {
		n, err := from.Read(buf)
		if failure := send(buf[:n], err != nil); failure != nil {
			return failure
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
