package trltest

import (
	"strings"
	"testing"
)

// In a checkout without the requested commit the error must say how to get it.
func TestCommit(t *testing.T) {
	_, err := Commit("0123456789012345678901234567890123456789")
	if err == nil || !strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("a missing commit: %v", err)
	}
}
