package session

import (
	"context"
	"os"
	"time"
)

// turn lets one caller after the other give a command something to read.
type turn chan struct{} // holds one: whose turn it is, takes it

func newTurn() turn {
	t := make(turn, 1)
	t.give()
	return t
}

// take waits for the caller's turn. It ends with give.
func (t turn) take(ctx context.Context) error {
	select {
	case <-t:
		return nil
	case <-ctx.Done():
		return errLeft(ctx)
	}
}

func (t turn) give() { t <- struct{}{} }

// settle returns when what was under way when a fence was done has ended.
func (t turn) settle() {
	<-t
	t.give()
}

// typeTo writes to a terminal until all is taken, the caller stops waiting, or the
// fence is done: somebody else types from then on. It is the caller's turn.
func typeTo(ctx, fence context.Context, to *os.File, data []byte) (int, error) {
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
