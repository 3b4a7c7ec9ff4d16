package escape

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/confine"
	"github.com/terminal-runtime/trl/internal/trltest/vm"
)

// stageTimeout bounds one run; it is longer than attemptTimeout.
const stageTimeout = 2 * attemptTimeout

// play runs an attempt on a new stage.
func play(t *testing.T, o order) (v verdict, died syscall.Signal) {
	t.Helper()
	all, died := playAll(t, o)
	if died == 0 {
		v = all[0]
	}
	return v, died
}

// playAll is play for all attempts of an order, until one was not refused.
func playAll(t *testing.T, o order) (all []verdict, died syscall.Signal) {
	t.Helper()
	encoded, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), stageTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", roleStage, string(encoded))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  unix.SIGKILL,
	}
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return nil, status.Signal()
		}
	}
	if err != nil {
		t.Fatalf("the stage failed: %v: %s", err, text.String())
	}
	answers := json.NewDecoder(bytes.NewReader(out.Bytes()))
	for {
		var v verdict
		if err := answers.Decode(&v); errors.Is(err, io.EOF) && len(all) > 0 {
			return all, 0
		} else if err != nil {
			t.Fatalf("the stage answered %q: %v", out.String(), err)
		}
		all = append(all, v)
	}
}

func userName(uid int) string {
	if uid == 0 {
		return "root"
	}
	return "user"
}

// needStage skips the test where no stage can be built.
func needStage(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make the namespaces of the stage")
	}
}

// TestEscapes proves that the full confinement refuses every attempt that gets through
// without it, and so does each field that the row says is enough alone.
func TestEscapes(t *testing.T) {
	needStage(t)
	var proven, absent atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d attempts were refused, %d are not possible on this kernel or machine", proven.Load(), absent.Load())
	})
	t.Run("stages", playTogether)
	for _, a := range escapes() {
		for _, uid := range a.who {
			name := fmt.Sprintf("%s/%s", a.name, userName(uid))
			if !chosen(a, uid) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() {
					if t.Skipped() {
						absent.Add(1)
					} else {
						proven.Add(1)
					}
				})
				if mustGetThrough(a, name) {
					proveUnconfined(t, a, uid)
					provenHere.Store(name, true)
				}
				with := a.with
				if with == nil {
					with = full
				}
				o := order{Attempt: a.name, UID: uid, Keeper: uid, Fields: with, Abilities: abilities(t, uid)}
				if hasFull(uid) {
					proveRefused(t, a, o)
				}
				for _, field := range a.alone {
					if field == byLandlock && uid == 0 {
						continue // root is not confined by Landlock alone
					}
					if field != byLandlock && vm.Inside() != "" {
						continue // the same on every kernel, and a guest is slow
					}
					o.Fields = []string{field}
					proveRefused(t, a, o)
				}
				if uid != 0 && vm.Inside() == "" { // a daemon of root, with the field user
					o.Keeper, o.Fields, o.Abilities = 0, with, abilities(t, 0)
					proveRefused(t, a, o)
				}
			})
		}
	}
}

// TestPermitted proves that the second table is true: the full confinement stops none of
// its attempts.
func TestPermitted(t *testing.T) {
	needStage(t)
	for _, a := range permitted() {
		for _, uid := range a.who {
			if !chosen(a, uid) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", a.name, userName(uid)), func(t *testing.T) {
				t.Parallel()
				with := a.with
				if with == nil {
					with = full
				}
				o := order{Attempt: a.name, UID: uid, Keeper: uid, Fields: with, Abilities: abilities(t, uid)}
				want := outcomeThrough
				switch {
				case a.until != 0 && o.Abilities.ABI >= a.until:
					want = outcomeRefused
				case slices.Contains(with, byLandlock) && !o.Abilities.Has(confine.AbilityLandlock):
					want = outcomeDenied
				}
				v, died := play(t, o)
				if died != 0 || v.Outcome != want {
					t.Fatalf("%v, want %s", v, want)
				}
			})
		}
	}
}

// abilities returns what a daemon of a user can enforce on a stage.
func abilities(t *testing.T, uid int) (found confine.Abilities) {
	t.Helper()
	if known, ok := probed.Load(uid); ok {
		return known.(confine.Abilities)
	}
	v, died := play(t, order{Keeper: uid})
	if err := json.Unmarshal([]byte(v.Text), &found); err != nil || died != 0 {
		t.Fatalf("probe: %v %v", err, died)
	}
	probed.Store(uid, found)
	return found
}

// probed keeps the abilities by user: probing takes longer than an attempt.
var probed sync.Map

// proveRefused fails unless a confinement refuses the attempt and the stage sees no
// change.
func proveRefused(t *testing.T, a attempt, o order) {
	t.Helper()
	fields := strings.Join(o.Fields, ", ")
	if o.Keeper != o.UID {
		fields += ", user"
	}
	v, died := verdict{}, syscall.Signal(0)
	if known, ok := together.Load(fmt.Sprint(o.Attempt, o.UID, o.Keeper, o.Fields)); ok {
		v = known.(verdict)
	} else {
		v, died = play(t, o)
	}
	switch {
	case v.Outcome == outcomeDenied && slices.Contains(o.Fields, byLandlock) && !o.Abilities.Has(confine.AbilityLandlock):
		t.Logf("confined by %v: %v", fields, v)
	case died != 0:
		t.Errorf("confined by %v: the stage died by %v", fields, died)
	case v.Outcome == outcomeDenied && strings.HasPrefix(v.Text, errNoController.Error()):
		t.Skip(v.Text)
	case v.Outcome == outcomeKilled && a.killed != 0 && v.Signal == int(a.killed) && len(v.Changes) == 0:
	case v.Outcome != outcomeRefused || len(v.Changes) != 0:
		t.Errorf("confined by %v: %v, want a refusal", fields, v)
	default:
		t.Logf("confined by %v: %v", fields, v)
	}
}

// proveUnconfined fails unless the attempt gets through, and skips the test if the
// kernel has nothing to attempt.
func proveUnconfined(t *testing.T, a attempt, uid int) {
	t.Helper()
	v, died := play(t, order{Attempt: a.name, UID: uid})
	switch {
	case died != 0 && died == a.ends:
	case died != 0:
		t.Fatalf("the stage died by %v", died)
	case v.Outcome == outcomeRefused && slices.Contains(a.absent, v.Refusal.Errno):
		t.Skipf("this kernel does not have it: %v", v)
	case v.Outcome != outcomeThrough || a.ends != 0:
		t.Fatalf("unconfined: %v, want it to get through", v)
	case a.changes && len(v.Changes) == 0:
		t.Fatalf("unconfined: %v, and the stage sees no change", v)
	}
}
