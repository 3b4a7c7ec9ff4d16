package fold

import (
	"encoding/json"
	"slices"
)

// table is a map with a bound: the oldest entry makes room. Its order is that of the
// insertions, so it is the same after every replay.
type table[V any] struct {
	max   int
	order []string
	m     map[string]V
}

func newTable[V any](most int) table[V] { return table[V]{max: most, m: map[string]V{}} }

func (t *table[V]) get(key string) (V, bool) {
	v, ok := t.m[key]
	return v, ok
}

func (t *table[V]) put(key string, v V) {
	if _, ok := t.m[key]; !ok {
		if len(t.order) >= 2*t.max {
			t.compact()
		}
		for len(t.m) >= t.max {
			delete(t.m, t.order[0])
			t.order = t.order[1:]
		}
		// A key that was deleted may still be in order: it must be there once.
		if i := slices.Index(t.order, key); i >= 0 && len(t.order) != len(t.m) {
			t.order = slices.Delete(t.order, i, i+1)
		}
		t.order = append(t.order, key)
	}
	t.m[key] = v
}

func (t *table[V]) delete(key string) {
	delete(t.m, key)
	if len(t.m) == 0 {
		t.order = nil
	}
}

func (t *table[V]) compact() {
	t.order = slices.DeleteFunc(t.order, func(k string) bool { _, ok := t.m[k]; return !ok })
}

type tableEntry[V any] struct {
	K string
	V V
}

// MarshalJSON writes the entries in their order.
func (t table[V]) MarshalJSON() ([]byte, error) {
	entries := make([]tableEntry[V], 0, len(t.m))
	for _, k := range t.order {
		if v, ok := t.m[k]; ok {
			entries = append(entries, tableEntry[V]{k, v})
		}
	}
	return json.Marshal(entries)
}

// UnmarshalJSON is the inverse of MarshalJSON. The bound stays as it is.
func (t *table[V]) UnmarshalJSON(b []byte) error {
	var entries []tableEntry[V]
	if err := json.Unmarshal(b, &entries); err != nil {
		return err
	}
	t.order, t.m = nil, map[string]V{}
	for _, e := range entries {
		t.put(e.K, e.V)
	}
	return nil
}
