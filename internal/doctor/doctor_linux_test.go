package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) {
	process.RunChild() // for the cgroup check
	os.Exit(m.Run())
}

// healthyTarget returns a target without problems, in its own directory, without a
// daemon.
func healthyTarget(t *testing.T) Target {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return Target{
		Version: "v1", Socket: filepath.Join(dir, "s"), TokenFile: filepath.Join(dir, "tokens.json"), SpillDir: dir,
		MaxSessions: 1, TotalQuota: 1, Quote: func(s string) string { return s },
		Info:   func(context.Context) (*api.SystemInfo, error) { return nil, errors.New("unexpected call of Info") },
		Holder: func() (int, bool) { return 0, false },
	}
}

// expect checks a finding: its message and command must contain the words.
func expect(t *testing.T, got Finding, grade Grade, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(got.Message+" → "+got.Run, w) {
			t.Errorf("%s: %q → %q does not contain %q", got.Check, got.Message, got.Run, w)
		}
	}
	if got.Grade != grade {
		t.Errorf("%s is a %s (%s), want %s", got.Check, got.Grade, got.Message, grade)
	}
	if got.Grade == Problem && got.Run == "" {
		t.Errorf("%s: a problem without a command: %s", got.Check, got.Message)
	}
}

// dialed returns an Info function that only connects, and returns info.
func dialed(socket string, info *api.SystemInfo) func(context.Context) (*api.SystemInfo, error) {
	return func(ctx context.Context) (*api.SystemInfo, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		return info, conn.Close()
	}
}

func TestTimeLimits(t *testing.T) {
	p := healthyTarget(t)
	expect(t, p.timeLimits(nil), Note, "neither idle_ttl_ms nor default_timeout_ms is set", "TRL_IDLE_TTL_MS=")
	p.IdleTTLMS = 3_600_000
	expect(t, p.timeLimits(nil), OK, "TTL of sessions: 1h0m0s", "timeout of commands: none")
	// The running daemon's settings count, not those that the next one would use.
	with := func(timeout, ttl float64) *api.SystemInfo {
		return &api.SystemInfo{Config: map[string]any{"default_timeout_ms": timeout, "idle_ttl_ms": ttl}}
	}
	expect(t, p.timeLimits(with(0, 0)), Note, "neither")
	expect(t, p.timeLimits(with(1000, 0)), OK, "timeout of commands: 1s")
}

