package holder

import (
	"sync"
	"time"
)

const (
	// mostSpare bounds the spare ones, however many are in use: enough for a
	// burst of commands on a small machine.
	mostSpare = 128
	// shrinkEvery is how often those are ended that were not needed since.
	shrinkEvery = 50 * time.Millisecond
)

// Spares are things that are costly to keep and can be used again, so that a
// short command makes no descriptor and says nothing to the keeper. There are as
// many of them as were in use at once a moment ago: commands that come and go
// all the time need no new ones, and a daemon which has become idle soon holds
// what one command needs. Its methods are safe for concurrent use.
type Spares[T any] struct {
	Make func() (T, error)
	End  func(T) // gives up one that is not used again
	// More is how many more there may be: what one command needs. Default: 1.
	More int

	mu     sync.Mutex
	spare  []T
	inUse  int
	peak   int         // the most in use since the last shrink
	timer  *time.Timer // of the next one
	armed  bool
	closed bool
	ending sync.WaitGroup // a shrink that gives some up
}

// Take returns a spare one or a new one, which Put or Drop takes back.
func (s *Spares[T]) Take() (T, error) {
	s.mu.Lock()
	s.count(1)
	if last := len(s.spare) - 1; last >= 0 {
		t := s.spare[last]
		s.spare = s.spare[:last]
		s.mu.Unlock()
		return t, nil
	}
	s.mu.Unlock()
	t, err := s.Make()
	if err != nil {
		s.release()
	}
	return t, err
}

// Put takes back one that is as good as new.
func (s *Spares[T]) Put(t T) {
	s.mu.Lock()
	keep := len(s.spare) < mostSpare && !s.closed
	if keep {
		s.spare = append(s.spare, t)
	}
	s.mu.Unlock()
	if !keep {
		s.End(t)
	}
	s.release()
}

// Drop takes back one that is not.
func (s *Spares[T]) Drop(t T) {
	s.End(t)
	s.release()
}

// Adopt counts one as in use that was not taken here: it is from before a
// restart.
func (s *Spares[T]) Adopt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(1)
}

func (s *Spares[T]) count(n int) {
	s.inUse += n
	s.peak = max(s.peak, s.inUse)
}

// release counts one less in use.
func (s *Spares[T]) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(-1)
	s.arm()
}

// arm has the spare ones looked at again, if some may turn out to be too many.
func (s *Spares[T]) arm() {
	if s.armed || s.closed || len(s.spare) <= max(s.More, 1) {
		return
	}
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(shrinkEvery, s.shrink)
	} else {
		s.timer.Reset(shrinkEvery)
	}
}

// shrink ends the spare ones that were not needed since the last time.
func (s *Spares[T]) shrink() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.ending.Add(1)
	defer s.ending.Done()
	keep := min(s.peak-s.inUse+max(s.More, 1), len(s.spare))
	over := append([]T(nil), s.spare[keep:]...)
	clear(s.spare[keep:])
	s.spare = s.spare[:keep]
	s.peak = s.inUse
	s.armed = false
	s.arm()
	s.mu.Unlock()
	for _, t := range over {
		s.End(t)
	}
}

// Close ends the spare ones.
func (s *Spares[T]) Close() {
	s.mu.Lock()
	spare := s.spare
	s.spare, s.closed = nil, true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.ending.Wait()
	for _, t := range spare {
		s.End(t)
	}
}
