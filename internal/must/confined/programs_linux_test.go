//go:build linux && (amd64 || arm64)

package confined

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/profile"
)

// program is what people run in a workspace.
type program struct {
	name, script, want string
	// offline is what the program says where it has no network, and refused what it
	// says where the allow-list does not have its registry. Both are "" if it needs none.
	offline, refused string
}

// programs returns them. Each script begins in a directory of its own. Go would use the
// modules in the home directory, which can be read but not added to.
func programs(at *registries) []program {
	return []program{
		{"gcc", `printf '#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n' >a.c && gcc -O2 -o a a.c && ./a`, "compiled\n", "", ""},
		{"make", `printf 'all: b\n\t@cat b\nb: a\n\t@tr a b <a >b\n' >Makefile && echo aaa >a && make -s -j2`, "bbb\n", "", ""},
		{"python", `python3 -c 'import multiprocessing, sqlite3, tempfile
with tempfile.NamedTemporaryFile() as f, multiprocessing.Pool(2) as p:
    print(sqlite3.connect(f.name).execute("select 6*7").fetchone()[0], p.map(abs, [-1, -2]))'`, "42 [1, 2]\n", "", ""},
		{"node", `node -e 'const w = require("worker_threads"); new w.Worker("require(\"worker_threads\").parentPort.postMessage(require(\"child_process\").execSync(\"echo from a child\") + \"\")", {eval: true}).on("message", m => process.stdout.write(m))'`, "from a child\n", "", ""},
		{
			"git", `git clone -q https://` + gitHost + ":" + at.secure + `/project.git && cd project && make -s && ./hello && echo x >x && git add x && git -c user.name=x -c user.email=x@example.org commit -qm x && git log --format=%s`,
			"compiled\nx\nfirst\n", "Could not resolve host: " + gitHost, "403",
		},
		{"npm", `npm install --no-audit --no-fund --loglevel=error --fetch-retries=0 --registry https://` + npmHost + ":" + at.secure + ` greeting >&2 && node -p 'require("greeting")'`, "from npm\n", "EAI_AGAIN", "403"},
		{
			"pip", `{ [ -d ../v ] || python3 -m venv ../v; } && ../v/bin/pip install -q --disable-pip-version-check --retries 1 --target . --index-url https://` + pipHost + ":" + at.secure + `/simple greeting && PYTHONPATH=. ../v/bin/python -c 'import greeting; print(greeting.text)'`,
			"from pip\n", "name resolution", "403",
		},
		{
			"go", `export GOMODCACHE=$TMPDIR/modules GOPROXY=http://` + goHost + ":" + at.plain + ` GOSUMDB=off GOTOOLCHAIN=local GOFLAGS=-modcacherw
go mod init example.test/m
printf 'package main\n\nimport "example.test/greeting"\n\nfunc main() { println(greeting.Text) }\n' >main.go
go get example.test/greeting@v1.0.0 && go build -o m . && ./m 2>&1`,
			"from go\n", "dial tcp", "403",
		},
	}
}

// workspace returns what the profile workspace stands for, with other registries. A
// profile can only be narrowed, so its members are written out: they are those of the
// profile, but for the allow-list.
func workspace(t *testing.T, at profile.Base, allow []string) *api.Isolation {
	t.Helper()
	i, err := profile.Named(api.ProfileWorkspace, at)
	if err != nil {
		t.Fatal(err)
	}
	i.Network = &api.Network{Allow: allow}
	i.Filesystem.Deny = slices.DeleteFunc(i.Filesystem.Deny, func(path string) bool { // as the daemon does
		_, err := os.Lstat(path)
		return err != nil
	})
	return &i
}

// newHome makes a home directory for someone, with a directory for work. It is not in
// /tmp, which a workspace has of its own.
func newHome(t *testing.T) profile.Base {
	t.Helper()
	home, err := os.MkdirTemp("/var/lib", "home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	at := profile.Base{Home: home, Cwd: filepath.Join(home, "work")}
	if err := os.Mkdir(at.Cwd, 0o755); err != nil {
		t.Fatal(err)
	}
	give(t, home)
	return at
}

// TestWorkspace builds, tests and installs with real programs in a workspace, and
// checks what they say without their network.
func TestWorkspace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute: skipped with -short")
	}
	base := newHome(t)
	r := start(t, setting{user: true, env: []string{"HOME=" + base.Home}})
	at := serveRegistries(t, base.Cwd)
	env := api.Env{"GIT_SSL_CAINFO": at.authority, "npm_config_cafile": at.authority, "PIP_CERT": at.authority}
	for _, c := range []struct {
		name      string
		isolation *api.Isolation
		says      func(program) string
	}{
		{"allowed", workspace(t, base, at.allow()), func(program) string { return "" }},
		{"refused", &api.Isolation{Profile: api.ProfileWorkspace}, func(p program) string { return p.refused }},
		{"offline", &api.Isolation{Profile: api.ProfileOffline}, func(p program) string { return p.offline }},
	} {
		s := r.create(api.SessionCreateParams{Cwd: base.Cwd, Isolation: c.isolation, Shell: "bash", Env: env})
		for _, p := range programs(at) {
			t.Run(c.name+" "+p.name, func(t *testing.T) {
				got := r.run(s.SessionID, "cd "+base.Cwd+" && mkdir "+c.name+"-"+p.name+" && cd "+c.name+"-"+p.name+" && "+p.script)
				switch says := c.says(p); {
				case says == "" && (got.ExitCode == nil || *got.ExitCode != 0 || got.Stdout != p.want):
					t.Errorf("%+v", got)
				case says != "" && (got.ExitCode == nil || *got.ExitCode == 0 || !strings.Contains(got.Stderr, says)):
					t.Errorf("%+v, want an error with %q", got, says)
				}
				t.Logf("%d ms; stderr %.300q", got.DurationMS, got.Stderr)
			})
		}
		r.destroy(s.SessionID)
	}
	r.awaitNothing()
}

// TestOwnProject runs the tests of this project that most changes break, in the profile
// offline: the modules are in the home directory, and everything is built anew.
func TestOwnProject(t *testing.T) {
	if !long {
		t.Skip("takes minutes: set TRL_LONG=1")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/var/lib", "work-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	project := filepath.Join(dir, "project")
	if out, err := exec.Command("git", "-c", "safe.directory=*", "clone", "-q", "--no-hardlinks", "../../..", project).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := start(t, setting{env: []string{"HOME=" + home}})
	s := r.create(api.SessionCreateParams{Cwd: project, Isolation: &api.Isolation{Profile: api.ProfileOffline}, Shell: "bash"})
	got := r.run(s.SessionID, "make quick 2>&1")
	if got.ExitCode == nil || *got.ExitCode != 0 {
		t.Errorf("%+v", got)
	}
	t.Logf("%d ms\n%s", got.DurationMS, got.Stdout)
	r.destroy(s.SessionID)
	r.awaitNothing()
}
