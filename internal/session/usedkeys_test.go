package session

import (
	"strconv"
	"testing"
)

func TestUsedKeysAreBounded(t *testing.T) {
	var s usedKeys
	const over = 10
	for i := range maxUsedKeys + over {
		s.add(usedKey{"s", strconv.Itoa(i)})
	}
	if len(s.used["s"]) != maxUsedKeys || s.order.Len() != maxUsedKeys {
		t.Errorf("%d keys in %d places", len(s.used["s"]), s.order.Len())
	}
	for key, spent := range map[string]bool{"0": false, strconv.Itoa(over - 1): false, strconv.Itoa(over): true, strconv.Itoa(maxUsedKeys + over - 1): true} {
		if s.has(usedKey{"s", key}) != spent {
			t.Errorf("key %s is used: %t", key, !spent)
		}
	}
	if s.has(usedKey{"another", strconv.Itoa(over)}) {
		t.Error("a key is used in another session")
	}
	s.add(usedKey{"another", "key"})
	if gone := s.drop("s"); len(gone) != maxUsedKeys-1 || s.order.Len() != 1 || len(s.used) != 1 {
		t.Errorf("%d keys were dropped with their session, %d are left", len(gone), s.order.Len())
	}
}