func TestDaemon(t *testing.T) {
	p := healthyTarget(t)
	f, _ := p.daemon(t.Context())
	expect(t, f, Note, "none is serving", "trl serve --socket "+p.Socket)

	lock, err := os.Create(p.Socket + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	f, _ = p.daemon(t.Context())
	expect(t, f, Problem, "starts, stops or hangs")
	lock.Close()

	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: p.Socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	p.Info = dialed(p.Socket, &api.SystemInfo{Version: "v1", PID: 7})
	f, info := p.daemon(t.Context())
	expect(t, f, OK, "version v1", "pid 7")
	if info == nil {
		t.Error("no info from a daemon that answered")
	}
	p.Version = "v2"
	f, _ = p.daemon(t.Context())
	expect(t, f, Note, "version v1 answers", "but this program is version v2")
	l.Close()
	f, _ = p.daemon(t.Context())
	expect(t, f, Note, "left by a daemon that is gone", "trl serve")

	p.Info = func(context.Context) (*api.SystemInfo, error) { return nil, context.DeadlineExceeded }
	f, _ = p.daemon(t.Context())
	expect(t, f, Problem, "does not answer", "kill -ABRT")
	p.Info = func(context.Context) (*api.SystemInfo, error) { return nil, fmt.Errorf("dial: %w", syscall.EACCES) }
	f, _ = p.daemon(t.Context())
	expect(t, f, Problem, "is for its owner", "sudo")

	if err := errors.Join(os.Remove(p.Socket), os.WriteFile(p.Socket, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	f, _ = p.daemon(t.Context())
	expect(t, f, Problem, "in the way", "mv ")
}

func TestSessions(t *testing.T) {
	sessions := []api.Session{{SessionID: "s-1"}, {SessionID: "s-2"}}
	p := Target{Sessions: func(context.Context) ([]api.Session, error) { return sessions, nil }}
	expect(t, p.sessions(t.Context()), OK, "2; the daemon can read them all")
	sessions[1].Unreadable = "its record is damaged"
	expect(t, p.sessions(t.Context()), Problem, "could not take over 1 of 2: s-2", "trl session info s-2")
	sessions[1].Terminated = &api.Terminated{}
	expect(t, p.sessions(t.Context()), OK, "read them all")
	p.Sessions = func(context.Context) ([]api.Session, error) { return nil, context.DeadlineExceeded }
	expect(t, p.sessions(t.Context()), Problem, "does not list")
}

func TestPermissions(t *testing.T) {
	p := healthyTarget(t)
	dir := filepath.Dir(p.Socket)
	chmod := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, p.directory(), OK, dir)
	chmod(dir, 0o777)
	expect(t, p.directory(), Problem, "others may write", "chmod go-w "+dir)
	chmod(dir, 0o700)
	missing := p
	missing.Socket = filepath.Join(dir, "a", "b", "s")
	expect(t, missing.directory(), OK, "will be created")
	missing.Socket = "/dev/null/a/s"
	expect(t, missing.directory(), Problem, "not a directory", "--socket")
	if os.Geteuid() != 0 { // root may write anywhere
		missing.Socket = "/proc/a/s"
		expect(t, missing.directory(), Problem, "can't be created", "--socket")
	}

	expect(t, p.config(), OK, "no file")
	p.ConfigFile = filepath.Join(dir, "config.toml")
	expect(t, p.config(), Problem, "no such file")
	if err := os.WriteFile(p.ConfigFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	chmod(p.ConfigFile, 0o644)
	expect(t, p.config(), OK, p.ConfigFile)
	chmod(p.ConfigFile, 0o664)
	expect(t, p.config(), Problem, "others may write", "chmod go-w "+p.ConfigFile)

	expect(t, p.tokens(), OK, "none")
	if err := os.WriteFile(p.TokenFile, []byte(`{"version":1,"tokens":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, p.tokens(), OK, "0 in ")
	chmod(p.TokenFile, 0o644)
	expect(t, p.tokens(), Problem, "chmod 600 "+p.TokenFile)
	if os.Geteuid() == 0 {
		chmod(p.ConfigFile, 0o600)
		if err := os.Chown(p.ConfigFile, 12345, -1); err != nil {
			t.Fatal(err)
		}
		expect(t, p.config(), Problem, "belongs to uid 12345", "chown 0")
	}
}

func TestSpill(t *testing.T) {
	p := healthyTarget(t)
	p.SpillDir = "/no/such/directory"
	expect(t, p.spill(), Problem, "no such file", "mkdir -p")
	p.SpillDir = "/proc/self"
	expect(t, p.spill(), Problem, "can't write there")
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		trltest.Need(t, fmt.Errorf("a file system to fill: %w", err))
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	p.SpillDir = dir
	expect(t, p.spill(), Problem, "has 1 MiB free", "df -h "+dir)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=512m"); err != nil {
		t.Fatal(err)
	}
	expect(t, p.spill(), Note, "has 512 MiB free and is in memory")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the check left %v, %v", left, err)
	}
}

// fakeHost returns a host that reads the given files.
func fakeHost(t *testing.T, files map[string]string) host {
	h := host{root: t.TempDir(), process: "self", uid: 1000, maxSessions: 10_000}
	for name, text := range files {
		name = filepath.Join(h.root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func limits(files, processes string) string {
	return "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             1024                 " + processes + "                processes \n" +
		"Max open files            1024                 " + files + "               files     "
}

func TestOtherMachines(t *testing.T) {
	const enough, none = "1048576", "unlimited"
	type files map[string]string
	for name, c := range map[string]struct {
		files files
		check func(host) Finding
		grade Grade
		words []string
	}{
		"new kernel":     {files{"proc/sys/kernel/osrelease": "6.1.0-13-amd64"}, host.kernel, OK, []string{"6.1.0"}},
		"kernel for now": {files{"proc/sys/kernel/osrelease": "5.10.0"}, host.kernel, Note, []string{"by tags"}},
		"old kernel":     {files{"proc/sys/kernel/osrelease": "4.19.0"}, host.kernel, Problem, []string{"older than 5.3"}},
		"no kernel":      {nil, host.kernel, Problem, []string{"uname"}},

		"enough descriptors": {files{"proc/self/limits": limits(enough, none), "proc/sys/fs/file-max": "9223372036854775807"}, host.descriptors, OK, []string{"87289 busy"}},
		"few descriptors":    {files{"proc/self/limits": limits("65536", none)}, host.descriptors, Note, []string{"65536", "5369 busy", "LimitNOFILE"}},
		"no descriptors":     {files{"proc/self/limits": limits("1024", none)}, host.descriptors, Problem, []string{"LimitNOFILE"}},
		"a small machine":    {files{"proc/self/limits": limits(enough, none), "proc/sys/fs/file-max": "40000"}, host.descriptors, Note, []string{"half of fs.file-max", "sysctl"}},
		"a low ceiling":      {files{"proc/self/limits": limits(enough, none), "proc/sys/fs/nr_open": "4096"}, host.descriptors, Note, []string{"fs.nr_open", "249 busy"}},

		"enough processes": {files{"proc/self/limits": limits(enough, none), "proc/sys/kernel/pid_max": "4194304"}, host.tasks, OK, []string{"kernel.pid_max"}},
		"few pids":         {files{"proc/self/limits": limits(enough, none), "proc/sys/kernel/pid_max": "32768"}, host.tasks, Note, []string{"8176 busy", "kernel.pid_max=4194304"}},
		"few of a user":    {files{"proc/self/limits": limits(enough, "2064"), "proc/sys/kernel/pid_max": "32768"}, host.tasks, Note, []string{"500 busy", "LimitNPROC"}},
		"few of a cgroup": {files{
			"proc/self/limits": limits(enough, none), "proc/self/cgroup": "0::/a.slice/b.service",
			"sys/fs/cgroup/a.slice/pids.max": "100", "sys/fs/cgroup/a.slice/b.service/pids.max": "max",
		}, host.tasks, Problem, []string{"pids.max", "TasksMax"}},
		"few of an old cgroup": {files{
			"proc/self/limits": limits(enough, none), "proc/self/cgroup": "8:pids:/x\n0::/", "sys/fs/cgroup/pids/x/pids.max": "4064",
		}, host.tasks, Note, []string{"1000 busy"}},

		"memory":        {files{"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:  2097152 kB"}, host.memory, OK, []string{"2048 MiB"}},
		"little memory": {files{"proc/meminfo": "MemAvailable:  20480 kB"}, host.memory, Problem, []string{"20 MiB"}},
		"a small cgroup": {files{
			"proc/meminfo": "MemAvailable:  2097152 kB", "proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "33554432",
		}, host.memory, Problem, []string{"is limited to 32 MiB"}},
		"overcommit": {files{"proc/meminfo": "MemAvailable:  2097152 kB", "proc/sys/vm/overcommit_memory": "2"}, host.memory, Note, []string{"overcommit"}},

		"no proc":       {nil, host.proc, Problem, []string{"mount -t proc"}},
		"proc":          {files{"proc/self/stat": "1", "proc/self/mountinfo": "20 1 0:4 / /proc rw - proc proc rw"}, host.proc, OK, nil},
		"hidden":        {files{"proc/self/stat": "1", "proc/self/mountinfo": "20 1 0:4 / /proc rw - proc proc rw,hidepid=2"}, host.proc, Note, []string{"hidepid=2"}},
		"well hidden":   {files{"proc/self/stat": "1", "proc/self/mountinfo": "20 1 0:4 / /proc rw - proc proc rw,hidepid=ptraceable"}, host.proc, Problem, []string{"remount"}},
		"yama":          {files{"proc/sys/kernel/yama/ptrace_scope": "1"}, host.yama, Note, []string{"yield_on_input"}},
		"yama is off":   {files{"proc/sys/kernel/yama/ptrace_scope": "0"}, host.yama, OK, nil},
		"no container":  {nil, host.container, OK, nil},
		"docker":        {files{".dockerenv": ""}, host.container, Note, []string{"docker"}},
		"in kubernetes": {files{"proc/1/cgroup": "0::/kubepods/pod1"}, host.container, Note, []string{"kubernetes"}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, c.check(fakeHost(t, c.files)), c.grade, c.words...) })
	}
}

// Examine runs every check on this machine, and changes nothing.
func TestExamine(t *testing.T) {
	p := healthyTarget(t)
	before, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]Finding{}
	for _, f := range Examine(t.Context(), p) {
		if f.Grade == Problem && f.Run == "" || f.Message == "" || strings.Contains(f.Message, "%!") || strings.Contains(f.Message, "\n") {
			t.Errorf("%+v", f)
		}
		seen[f.Check] = f
	}
	for _, check := range []string{
		"daemon", "socket directory", "configuration", "tokens", "kernel", "system calls", "cgroups", "descriptors", "processes",
		"memory", "spill directory", "/proc", "ptrace", "out of memory", "container", "shells", "clock",
	} {
		if _, ok := seen[check]; !ok {
			t.Errorf("no check of %s", check)
		}
	}
	expect(t, seen["shells"], OK, "sh (", "bash 5.", "zsh 5.", "ash 1.")
	if after, err := os.ReadFile("/proc/self/oom_score_adj"); err != nil || !bytes.Equal(after, before) {
		t.Errorf("oom_score_adj was %s and is %s, %v", before, after, err)
	}
	if left, err := os.ReadDir(filepath.Dir(p.Socket)); err != nil || len(left) > 0 {
		t.Errorf("Examine left %v, %v", left, err)
	}
}
