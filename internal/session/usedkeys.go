package session

import (
	"container/list"
	"sync"
)

// maxUsedKeys is how many keys of forgotten execs are remembered: those of several
// minutes of a busy daemon, much longer than a retry takes, in about ten megabytes.
const maxUsedKeys = 1 << 16

// usedKeys are the keys of forgotten execs of sessions that are still known, and of
// forgotten sessions. A repeat that comes so late can't get the first result, but
// must not run a second time.
type usedKeys struct {
	mu    sync.Mutex
	used  map[string]map[string]*list.Element // by session and key
	order list.List                           // of usedKey, oldest first
}

// usedKey is the key of an exec and its session, or, without a session, the owner
// and key of a session.
type usedKey struct{ session, key string }

// add remembers a key. If that is one too many, it returns the one that is
// forgotten for it.
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

// drop forgets and returns the keys of a session.
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

// creationKey returns the key of a session: owners do not share keys.
func creationKey(owner, key string) usedKey { return usedKey{key: owner + "/" + key} }
