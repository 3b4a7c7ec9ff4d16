package trltest

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Patience is how long a test waits for something that must happen. It says
// nothing about speed: it only ends a test that would otherwise hang, so it is
// longer than any stall of a busy machine.
const Patience = time.Minute

// Eventually polls until is returns true, and fails the test if it does not
// within Patience. Call it from the test's goroutine. what completes the sentence
// "timed out waiting until …".
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	pause := 100 * time.Microsecond
	for deadline := time.Now().Add(Patience); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// tries is how often Undisturbed repeats before it reports a failure.
const tries = 5

// Undisturbed runs a measurement that other load on the machine can only make
// worse: a time, an order, what fits into a window. A single failure means
// nothing on a busy machine, so do is repeated; wrong code fails each time. do
// must be repeatable. Use it only where the guarantee itself is about time: a
// test that can wait for a condition must do so.
func Undisturbed(t testing.TB, do func() error) {
	t.Helper()
	var failures []error
	for range tries {
		err := do()
		if err == nil || t.Failed() {
			return
		}
		failures = append(failures, err)
	}
	t.Errorf("failed %d times out of %d:\n%v", tries, tries, errors.Join(failures...))
}

// Token returns a number of nine digits that no other test uses. As a part of an
// argument of `sleep` it lets a test find its own processes and no others.
func Token() string { return strconv.Itoa(100_000_000 + rand.IntN(900_000_000)) }

// Gate returns shell code that waits until open is called, or for a minute if it
// never is, so that a command waits at that point for as long as the test needs.
// The code is a simple list for any shell, to be followed by ;.
func Gate(t testing.TB) (wait string, open func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "open")
	return `gate=0; until [ -e '` + file + `' ] || [ $((gate+=1)) -gt 6000 ]; do sleep 0.01; done`, func() {
		t.Helper()
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
