//go:build linux && (amd64 || arm64)

package confined

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/without"
)

// long makes the tests complete, at the cost of many minutes.
var long = os.Getenv("TRL_LONG") == "1"

// withoutArg is the first argument of this program where it executes a daemon that has
// something switched off.
const withoutArg = "without"

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == withoutArg {
		program, err := exec.LookPath(os.Args[3])
		if err == nil {
			err = without.Exec(os.Args[2], append([]string{program}, os.Args[4:]...))
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	trltest.Main(m)
}

// someone is an ordinary user, who needs no entry in /etc/passwd.
const someone = 12345

// path has only directories that everyone can read: dash reports a program that it does
// not find differently if it can't read one of them.
const path = "/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// asSomeone executes a program as someone.
var asSomeone = []string{"setpriv", "--reuid=" + strconv.Itoa(someone), "--regid=" + strconv.Itoa(someone), "--clear-groups"}

// rig is a daemon under test with its own client.
type rig struct {
	*client.Client
	t      *testing.T
	daemon *trltest.Daemon
	before []trltest.Process // of the daemon, without sessions
}

// setting is what a daemon is started in.
type setting struct {
	user   bool     // someone, not root
	off    string   // what is switched off, see package without; "" means nothing
	prefix []string // a command that executes the daemon, see trltest.Config
	attr   *syscall.SysProcAttr
	env    []string
}

// start starts a daemon.
func start(t *testing.T, in setting) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		trltest.Need(t, errors.New("only root can run daemons of several users"))
	}
	dir, err := trltest.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	built, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // other users have sessions too
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "trl") // the test's binary may be in a directory of root
	if err := trltest.Install(built, binary); err != nil {
		t.Fatal(err)
	}
	prefix := in.prefix
	if in.user {
		prefix = slices.Concat(prefix, asSomeone)
		give(t, dir)
	}
	if in.off != "" {
		prefix = slices.Concat([]string{"/proc/self/exe", withoutArg, in.off}, prefix)
	}
	d, err := trltest.Start(trltest.Config{Dir: dir, Binary: binary, Prefix: prefix, Attr: in.attr, Env: append([]string{"PATH=" + path}, in.env...)})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, daemon: d}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		} else if t.Failed() {
			log := d.Log()
			t.Log(log[max(0, len(log)-4000):])
		}
	})
	// The client does not repeat calls: it would hide what the daemon does.
	if r.Client, err = client.DialWith(t.Context(), d.Socket, client.Options{Patience: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if _, err := r.SystemInfo(t.Context()); err != nil { // tries all abilities
		t.Fatal(err)
	}
	r.before = trltest.Descendants(d.PID)
	return r
}

// give makes someone the owner of everything in a directory.
func give(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, someone, someone))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// added returns the processes of the daemon that sessions have added.
func (r *rig) added() []trltest.Process {
	return slices.DeleteFunc(trltest.Descendants(r.daemon.PID), func(p trltest.Process) bool {
		return slices.ContainsFunc(r.before, func(q trltest.Process) bool { return p.PID == q.PID })
	})
}

// awaitNothing waits until no process of a session is left, not even a zombie.
func (r *rig) awaitNothing() {
	r.t.Helper()
	defer func() {
		if r.t.Failed() {
			r.t.Log("left:", r.added())
		}
	}()
	trltest.Eventually(r.t, "no process of a session is left", func() bool { return len(r.added()) == 0 })
}

// create creates a session.
func (r *rig) create(p api.SessionCreateParams) *api.Session {
	r.t.Helper()
	s, err := r.CreateSession(r.t.Context(), p)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// run runs a command, which must be accepted.
func (r *rig) run(session, command string) *api.ExecResult {
	r.t.Helper()
	result, err := r.Run(r.t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session, Command: command}})
	if err != nil {
		r.t.Fatalf("%s: %v", command, err)
	}
	return result
}

// destroy ends a session, of which nothing must be left.
func (r *rig) destroy(session string) {
	r.t.Helper()
	gone, err := r.DestroySession(r.t.Context(), api.SessionDestroyParams{SessionID: session, Force: true})
	if err != nil || len(gone.Survivors) > 0 {
		r.t.Errorf("%+v, %v", gone, err)
	}
}
