//go:build linux && (amd64 || arm64)

package confined

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
)

// members are what session.create can ask for.
var members = map[string]func(p *api.SessionCreateParams, dir string){
	"write":       func(p *api.SessionCreateParams, dir string) { files(p).Write = []string{dir} },
	"deny":        func(p *api.SessionCreateParams, dir string) { files(p).Deny = []string{filepath.Join(dir, "secret")} },
	"private_tmp": func(p *api.SessionCreateParams, _ string) { files(p).PrivateTmp = true },
	"network": func(p *api.SessionCreateParams, _ string) {
		isolation(p).Network = &api.Network{Mode: api.NetworkLoopback}
	},
	"processes":    func(p *api.SessionCreateParams, _ string) { isolation(p).Processes = api.IsolationProcessesOwn },
	"user":         func(p *api.SessionCreateParams, _ string) { isolation(p).User = "daemon" },
	"no_new_privs": func(p *api.SessionCreateParams, _ string) { isolation(p).NoNewPrivs = true },
	"seccomp":      func(p *api.SessionCreateParams, _ string) { isolation(p).Seccomp = api.IsolationSeccompDefault },
	"memory":       func(p *api.SessionCreateParams, _ string) { limits(p).MemoryBytes = 256 << 20 },
	"disk":         func(p *api.SessionCreateParams, _ string) { files(p).PrivateTmp = true; limits(p).DiskBytes = 1 << 20 },
}

func isolation(p *api.SessionCreateParams) *api.Isolation {
	if p.Isolation == nil {
		p.Isolation = &api.Isolation{}
	}
	return p.Isolation
}

func files(p *api.SessionCreateParams) *api.Filesystem {
	i := isolation(p)
	if i.Filesystem == nil {
		i.Filesystem = &api.Filesystem{}
	}
	return i.Filesystem
}

func limits(p *api.SessionCreateParams) *api.Limits {
	if p.Limits == nil {
		p.Limits = &api.Limits{}
	}
	return p.Limits
}

// machine is one that can't enforce something.
type machine struct {
	name string
	setting
	// refused are the members that it refuses, with the ability that it must name.
	refused map[string]string
	// unused is a mechanism that it must not claim to use.
	unused string
	// landlock says that only Landlock can confine the file system. Then a session must
	// list what it reads: the daemon's own files must not be among it.
	landlock bool
}

// noView are the members that need a mount namespace.
func noView(more ...string) map[string]string {
	refused := map[string]string{"deny": "mount", "private_tmp": "mount", "processes": "processes", "disk": "mount"}
	for _, name := range more {
		refused[name] = "mount"
	}
	return refused
}

// noUserNamespaces are those that need a user namespace, for a user who is not root.
func noUserNamespaces() map[string]string {
	refused := noView("write")
	refused["network"] = "network"
	return refused
}

// noMoreNamespaces is a user namespace in which no other can be made.
func noMoreNamespaces() setting {
	everyone := []syscall.SysProcIDMap{{Size: 65536}}
	return setting{
		user: true, prefix: []string{"sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces && exec "$0" "$@"`},
		attr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: everyone, GidMappings: everyone, GidMappingsEnableSetgroups: true},
	}
}

