package trltest

import (
	"os"
	"testing"
)

// Need skips a test for which something is missing on this machine. Under CI
// nothing may be missing: there it fails.
func Need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("this machine can't run it: %v", err)
	default:
		t.Skip(err)
	}
}
