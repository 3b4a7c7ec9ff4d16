package trltest

import (
	"strings"
	"testing"
)

// A checkout without the commit that is asked for must say how to get it.
func TestCommit(t *testing.T) {
	_, err := Commit("0123456789012345678901234567890123456789")
	if err == nil || !strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("a commit that is not there: %v", err)
	}
}