// noCgroups is a machine without the file system of cgroups.
func noCgroups() setting {
	return setting{prefix: []string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs none /sys/fs/cgroup && exec "$0" "$@"`}}
}

var machines = []machine{
	{name: "Landlock", setting: setting{off: "landlock"}, unused: "landlock"},
	{name: "Landlock, user", setting: setting{user: true, off: "landlock"}, unused: "landlock"},
	{name: "seccomp", setting: setting{off: "seccomp"}, refused: map[string]string{"seccomp": "seccomp", "network": "seccomp"}, unused: "seccomp"},
	// Landlock does not bind root, and root without capabilities owns /proc/sys.
	{name: "mount", setting: setting{off: "newns"}, refused: noView("write", "network")},
	{name: "mount, user", setting: setting{user: true, off: "newns"}, refused: noView("write"), unused: "mount", landlock: true},
	{name: "mount and Landlock, user", setting: setting{user: true, off: "pivot_root,landlock"}, refused: noView("write")},
	{name: "PID namespaces", setting: setting{off: "newpid"}, refused: map[string]string{"processes": "processes"}, unused: "processes"},
	{name: "PID namespaces, user", setting: setting{user: true, off: "newpid"}, refused: map[string]string{"processes": "processes"}, unused: "processes"},
	{name: "network namespaces", setting: setting{off: "newnet"}, refused: map[string]string{"network": "network"}, unused: "network"},
	{name: "user namespaces, user", setting: noMoreNamespaces(), refused: noUserNamespaces(), unused: "mount", landlock: true},
	{name: "other users", setting: setting{off: "setgroups"}, refused: map[string]string{"user": "user"}, unused: "user"},
	{name: "cgroups", setting: noCgroups(), refused: map[string]string{"memory": "cgroup_memory"}},
}

// TestRefusesWhatItCannotEnforce switches off each thing that confines a session, and
// checks that session.create refuses what needs it before anything is started, and that
// a session without that works.
func TestRefusesWhatItCannotEnforce(t *testing.T) {
	var running sync.WaitGroup
	defer running.Wait()
	for two := range slices.Chunk(machines, 2) {
		for _, m := range two {
			running.Go(func() { t.Run("without "+m.name, m.check) })
		}
		running.Wait()
	}
}

func (m machine) check(t *testing.T) {
	r := start(t, m.setting)
	dir := filepath.Join(r.daemon.Dir, "work")
	if err := errors.Join(os.Mkdir(dir, 0o777), os.WriteFile(filepath.Join(dir, "secret"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if m.user {
		give(t, dir)
	}
	refused := maps.Clone(m.refused)
	if refused == nil {
		refused = map[string]string{}
	}
	if m.user {
		refused["user"] = "user" // only root can become another
	}
	if _, ok := refused["memory"]; !ok && !r.enforces("memory_bytes") {
		refused["memory"] = "cgroup_memory" // this machine can't either
	}
	var everything, rest api.SessionCreateParams
	everything.Cwd, rest.Cwd = dir, dir
	for _, name := range slices.Sorted(maps.Keys(members)) {
		ability, ok := refused[name]
		if name != "disk" { // only a session that can't write to disks can have it
			members[name](&everything, dir)
			if !ok {
				members[name](&rest, dir)
			}
		}
		if !ok {
			continue
		}
		var only api.SessionCreateParams
		members[name](&only, dir)
		r.refuses(t, name, only, ability)
	}
	delete(refused, "disk")
	for name, ability := range refused {
		r.refuses(t, "everything, for "+name, everything, ability)
	}
	if list, err := r.ListSessions(t.Context(), api.SessionListParams{}); err != nil || len(list.Sessions) > 0 {
		t.Errorf("%+v, %v", list, err)
	}
	r.awaitNothing()
	if m.landlock {
		files(&rest).Read, files(&rest).Write = []string{"/usr", "/etc", "/proc", "/dev"}, []string{dir}
	}
	s := r.create(rest)
	info, err := r.SessionInfo(t.Context(), api.SessionParams{SessionID: s.SessionID})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rest.Isolation.Names(), inForce(info)); diff != "" {
		t.Errorf("in force (-want +got)\n%s", diff)
	}
	if slices.Contains(info.Isolation.Mechanisms, m.unused) {
		t.Errorf("%s is off, but used: %v", m.unused, info.Isolation.Mechanisms)
	}
	if got := r.run(s.SessionID, "echo works").Stdout; got != "works\n" {
		t.Errorf("%q", got)
	}
	r.destroy(s.SessionID)
	r.awaitNothing()
}

// inForce returns the members of the isolation of a session.
func inForce(s *api.SessionInfo) []string {
	if s.Isolation == nil {
		return nil
	}
	return s.Isolation.Names()
}

// enforces reports whether the daemon says that it can enforce a limit.
func (r *rig) enforces(limit string) bool {
	r.t.Helper()
	info, err := r.SystemInfo(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return slices.Contains(info.Limits, limit)
}

// refuses checks that a session is refused because of an ability, and that nothing is
// started.
func (r *rig) refuses(t *testing.T, what string, p api.SessionCreateParams, ability string) {
	t.Helper()
	s, err := r.CreateSession(t.Context(), p)
	if err == nil {
		t.Errorf("%s is not refused: %+v", what, s)
		r.destroy(s.SessionID)
		return
	}
	if left := r.added(); len(left) > 0 {
		t.Errorf("%s: it was refused, but there are %v", what, left)
	}
	e := api.AsError(err)
	missing, _ := e.Details["missing"].([]any)
	reasons, _ := e.Details["reasons"].(map[string]any)
	if reason, _ := reasons[ability].(string); e.Code != api.CodeLimitsUnavailable || !slices.Contains(missing, any(ability)) || reason == "" || e.Hint == "" {
		t.Errorf("%s: %v, %v, want that %s is missing, and why", what, err, e.Details, ability)
	}
}
