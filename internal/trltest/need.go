package trltest

import (
	"os"
	"testing"
)

// Need skips a test if err says that this machine lacks something. Under CI it
// fails the test instead.
func Need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("this machine can't run the test: %v", err)
	default:
		t.Skip(err)
	}
}
