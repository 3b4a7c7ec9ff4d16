package session

import (
	"context"
	"slices"
	"sync"

	"github.com/terminal-runtime/trl/api"
)

// turn lets one after the other do something, in the order in which they came. Its
// zero value is nobody's.
type turn struct {
	mu    sync.Mutex
	taken bool
	line  []place // of those who wait
}

// place is one in the line. It is closed when its turn has come.
type place chan struct{}

// first is the place of who need not wait.
var firstPlace = func() place {
	p := make(place)
	close(p)
	return p
}()

// join takes a place in the line. The caller awaits its turn, and gives it back.
func (t *turn) join() place {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		t.taken = true
		return firstPlace
	}
	p := make(place)
	t.line = append(t.line, p)
	return p
}

// await waits for the turn of a place. One that is left by ctx has no turn.
func (t *turn) await(ctx context.Context, p place) error {
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
		t.next() // it came at the same moment
	}
	return errCallerLeft(ctx)
}

// give lets the next in the line have its turn.
func (t *turn) next() {
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

// settle returns when what was under way when it was called has ended.
func (t *turn) awaitCurrent() {
	p := t.join()
	<-p
	t.next()
}

// errLeft is for a caller that does not wait any more.
func errCallerLeft(ctx context.Context) error {
	return api.Errorf(api.CodeInternal, "the caller stopped waiting: %w", ctx.Err())
}
