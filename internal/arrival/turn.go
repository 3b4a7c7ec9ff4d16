package arrival

import (
	"context"
	"slices"
	"sync"

	"github.com/terminal-runtime/trl/api"
)

// Turn lets callers do something one after the other, in the order in which they
// joined. Its zero value is ready to use.
type Turn struct {
	mu    sync.Mutex
	taken bool
	line  []Place // of callers that wait
}

// Place is a place in the line. It is closed when its turn has come.
type Place chan struct{}

// firstPlace is for a caller that need not wait.
var firstPlace = func() Place {
	p := make(Place)
	close(p)
	return p
}()

// Join takes a place in the line. The caller must await its turn, and then call
// Next.
func (t *Turn) Join() Place {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		t.taken = true
		return firstPlace
	}
	p := make(Place)
	t.line = append(t.line, p)
	return p
}

// Await waits for the turn of a place. On an error, when ctx is done, the place is
// released and Next must not be called.
func (t *Turn) Await(ctx context.Context, p Place) error {
	select {
	case <-p:
		return nil
	default:
	}
	select {
	case <-p:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.line, p)
	if i >= 0 {
		t.line = slices.Delete(t.line, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 {
		t.Next() // the turn came at the same moment
	}
	return ErrCallerLeft(ctx)
}

// Next passes the turn to the next in the line.
func (t *Turn) Next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.line) == 0 {
		t.taken = false
		return
	}
	next := t.line[0]
	t.line = slices.Delete(t.line, 0, 1)
	close(next)
}

// AwaitCurrent returns when everyone who had joined before the call is done.
func (t *Turn) AwaitCurrent() {
	p := t.Join()
	<-p
	t.Next()
}

// ErrCallerLeft is the error for a caller whose context is done.
func ErrCallerLeft(ctx context.Context) error {
	return api.Errorf(api.CodeInternal, "the caller stopped waiting: %w", ctx.Err())
}
