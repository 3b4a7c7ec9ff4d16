package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// tasks is the door through which the daemon's own goroutines start. It knows
// each by name, and lets none in once it is closed, so that after wait nothing
// of them is left.
type tasks struct {
	mu     sync.Mutex // guards what follows
	closed bool
	names  map[string]int
	wg     sync.WaitGroup // grows under mu while not closed
}

// start runs fn in a goroutine of its own, or returns false after wait.
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

// running are the names of those that have not ended.
func (t *tasks) running() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.names))
}

// wait closes the door and returns when all have ended, or, with the names of
// those that have not, when ctx is done.
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
