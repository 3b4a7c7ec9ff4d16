package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// tasks starts the daemon's goroutines and tracks them by name. After wait it starts
// no more, so that none is left running. It is safe for concurrent use.
type tasks struct {
	mu     sync.Mutex // guards the fields below
	closed bool
	names  map[string]int
	wg     sync.WaitGroup // grows under mu while not closed
}

// start runs fn in a new goroutine. After wait it returns false instead.
func (t *tasks) start(name string, fn func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.names == nil {
		t.names = map[string]int{}
	}
	t.names[name]++
	t.wg.Go(func() {
		defer t.end(name)
		fn()
	})
	return true
}

func (t *tasks) end(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names[name]--; t.names[name] == 0 {
		delete(t.names, name)
	}
}

// running returns the names of the tasks that have not ended.
func (t *tasks) running() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.names))
}

// wait lets no more tasks start and returns when all have ended. If ctx is done
// first, the error names those that still run.
func (t *tasks) wait(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	done := make(chan struct{})
	go func() {
		t.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("still running: %s", strings.Join(t.running(), ", "))
	}
}
