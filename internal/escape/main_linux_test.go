package escape

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/confine"
)

// The roles in which the test binary runs itself again, as its first argument.
const (
	roleStage   = "escape-stage"
	roleVictim  = "escape-victim"
	roleKeeper  = "escape-keeper"
	roleAttempt = "escape-attempt"
	roleInner   = "escape-inner"
)

func TestMain(m *testing.M) {
	confine.RunChild()
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case roleStage:
			os.Exit(runStage(os.Args[2]))
		case roleVictim:
			os.Exit(runVictim(os.Args[2]))
		case roleKeeper:
			os.Exit(runKeeper(os.Args[2]))
		case roleAttempt:
			os.Exit(runAttempt(os.Args[2:]))
		case roleInner:
			os.Exit(runInner(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// statusRefused is the exit status of an attempt whose decisive step was refused. It is
// not one that a shell, a panic of Go or a signal produces.
const statusRefused = 41

// statusBroken is the exit status of an attempt that failed before its decisive step.
const statusBroken = 42

// refusal is the refused decisive step of an attempt.
type refusal struct {
	Step  string
	Errno syscall.Errno // 0 if the step was refused without an error
	Text  string
}

func (r *refusal) Error() string { return r.Step + ": " + r.Text }

func (r *refusal) Unwrap() error { return r.Errno }

// at returns the refusal of a decisive step, or nil if err is nil. The error must have
// an errno: other errors are mistakes of the attempt.
func at(step string, err error) error {
	if err == nil {
		return nil
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return fmt.Errorf("%s: %w", step, err)
	}
	return &refusal{Step: step, Errno: errno, Text: err.Error()}
}

// past is at for a step that no harmless call completes: the errnos prove that the
// kernel got past its check of permissions.
func past(step string, err error, errnos ...syscall.Errno) error {
	for _, errno := range errnos {
		if errors.Is(err, errno) {
			return nil
		}
	}
	return at(step, err)
}

// without is the refusal of a step that had no error and no effect either.
func without(step, text string) error { return &refusal{Step: step, Text: text} }

// runAttempt runs an attempt of one of the tables: its name and the scene as JSON.
func runAttempt(args []string) int {
	var s scene
	if len(args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: NAME SCENE")
		return statusBroken
	}
	if err := json.Unmarshal([]byte(args[1]), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return statusBroken
	}
	a := find(args[0])
	if a == nil {
		fmt.Fprintln(os.Stderr, "no such attempt")
		return statusBroken
	}
	return report(a.try(&s))
}

// report prints how an attempt ended, and returns its exit status.
func report(err error) int {
	if err == nil {
		return 0
	}
	var r *refusal
	if !errors.As(err, &r) {
		fmt.Fprintln(os.Stderr, err)
		return statusBroken
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return statusBroken
	}
	return statusRefused
}

// errnoName returns the name of an errno, such as EPERM.
func errnoName(errno syscall.Errno) string {
	if errno == 0 {
		return "no effect"
	}
	return unix.ErrnoName(errno)
}
