package cell

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/confine"
	"github.com/terminal-runtime/trl/internal/place"
	"github.com/terminal-runtime/trl/internal/state"
)

// able returns a machine that has these abilities, for root.
func able(dir string, names ...string) machine {
	m := machine{
		dir: dir, env: []string{"HOME=/root", "TMPDIR=/elsewhere"}, hide: []string{filepath.Join(dir, "socket"), "/no/such"},
		sockets:   func() ([]string, error) { return []string{filepath.Join(dir, "agent"), "/run/agent"}, nil },
		abilities: confine.Abilities{ABI: 7, Privileged: true},
		cgroups:   []api.Ability{{Name: "cgroup_memory", Available: true}, {Name: "cgroup_pids", Reason: "no controller", Hint: "delegate it"}},
		lookup: func(name string) (*account, error) {
			if name != "agent" {
				return nil, errors.New("no such user")
			}
			return &account{name: "agent", home: "/home/agent", uid: 1000, gid: 100, groups: []int{100, 20}}, nil
		},
	}
	for _, name := range names {
		m.abilities.List = append(m.abilities.List, confine.Ability{Name: name, Available: true})
	}
	return m
}

var everything = []string{
	confine.AbilityMount, confine.AbilityNetwork, confine.AbilityProcesses, confine.AbilityDisk, confine.AbilityLandlock,
	confine.AbilitySeccomp, confine.AbilityUser,
}

// TestPlan: what a caller asks for becomes what package confine is asked for.
func TestPlan(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(dir, "work")
	for _, path := range []string{filepath.Join(work, ".git", "hooks"), filepath.Join(work, "sub")} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("work", filepath.Join(dir, "link")), os.WriteFile(filepath.Join(dir, "socket"), nil, 0o600), os.WriteFile(filepath.Join(dir, "agent"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=/root", "TMPDIR=/elsewhere"}
	hide := []string{filepath.Join(dir, "socket"), filepath.Join(dir, "agent")}
	for name, tc := range map[string]struct {
		params api.SessionCreateParams
		spec   confine.Spec
		inner  api.SessionCreateParams
		limits *api.LimitsInForce
	}{
		"nothing but no_new_privs": {
			params: api.SessionCreateParams{Isolation: &api.Isolation{NoNewPrivs: true}, Key: "k", Name: "n", Runtime: "host"},
			spec:   confine.Spec{NoNewPrivs: true, Env: env, Dir: dir},
			inner:  api.SessionCreateParams{Name: "n"},
		},
		"links are resolved, and the first writable directory is the default": {
			params: api.SessionCreateParams{Isolation: &api.Isolation{Filesystem: &api.Filesystem{Write: []string{dir + "/link", work}, Deny: []string{"/root"}}}},
			spec: confine.Spec{
				NoNewPrivs: true, Dir: work, Hide: hide, Env: []string{"HOME=/root", "TMPDIR=" + work},
				Files: &confine.Files{Write: []string{work}, Deny: []string{"/root"}}, Protect: []confine.Protected{{Path: work + "/.git/hooks"}},
			},
		},
		"nothing writable: a private directory for temporary files": {
			params: api.SessionCreateParams{Isolation: &api.Isolation{Filesystem: &api.Filesystem{}}},
			spec:   confine.Spec{NoNewPrivs: true, Dir: "/", Hide: hide, Env: []string{"HOME=/root", "TMPDIR=/tmp"}, Files: &confine.Files{PrivateTmp: true}},
			inner:  api.SessionCreateParams{Env: api.Env{"XDG_CACHE_HOME": "/tmp/.cache", "npm_config_cache": "/tmp/.cache/npm"}},
		},
		"a relative cwd begins at the daemon's": {
			params: api.SessionCreateParams{Cwd: "link/sub", Isolation: &api.Isolation{Network: &api.Network{Mode: api.NetworkNone}, Processes: "own", Seccomp: "default"}},
			spec:   confine.Spec{NoNewPrivs: true, Dir: work + "/sub", Hide: hide, Env: env, Network: confine.NetworkNone, Processes: true, Seccomp: true},
			inner:  api.SessionCreateParams{Cwd: work + "/sub"},
		},
		"another user": {
			params: api.SessionCreateParams{Isolation: &api.Isolation{User: "agent"}},
			spec: confine.Spec{
				NoNewPrivs: true, Dir: "/", Hide: hide, Env: []string{"TMPDIR=/elsewhere", "HOME=/home/agent", "USER=agent", "LOGNAME=agent"},
				User: &confine.User{UID: 1000, GID: 100, Groups: []int{100, 20}},
			},
		},
		"limits are split": {
			params: api.SessionCreateParams{Isolation: &api.Isolation{NoNewPrivs: true}, Limits: &api.Limits{MemoryBytes: 1 << 30, OpenFiles: 100, WallMS: 5}},
			spec:   confine.Spec{NoNewPrivs: true, Env: env, Dir: dir},
			inner:  api.SessionCreateParams{Limits: &api.Limits{OpenFiles: 100, WallMS: 5}},
			limits: &api.LimitsInForce{Limits: api.Limits{MemoryBytes: 1<<30 + place.MemoryOfTRL}},
		},
	} {
		p, err := able(dir, everything...).plan(tc.params)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tc.spec, p.spec) + cmp.Diff(tc.inner, p.inner) + cmp.Diff(tc.limits, p.limits); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if p.inside.Isolation == nil || !p.inside.Isolation.NoNewPrivs {
			t.Errorf("%s: in force is %+v", name, p.inside.Isolation)
		}
	}
}

// TestPlanRefuses: what can't be enforced is refused by name, all of it at once.
func TestPlanRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		abilities []string
		params    api.SessionCreateParams
		code      api.Code
		details   map[string]any
	}{
		"everything that is missing": {
			params: api.SessionCreateParams{
				Isolation: &api.Isolation{Network: &api.Network{Mode: api.NetworkNone}, Seccomp: "default"}, Limits: &api.Limits{PIDs: 10, MemoryBytes: 1 << 30},
			},
			abilities: []string{confine.AbilityMount},
			code:      api.CodeLimitsUnavailable,
			details: map[string]any{
				"limits": []string{"pids"}, "isolation": []string{"network", "seccomp"}, "missing": []string{"network", "seccomp", "cgroup_pids"},
				"reasons": map[string]string{"network": "not available", "seccomp": "not available", "cgroup_pids": "no controller"},
			},
		},
		"root without a mount namespace": {
			params: api.SessionCreateParams{Isolation: &api.Isolation{Filesystem: &api.Filesystem{}}}, abilities: []string{confine.AbilityLandlock},
			code:    api.CodeLimitsUnavailable,
			details: map[string]any{"isolation": []string{"filesystem"}, "missing": []string{"mount"}, "reasons": map[string]string{"mount": "not available"}},
		},
		"a relative path": {
			params: api.SessionCreateParams{Isolation: &api.Isolation{Filesystem: &api.Filesystem{Read: []string{"x"}}}}, abilities: everything,
			code: api.CodeInvalidParams, details: map[string]any{"field": "isolation.filesystem.read"},
		},
		"no such user": {
			params: api.SessionCreateParams{Isolation: &api.Isolation{User: "x"}}, abilities: everything,
			code: api.CodeInvalidParams, details: map[string]any{"field": "isolation.user"},
		},
	} {
		_, err := able(dir, tc.abilities...).plan(tc.params)
		if !api.IsCode(err, tc.code) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tc.details, api.AsError(err).Details); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if api.AsError(err).Hint == "" {
			t.Errorf("%s: no hint", name)
		}
	}
}

