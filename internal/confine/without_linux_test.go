//go:build linux && (amd64 || arm64)

package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest/without"
)

// switchOff executes a program that has switches off: those of package without, and one
// that no filter can be.
func switchOff(names string, argv []string) error {
	switch names {
	case "max_user_namespaces": // in a new user namespace, which may lower its own limit
		c := exec.Command("/proc/self/exe", append([]string{"without", "max_user_namespaces here"}, argv...)...)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_RESOURCE}}
		err := c.Run()
		if err == nil {
			os.Exit(0)
		}
		return err
	case "max_user_namespaces here":
		err := errors.Join(
			mapIDs(order{Namespaces: namespaces{User: true}, UID: testUser, GID: testUser}),
			os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0),
			dropCapabilities())
		if err != nil {
			return err
		}
		return syscall.Exec(argv[0], argv, os.Environ())
	}
	return without.Exec(names, argv)
}

// off says in the environment which switches are off in this process.
const off = "CONFINE_TEST_OFF"

// TestSwitches checks that a probe notices what a machine forbids, that only what
// needs it is refused, and that everything else still works.
func TestSwitches(t *testing.T) {
	if names := os.Getenv(off); names != "" {
		checkSwitch(t, names)
		return
	}
	for _, names := range []string{"landlock", "seccomp", "mount_setattr", "pivot_root", "setgroups", "newuser", "newns", "newnet", "newpid", "mount_setattr,landlock", "max_user_namespaces"} {
		for user, uid := range map[string]uint32{"root": 0, "user": testUser} {
			if names == "max_user_namespaces" && uid == 0 || os.Getuid() != 0 && uid == 0 {
				continue
			}
			t.Run(names+" "+user, func(t *testing.T) { rerun(t, uid, []string{off + "=" + names}, "/proc/self/exe", "without", names) })
		}
	}
}

func checkSwitch(t *testing.T, names string) {
	root := os.Getuid() == 0
	a := probeOnce()
	var missing []string
	for _, b := range a.List {
		t.Logf("%+v", b)
		if !b.Available {
			missing = append(missing, b.Name)
		}
		if b.Available != (b.Reason == "") || !b.Available && b.Hint == "" && b.Name != AbilitySeccomp {
			t.Errorf("%+v", b)
		}
	}
	want := map[string][]string{
		"landlock":               {AbilityLandlock},
		"seccomp":                {AbilitySeccomp},
		"mount_setattr":          {AbilityMount, AbilityProcesses, AbilityDisk},
		"pivot_root":             {AbilityMount, AbilityProcesses, AbilityDisk},
		"newns":                  {AbilityMount, AbilityProcesses, AbilityDisk},
		"newuser":                {AbilityUserNamespace},
		"newnet":                 {AbilityNetwork},
		"newpid":                 {AbilityProcesses},
		"mount_setattr,landlock": {AbilityMount, AbilityProcesses, AbilityDisk, AbilityLandlock},
		"max_user_namespaces":    {AbilityUserNamespace, AbilityMount, AbilityNetwork, AbilityProcesses, AbilityDisk},
		"setgroups":              {},
	}[names]
	if names == "newuser" && !root {
		want = []string{AbilityUserNamespace, AbilityMount, AbilityNetwork, AbilityProcesses, AbilityDisk}
	}
	if !root || names == "setgroups" {
		want = append(want, AbilityUser)
	}
	if diff := cmp.Diff(want, missing); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	checkSpecs(t, a, root)
}

// checkSpecs checks specs that need one thing each: those that the machine can
// enforce run, the others are refused with everything that is missing.
func checkSpecs(t *testing.T, a Abilities, root bool) {
	dir := tree(t, "w/", "f")
	network := []string{AbilityNetwork, AbilitySeccomp}
	if root {
		network = append(network, AbilityMount)
	}
	files := []string{AbilityMount}
	if !root && a.Has(AbilityLandlock) {
		files = nil // Landlock is enough
	}
	for name, c := range map[string]struct {
		change func(*Spec)
		needs  []string
	}{
		"read and write": {func(s *Spec) { s.Files = &Files{Write: []string{dir + "/w"}} }, files},
		"deny":           {func(s *Spec) { s.Files = &Files{Deny: []string{dir + "/f"}} }, []string{AbilityMount}},
		"private tmp":    {func(s *Spec) { s.Files = &Files{PrivateTmp: true} }, []string{AbilityMount}},
		"protect":        {func(s *Spec) { s.Protect = []Protected{{Path: dir + "/f"}} }, []string{AbilityMount}},
		"disk":           {func(s *Spec) { s.Files, s.DiskBytes = &Files{PrivateTmp: true}, 1<<20 }, []string{AbilityMount, AbilityDisk}},
		"network":        {func(s *Spec) { s.Network = NetworkNone }, network},
		"processes":      {func(s *Spec) { s.Processes = true }, []string{AbilityProcesses}},
		"seccomp":        {func(s *Spec) { s.Seccomp = true }, []string{AbilitySeccomp}},
		"user":           {func(s *Spec) { s.User = &User{UID: 4321, GID: 4321} }, []string{AbilityUser}},
		"no_new_privs":   {func(s *Spec) { s.NoNewPrivs = true }, nil},
	} {
		s := script("echo started")
		c.change(&s)
		enough := !slices.ContainsFunc(c.needs, func(ability string) bool { return !a.Has(ability) })
		out, _, err := tryRun(t, s)
		var m *Missing
		switch {
		case enough && (err != nil || out != "started\n"):
			t.Errorf("%s: %q, %v", name, out, err)
		case !enough && !errors.As(err, &m):
			t.Errorf("%s is not refused: %q, %v", name, out, err)
		case !enough:
			for _, ability := range c.needs {
				if !a.Has(ability) && m.Reasons[ability] == "" {
					t.Errorf("%s: %s is not named in %+v", name, ability, m)
				}
			}
		}
	}
	if s := script(""); files == nil && !a.Has(AbilityMount) {
		s = script(fmt.Sprintf("cd %s; echo x > w/f && cat w/f; (echo x > f) 2>/dev/null || echo no; (echo x > /tmp/x) 2>/dev/null || echo no; echo x > /dev/null", dir))
		s.Files = &Files{Write: []string{dir + "/w"}}
		check(t, s, "x\nno\nno")
		if f := a.InForce(s); f.LandlockABI == 0 || slices.Contains(f.Mechanisms, AbilityMount) {
			t.Errorf("%+v", f)
		}
	}
}
