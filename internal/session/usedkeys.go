package session

import (
	"container/list"
	"sync"
)

// maxSpentKeys is how many keys of forgotten execs are remembered: those of
// several minutes of a busy daemon, much longer than a retry takes to come, in
// some ten megabytes.
const maxUsedKeys = 1 << 16

// spentKeys are the keys of execs that are no longer kept, of sessions that are,
// and of sessions that are no longer kept. A repeat that comes so late can't be
// given the result of the first; but it must not do it a second time.
type usedKeys struct {
	mu    sync.Mutex
	used  map[string]map[string]*list.Element // by session and key
	order list.List                           // of spentKey, the oldest first
}

// spentKey is a key of an exec in a session, or with no session, of one that was
// made: its owner and the key.
type usedKey struct{ session, key string }

// add returns the key that is no longer remembered for it, if there is one.
func (s *usedKeys) add(k usedKey) (gone usedKey, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[k.session] == nil {
		if s.used == nil {
			s.used = map[string]map[string]*list.Element{}
		}
		s.used[k.session] = map[string]*list.Element{}
	}
	if s.used[k.session][k.key] != nil {
		return gone, false
	}
	s.used[k.session][k.key] = s.order.PushBack(k)
	if s.order.Len() <= maxUsedKeys {
		return gone, false
	}
	gone = s.order.Remove(s.order.Front()).(usedKey)
	if delete(s.used[gone.session], gone.key); len(s.used[gone.session]) == 0 {
		delete(s.used, gone.session)
	}
	return gone, true
}

// drop forgets the keys of a session, and returns them.
func (s *usedKeys) drop(session string) (gone []usedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.used[session] {
		gone = append(gone, s.order.Remove(at).(usedKey))
	}
	delete(s.used, session)
	return gone
}

// has reports whether a key was used before.
func (s *usedKeys) has(k usedKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used[k.session][k.key] != nil
}
