package session

import (
	"sync"

	"github.com/terminal-runtime/trl/api"
)

// maxSpentKeys is how many keys of forgotten execs are remembered: those of
// several minutes of a busy daemon, much longer than a retry takes to come, in
// some ten megabytes.
const maxSpentKeys = 1 << 16

// spentKeys are the keys of execs that are no longer kept. A retry that comes
// so late can't be given the result of the first; but it must not run the
// command a second time.
type spentKeys struct {
	mu   sync.Mutex
	used map[spentKey]struct{}
	ring []spentKey // in the order they were spent; past the bound, next is the oldest
	next int
}

type spentKey struct{ session, key string }

// add returns the key that is no longer remembered for it, if there is one.
func (s *spentKeys) add(k spentKey) (gone spentKey, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == nil {
		s.used = map[spentKey]struct{}{}
	}
	if len(s.ring) < maxSpentKeys {
		s.ring = append(s.ring, k)
	} else {
		gone, full = s.ring[s.next], true
		delete(s.used, gone)
		s.ring[s.next] = k
		s.next = (s.next + 1) % maxSpentKeys
	}
	s.used[k] = struct{}{}
	return gone, full
}

// check refuses a key that was used before.
func (s *spentKeys) check(k spentKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.used[k]; !used {
		return nil
	}
	return api.Errorf(api.CodeExecNotFound, "a command with this key has run in this session, and its result is no longer kept").
		WithHint("it is not run again; to run it once more send another key")
}
