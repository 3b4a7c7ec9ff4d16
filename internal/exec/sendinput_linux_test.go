package exec

import (
	"testing"
)

// TestTypedByTheDead: a repeat of an input that a daemon was typing when it died
// types nothing, and says that the outcome is unknown.
func TestTypedByTheDead(t *testing.T) {
	e := &Exec{keyedInputs: []keyedInput{{key: 7, sum: 1, whole: true, typing: true}}}
	s := &InputRequest{KeyHash: 7, Sum: 1}
	if done, err := e.LookupAnswer(s); !done || err != nil || !s.Uncertain {
		t.Errorf("%t, %v, %+v", done, err, s)
	}
}

// TestInputKeysAreBounded: only the last keys are remembered.
func TestInputKeysAreBounded(t *testing.T) {
	e := &Exec{}
	for i := range maxKeyedInputs + 10 {
		e.setKeyed(keyedInput{key: uint64(i + 1), sum: 1, whole: true})
	}
	for key, want := range map[uint64]bool{10: false, 11: true, maxKeyedInputs + 10: true} {
		if _, found, err := e.keyed(&InputRequest{KeyHash: key, Sum: 1}); found != want || err != nil {
			t.Errorf("key %d is known: %t, %v", key, found, err)
		}
	}
}
