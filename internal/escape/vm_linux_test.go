package escape

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest/vm"
)

// long: every row is proven in every way in guests, too.
var long = os.Getenv("TRL_LONG") == "1"

// unprovenVariable lists the rows, by name and user, for which a guest must prove that
// they get through unconfined: this machine has not, because its kernel does not have
// what they use or because it was not asked to.
const unprovenVariable = "ESCAPE_UNPROVEN"

// provenHere has the rows that got through unconfined in this process.
var provenHere sync.Map

// TestKernels runs both tables on other kernels, where other mechanisms are in force:
// Linux 6.1 has a Landlock that does not protect files, so views alone must stop every
// attempt there. A guest is slow: unless the test may take long, one has the rows of a
// user without rights and the other those of root.
func TestKernels(t *testing.T) {
	var unproven []string
	for _, a := range escapes() {
		for _, uid := range a.who {
			name := a.name + "/" + userName(uid)
			if _, ok := provenHere.Load(name); !ok {
				unproven = append(unproven, name)
			}
		}
	}
	for _, kernel := range vm.Kernels {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			cfg := vm.Config{
				Kernel: kernel, Test: "github.com/terminal-runtime/trl/internal/escape", Run: "^(TestEscapes|TestPermitted)$",
				Env:       []string{unprovenVariable + "=" + strings.Join(unproven, " ")},
				MemoryMiB: 2048,             // stages have files in memory, and attempts flood it
				Timeout:   10 * time.Minute, // a guest is 10 to 20 times slower than a machine
			}
			if long {
				cfg.Env, cfg.Timeout = append(cfg.Env, "TRL_LONG=1"), time.Hour
			}
			vm.Run(t, cfg)
		})
	}
}

// guestUser is the user whose rows a guest has if the test must not take long.
var guestUser = map[string]int{vm.Linux61: guestID, vm.Linux612: 0}

// hasFull reports whether the rows of a user run in their whole confinement here.
func hasFull(uid int) bool { return long || vm.Inside() == "" || guestUser[vm.Inside()] == uid }

// chosen reports whether a row runs for a user here. Landlock alone confines no root, and
// protects files only on the newer kernel of guests, which has the rows of root: so it
// has these rows of the user, too.
func chosen(a attempt, uid int) bool {
	return hasFull(uid) || vm.Inside() == vm.Linux612 && slices.Contains(slices.Concat(a.alone, a.with), byLandlock)
}

// mustGetThrough reports whether a row must be proven unconfined here: everywhere if it
// depends on the kernel, otherwise on one machine.
func mustGetThrough(a attempt, name string) bool {
	return long || vm.Inside() == "" || len(a.absent) > 0 ||
		slices.Contains(strings.Fields(os.Getenv(unprovenVariable)), name)
}

// together has the verdicts of attempts that shared a stage.
var together sync.Map

// playTogether runs the rows that need nothing special in their full confinement, many
// on a stage: to build one takes a guest as long as an attempt. An attempt after which
// the stage has not changed leaves it as good as new for the next.
func playTogether(t *testing.T) {
	if long || vm.Inside() == "" {
		t.Skip("every attempt has a stage of its own")
	}
	const perStage = 12
	uid := guestUser[vm.Inside()]
	o := order{UID: uid, Keeper: uid, Fields: full, Abilities: abilities(t, uid)}
	var names []string
	for _, a := range escapes() {
		if a.prepare == nil && a.with == nil && a.killed == 0 && slices.Contains(a.who, uid) {
			names = append(names, a.name)
		}
	}
	for some := range slices.Chunk(names, perStage) {
		t.Run(some[0], func(t *testing.T) {
			t.Parallel()
			o := o
			o.Attempt, o.Then = some[0], some[1:]
			all, died := playAll(t, o)
			t.Logf("%d of %d attempts shared a stage, %v", len(all), len(some), died)
			for i, v := range all {
				together.Store(fmt.Sprint(some[i], o.UID, o.Keeper, o.Fields), v)
			}
		})
	}
}
