package session

import (
	"context"
	"os"
	"time"
)

// typeTo writes to a terminal until all is taken, the caller stops waiting, or the
// fence is done: somebody else types from then on. It is the caller's turn.
func writeTerminal(ctx, fence context.Context, to *os.File, data []byte) (int, error) {
	if err := fence.Err(); err != nil {
		return 0, err
	}
	// A context has no descriptor to poll; its end is a deadline in the past.
	interrupt := func() { _ = to.SetWriteDeadline(time.Unix(1, 0)) }
	stopped, fenced := context.AfterFunc(ctx, interrupt), context.AfterFunc(fence, interrupt)
	n, err := to.Write(data)
	if a, b := stopped(), fenced(); !a || !b {
		_ = to.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		return n, errNotTaken(err).With("bytes", n)
	}
	return n, nil
}
