package session

import (
	"maps"
	"slices"
	"sync"
)

// index finds values by id. It is safe for concurrent use. Its zero value is empty.
type index[T any] struct {
	mu   sync.Mutex
	byID map[string]T
}

func (x *index[T]) add(id string, v T) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byID == nil {
		x.byID = map[string]T{}
	}
	x.byID[id] = v
}

func (x *index[T]) get(id string) (v T, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	v, ok = x.byID[id]
	return v, ok
}

func (x *index[T]) remove(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byID, id)
}

func (x *index[T]) len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.byID)
}

// all returns the values, in no particular order.
func (x *index[T]) all() []T {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.byID))
}

// clear removes and returns all values.
func (x *index[T]) clear() []T {
	all := x.all()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byID = nil
	return all
}
