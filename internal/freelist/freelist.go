// Package freelist keeps values that are expensive to make, so that a short
// command makes no descriptor and sends no message to the holder.
package freelist

import (
	"sync"
	"time"
)

const (
	// maxFree bounds the list, however many values are in use: enough for a
	// burst of commands on a small machine.
	maxFree = 128
	// shrinkEvery is how often the list ends values that were not needed since
	// the last time.
	shrinkEvery = 50 * time.Millisecond
)

// List holds values for reuse. It keeps as many as were in use at once a moment
// ago: a steady load makes no new ones, and an idle daemon soon holds what one
// command needs. Its methods are safe for concurrent use.
type List[T any] struct {
	Make func() (T, error)
	End  func(T) // releases a value that will not be used again
	// More is how many values the list keeps beyond that, usually what one
	// command needs. Default: 1.
	More int

	mu     sync.Mutex
	free   []T
	inUse  int
	peak   int         // most in use since the last shrink
	timer  *time.Timer // fires the next shrink
	armed  bool
	closed bool
	ending sync.WaitGroup // a shrink that is calling End
}

// Take returns a free value, or makes one. The caller returns it with Put or
// Drop.
func (l *List[T]) Take() (T, error) {
	l.mu.Lock()
	l.count(1)
	if last := len(l.free) - 1; last >= 0 {
		t := l.free[last]
		l.free = l.free[:last]
		l.mu.Unlock()
		return t, nil
	}
	l.mu.Unlock()
	t, err := l.Make()
	if err != nil {
		l.release()
	}
	return t, err
}

// Put returns a value that can be used again.
func (l *List[T]) Put(t T) {
	l.mu.Lock()
	keep := len(l.free) < maxFree && !l.closed
	if keep {
		l.free = append(l.free, t)
	}
	l.mu.Unlock()
	if !keep {
		l.End(t)
	}
	l.release()
}

// Drop returns a value that can't be used again, and ends it.
func (l *List[T]) Drop(t T) {
	l.End(t)
	l.release()
}

// Adopt counts a value as in use that was taken before a restart.
func (l *List[T]) Adopt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(1)
}

func (l *List[T]) count(n int) {
	l.inUse += n
	l.peak = max(l.peak, l.inUse)
}

func (l *List[T]) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(-1)
	l.arm()
}

// arm schedules a shrink unless one is scheduled or the list is short.
func (l *List[T]) arm() {
	if l.armed || l.closed || len(l.free) <= max(l.More, 1) {
		return
	}
	l.armed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(shrinkEvery, l.shrink)
	} else {
		l.timer.Reset(shrinkEvery)
	}
}

// shrink ends the free values that were not needed since the last time.
func (l *List[T]) shrink() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.ending.Add(1)
	defer l.ending.Done()
	keep := min(l.peak-l.inUse+max(l.More, 1), len(l.free))
	over := append([]T(nil), l.free[keep:]...)
	clear(l.free[keep:])
	l.free = l.free[:keep]
	l.peak = l.inUse
	l.armed = false
	l.arm()
	l.mu.Unlock()
	for _, t := range over {
		l.End(t)
	}
}

// Close ends the free values. Values returned later are ended at once.
func (l *List[T]) Close() {
	l.mu.Lock()
	free := l.free
	l.free, l.closed = nil, true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	l.ending.Wait()
	for _, t := range free {
		l.End(t)
	}
}