// TestPlanWithoutView: where only Landlock confines, a session is refused if something
// is within its reach that no confined session may reach.
func TestPlanWithoutView(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	work, repository, state := filepath.Join(dir, "work"), filepath.Join(dir, "repository"), filepath.Join(dir, "state")
	if err := errors.Join(os.Mkdir(work, 0o755), os.MkdirAll(filepath.Join(repository, ".git", "hooks"), 0o755), os.Mkdir(state, 0o700)); err != nil {
		t.Fatal(err)
	}
	agent := filepath.Join(dir, "agent.sock")
	l, err := net.Listen("unix", agent)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, tc := range map[string]struct {
		hide    []string
		files   api.Filesystem
		refused bool
	}{
		"nothing to hide":            {files: api.Filesystem{Write: []string{work}}},
		"readable state":             {hide: []string{state}, files: api.Filesystem{Write: []string{work}}, refused: true},
		"state out of reach":         {hide: []string{state}, files: api.Filesystem{Read: []string{"/usr"}, Write: []string{work}}},
		"state below a list":         {hide: []string{state}, files: api.Filesystem{Read: []string{dir}}, refused: true},
		"a socket is always reached": {hide: []string{agent}, files: api.Filesystem{Read: []string{"/usr"}}, refused: true},
		"a path that is missing":     {hide: []string{"/no/such"}, files: api.Filesystem{Write: []string{work}}},
		"a protected path":           {files: api.Filesystem{Write: []string{repository}}, refused: true},
	} {
		m := able(dir, confine.AbilityLandlock)
		m.abilities.UID, m.hide = 1000, tc.hide
		_, err := m.plan(api.SessionCreateParams{Isolation: &api.Isolation{Filesystem: &tc.files}})
		if tc.refused != api.IsCode(err, api.CodeLimitsUnavailable) || !tc.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRecord: records survive, and an older reader gets what it knows of a newer one.
func TestRecord(t *testing.T) {
	r := record{name: "abc", tree: 7, pid: 99, way: 1001, proxy: 1002, denials: 1003, ended: true}
	r.session.Number, r.session.Owner, r.session.Key, r.session.Sum = 3, "root/x", "k", 5
	r.session.Last = api.Session{SessionID: "s-abc-1", State: api.StateIdle, Isolation: &api.IsolationInForce{Isolation: api.Isolation{NoNewPrivs: true}}}
	text := state.Encode(func(c *state.Coder) {
		r.fields(c)
		future := "of a later version"
		state.Text(c, 99, &future)
	})
	var got record
	if err := state.Decode(text, got.fields); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got, cmp.AllowUnexported(record{})); diff != "" {
		t.Error(diff)
	}
	text = state.Encode((&record{name: "abc"}).fields)
	if got = (record{}); state.Decode(text, got.fields) != nil || got.name != "abc" || got.session.Last.SessionID != "" {
		t.Errorf("a cell without a session: %+v", got)
	}
}
