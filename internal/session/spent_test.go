package session

import (
	"strconv"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

func TestSpentKeysAreBounded(t *testing.T) {
	var s spentKeys
	const over = 10
	for i := range maxSpentKeys + over {
		s.add(spentKey{"s", strconv.Itoa(i)})
	}
	if len(s.used) != maxSpentKeys || len(s.ring) != maxSpentKeys {
		t.Errorf("%d keys in %d places", len(s.used), len(s.ring))
	}
	for key, spent := range map[string]bool{"0": false, strconv.Itoa(over - 1): false, strconv.Itoa(over): true, strconv.Itoa(maxSpentKeys + over - 1): true} {
		if err := s.check(spentKey{"s", key}); api.IsCode(err, api.CodeExecNotFound) != spent {
			t.Errorf("key %s: %v", key, err)
		}
	}
	if err := s.check(spentKey{"another", strconv.Itoa(over)}); err != nil {
		t.Error(err)
	}
}
