package session

import (
	"container/list"
	"sync"

	"github.com/terminal-runtime/trl/api"
)

// maxSpentKeys is how many keys of forgotten execs are remembered: those of
// several minutes of a busy daemon, much longer than a retry takes to come, in
// some ten megabytes.
const maxSpentKeys = 1 << 16

// spentKeys are the keys of execs that are no longer kept, of sessions that are. A
// retry that comes so late can't be given the result of the first; but it must not
// run the command a second time.
type spentKeys struct {
	mu    sync.Mutex
	used  map[string]map[string]*list.Element // by session and key
	order list.List                           // of spentKey, the oldest first
}

type spentKey struct{ session, key string }

// add returns the key that is no longer remembered for it, if there is one.
func (s *spentKeys) add(k spentKey) (gone spentKey, full bool) {
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
	if s.order.Len() <= maxSpentKeys {
		return gone, false
	}
	gone = s.order.Remove(s.order.Front()).(spentKey)
	if delete(s.used[gone.session], gone.key); len(s.used[gone.session]) == 0 {
		delete(s.used, gone.session)
	}
	return gone, true
}

// drop forgets the keys of a session, and returns them.
func (s *spentKeys) drop(session string) (gone []spentKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.used[session] {
		gone = append(gone, s.order.Remove(at).(spentKey))
	}
	delete(s.used, session)
	return gone
}

// check refuses a key that was used before.
func (s *spentKeys) check(k spentKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[k.session][k.key] == nil {
		return nil
	}
	return api.Errorf(api.CodeExecNotFound, "a command with this key has run in this session, and its result is no longer kept").
		WithHint("it is not run again; to run it once more send another key")
}
