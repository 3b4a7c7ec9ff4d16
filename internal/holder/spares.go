package holder

import "sync"

// mostSpare bounds the spare ones, however many are in use: enough for a burst
// of commands on a small machine.
const mostSpare = 128

// Spares are things that are costly to keep and can be used again, so that a
// short command makes no descriptor and says nothing to the keeper. There are
// never many more of them than are in use: a daemon which has become idle holds
// what one command needs. Its methods are safe for concurrent use.
type Spares[T any] struct {
	Make func() (T, error)
	End  func(T) // gives up one that is not used again
	// More is how many more there may be than are in use: what one command
	// needs. Default: 1.
	More int

	mu    sync.Mutex
	spare []T
	inUse int
}

// Take returns a spare one or a new one, which Put or Drop takes back.
func (s *Spares[T]) Take() (T, error) {
	s.mu.Lock()
	s.inUse++
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
	s.spare = append(s.spare, t)
	s.mu.Unlock()
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
	s.inUse++
}

// release counts one less in use, and ends the spare ones that are now too many.
func (s *Spares[T]) release() {
	s.mu.Lock()
	s.inUse--
	keep := min(s.inUse+max(s.More, 1), mostSpare, len(s.spare))
	over := append([]T(nil), s.spare[keep:]...)
	clear(s.spare[keep:])
	s.spare = s.spare[:keep]
	s.mu.Unlock()
	for _, t := range over {
		s.End(t)
	}
}

// Close ends the spare ones.
func (s *Spares[T]) Close() {
	s.mu.Lock()
	spare := s.spare
	s.spare = nil
	s.mu.Unlock()
	for _, t := range spare {
		s.End(t)
	}
}
