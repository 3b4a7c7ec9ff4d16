package limits

import (
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest/vm"
)

const module = "github.com/terminal-runtime/trl/"

// The limits hold on each kernel, for root and for a user whose cgroup is delegated.
func TestLimits(t *testing.T) {
	for _, cfg := range []vm.Config{{Kernel: vm.Linux61, User: vm.Guest}, {Kernel: vm.Linux612, User: vm.Root}} {
		t.Run(cfg.Kernel+" "+cfg.User, func(t *testing.T) {
			cfg.Test, cfg.Run, cfg.Timeout = module+"internal/must/limits", "^TestGuest", 4*time.Minute
			vm.Run(t, cfg)
		})
	}
}

// The tests of the packages that set limits pass where cgroups have controllers, on each
// kernel and for each user.
func TestPackages(t *testing.T) {
	const needRoot = "^(TestTagsOfOthersDoNotCount|TestChangedUIDCounts|TestOwnUID)$"
	for _, cfg := range []vm.Config{
		{Kernel: vm.Linux61, User: vm.Root, Test: "internal/process", Programs: []string{"prlimit", "setpriv"}},
		{Kernel: vm.Linux612, User: vm.Guest, Test: "internal/process", Programs: []string{"prlimit", "setpriv"}, Skip: needRoot},
		{Kernel: vm.Linux61, User: vm.Guest, Test: "internal/session", Run: "Limit|Wall"},
		{Kernel: vm.Linux612, User: vm.Root, Test: "internal/session", Run: "Limit|Wall"},
	} {
		t.Run(cfg.Test+" "+cfg.Kernel+" "+cfg.User, func(t *testing.T) {
			t.Parallel() // they mostly wait
			cfg.Test = module + cfg.Test
			vm.Run(t, cfg)
		})
	}
}
