//go:build linux && (amd64 || arm64)

package confine

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// check runs a script in a confinement and compares its output.
func check(t *testing.T, s Spec, want string) {
	t.Helper()
	out, _ := run(t, s)
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(out)); diff != "" {
		t.Errorf("%s: (-want +got)\n%s", s.Args[len(s.Args)-1], diff)
	}
}

// tree makes files and directories, whose names end in a slash, and returns where.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		p := filepath.Join(dir, n)
		if strings.HasSuffix(n, "/") {
			err = os.MkdirAll(p, 0o755)
		} else {
			err = errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(n+"\n"), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestIdentity(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		s := script("grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups)' /proc/self/status; id -u; readlink /proc/self; ls /proc/self/fd | wc -l; ulimit -n; cat /proc/self/oom_score_adj")
		s.Files, s.Seccomp, s.Program = &Files{PrivateTmp: true}, true, "/usr/bin/dash"
		s.OpenFiles, s.OOMScoreAdj = 77, 500
		uid := "12345"
		if os.Getuid() == 0 {
			s.User = &User{UID: 999, GID: 998, Groups: []int{997}}
			uid = "999"
		}
		out, _ := run(t, s)
		for _, line := range []string{
			"CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\n",
			"NoNewPrivs:\t1\nSeccomp:\t2\n", "\n" + uid + "\n", "\n4\n77\n500\n",
		} {
			if !strings.Contains(out, line) {
				t.Errorf("%q is missing in:\n%s", line, out)
			}
		}
		if s.User != nil && !strings.Contains(out, "Groups:\t997 ") {
			t.Errorf("the groups are wrong:\n%s", out)
		}
	})
}

func TestOnlyNoNewPrivs(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		before, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		var caps string
		for line := range strings.Lines(string(before)) {
			if strings.HasPrefix(line, "CapEff") {
				caps = line
			}
		}
		s := script("grep -E '^(CapEff|NoNewPrivs)' /proc/self/status")
		s.NoNewPrivs, s.Program = true, "/usr/bin/dash"
		check(t, s, caps+"NoNewPrivs:\t1")
		if diff := cmp.Diff(Force{Mechanisms: []string{"no_new_privs"}}, probeOnce().InForce(s)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestReadAndWrite(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		dir := tree(t, "r/f", "w/f", "w/ro/f", "secret/f", "secret/open/f", "key")
		s := script("cd " + dir + `
ls; cat r/f; cat w/f
(echo x > r/f) 2>/dev/null || echo r no; (touch r) 2>/dev/null || echo touch no; (chmod 700 r/f) 2>/dev/null || echo chmod no
echo x > w/f && mkdir w/d && mv w/f w/d/f && ln w/d/f w/g && cat w/g
(echo x > w/ro/f) 2>/dev/null || echo w/ro no
ls secret 2>/dev/null || echo ls no; cat secret/f 2>/dev/null || echo cat no; cat secret/open/f; chmod 755 secret 2>/dev/null || echo chmod no
cat key 2>/dev/null || echo key no; rm -f key 2>/dev/null || echo rm no; (echo x > /usr/x) 2>/dev/null || echo usr no`)
		s.Files = &Files{
			Write: []string{dir + "/w", dir + "/secret/open"}, Read: []string{"/usr", "/etc", dir + "/r", dir + "/key", dir + "/w/ro", dir + "/secret"},
			Deny: []string{dir + "/secret", dir + "/key"},
		}
		want := "key\nr\nsecret\nw\nr/f\nw/f\nr no\ntouch no\nchmod no\nx\nw/ro no\nls no\ncat no\nsecret/open/f\nchmod no\nkey no\nrm no\nusr no"
		check(t, s, want)
		s = script("ls /; ls /dev; ls -A /tmp; cat /proc/self/mountinfo | grep -c ' /sys'")
		s.Files = &Files{Read: []string{"/usr"}}
		out, _ := run(t, s)
		if got := strings.Join(strings.Fields(out), " "); !strings.HasPrefix(got, "bin dev lib") || strings.Contains(got, "etc") || !strings.Contains(got, "proc sbin usr fd full null") {
			t.Errorf("the view has other files: %s", got)
		}
	})
}

func TestProtect(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		dir := tree(t, "w/.git/hooks/h", "w/.git/config", "w/a/.git/hooks/", "w/f")
		s := script("cd " + dir + `/w
no() { "$@" 2>/dev/null && echo DID "$@"; }
no touch .git/hooks/x; no rm .git/hooks/h; no mv .git .git2; no mv .git/hooks .git/h2; no rm -r .git/hooks; no mv a b; no mv a/.git a/b; no cp f .git/config; no mv f .git/config
no ln .git/config g; no mkdir .vscode/x; no mv .vscode b; no rmdir .vscode; no touch .mcp.json/x; (echo x >.mcp.json) 2>/dev/null; no rm .mcp.json
echo x > .git/index && mkdir a/d && touch f && ls -A`)
		s.Files = &Files{Write: []string{dir + "/w"}}
		for _, p := range []string{".git/hooks", ".git/config", "a/.git/hooks", ".idea", "no/.git/hooks"} {
			s.Protect = append(s.Protect, Protected{Path: dir + "/w/" + p})
		}
		s.Protect = append(s.Protect, Protected{Path: dir + "/w/.vscode", Create: "dir"}, Protected{Path: dir + "/w/.mcp.json", Create: "file"})
		check(t, s, ".git\n.mcp.json\n.vscode\na\nf")
		if text, err := os.ReadFile(dir + "/w/.mcp.json"); err != nil || len(text) > 0 {
			t.Errorf("the placeholder is %q, %v", text, err)
		}
	})
}

// TestPlaceholder checks that placeholders belong to the user of the program.
func TestPlaceholder(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := tree(t, "w/", "closed/")
	for p := dir; p != "/tmp"; p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir+"/w", testUser, testUser); err != nil {
		t.Fatal(err)
	}
	defer syscall.Umask(syscall.Umask(0o077))
	s := script("cd " + dir + "; stat -c '%u %a %n' w/* w/.git w/.git/hooks; ls closed; touch w/.git/f && (touch w/.git/hooks/f) 2>/dev/null || echo no; umask")
	s.User = &User{UID: testUser, GID: testUser}
	s.Files = &Files{Write: []string{dir + "/w", dir + "/closed"}, Read: []string{"/usr"}}
	for _, p := range []string{"w/.git/hooks", "w/d", "closed/d"} { // the user cannot create the last one
		s.Protect = append(s.Protect, Protected{Path: dir + "/" + p, Create: "dir"})
	}
	s.Protect = append(s.Protect, Protected{Path: dir + "/w/f", Create: "file"})
	check(t, s, "12345 755 w/d\n12345 644 w/f\n12345 755 w/.git\n12345 755 w/.git/hooks\nno\n0077")
}

// TestReplaced starts programs while another one replaces a directory that they
// may write to by a symbolic link, and back. A start fails or is right.
func TestReplaced(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		dir := tree(t, "w/.git/hooks/", "other/.git/hooks/secret", "elsewhere/")
		if err := os.Symlink("other", dir+"/link"); err != nil {
			t.Fatal(err)
		}
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Renameat2(unix.AT_FDCWD, dir+"/w", unix.AT_FDCWD, dir+"/link", unix.RENAME_EXCHANGE)
				}
			}
		}()
		defer func() { close(stop); <-done }()
		s := script("cd " + dir + "; for d in w link; do touch $d/.git/hooks/x; touch $d/new; echo x > $d/.git/hooks/secret; done 2>/dev/null; rm -f w/new")
		s.Files = &Files{Write: []string{dir + "/w"}}
		s.Protect = []Protected{{Path: dir + "/w/.git/hooks"}}
		started := 0
		for range 40 {
			if _, _, err := tryRun(t, s); err == nil {
				started++
			}
		}
		t.Logf("%d of 40 started", started)
		for name, want := range map[string]string{"other": ".git", "other/.git/hooks": "secret", "elsewhere": ""} {
			list, err := os.ReadDir(dir + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range list {
				got = append(got, e.Name())
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s has %q", name, got)
			}
		}
		if text, err := os.ReadFile(dir + "/other/.git/hooks/secret"); err != nil || strings.TrimSpace(string(text)) != "other/.git/hooks/secret" {
			t.Errorf("a file outside has changed: %q, %v", text, err)
		}
	})
}

// TestLinks checks that a path that has become a symbolic link since it was
// resolved makes the start fail.
func TestLinks(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		dir := tree(t, "w/", "other/f")
		if err := os.Symlink(dir+"/other", dir+"/link"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(dir+"/other/f", dir+"/w/.bashrc"); err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(*Spec){
			"write":       func(s *Spec) { s.Files.Write = []string{dir + "/link"} },
			"write below": func(s *Spec) { s.Files.Write = []string{dir + "/link/f"} },
			"read":        func(s *Spec) { s.Files.Read = []string{"/usr", dir + "/link"} },
			"deny":        func(s *Spec) { s.Files.Deny = []string{dir + "/link"} },
			"hide":        func(s *Spec) { s.Hide = []string{dir + "/link"} },
			"protect": func(s *Spec) {
				s.Files.Write, s.Protect = []string{dir + "/w"}, []Protected{{Path: dir + "/w/.bashrc"}}
			},
		} {
			s := script("echo started")
			s.Files = &Files{}
			change(&s)
			out, _, err := tryRun(t, s)
			if err == nil || !strings.Contains(err.Error(), "symbolic link") {
				t.Errorf("%s: %q, %v", name, out, err)
			}
		}
	})
}

func TestHide(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		dir := tree(t, "d/f", "f")
		name := dir + "/s"
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		found, err := Sockets()
		if err != nil || !contains(found, name) {
			t.Fatalf("%v does not have %s (%v)", found, name, err)
		}
		dial := Spec{Args: []string{"trl", "dial", name}, Files: &Files{}}
		check(t, dial, "<nil>")
		dial.Hide = []string{name}
		check(t, dial, "dial unix "+name+": connect: permission denied")
		s := script("cd " + dir + "; ls d 2>/dev/null; cat f 2>/dev/null; rm -rf d f 2>/dev/null; stat -c %a d f")
		s.Hide = []string{dir + "/d", dir + "/f", dir + "/missing"}
		check(t, s, "0\n0")
		s = script("ls -A /run | grep -v -E '^(systemd|resolvconf|NetworkManager|current-system|opengl-driver)$'")
		s.Files = &Files{}
		check(t, s, "")
	})
}

func contains(list []string, s string) bool {
	return strings.Contains("\n"+strings.Join(list, "\n")+"\n", "\n"+s+"\n")
}

func TestScratch(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		s := script("ls -A /tmp /var/tmp /dev/shm; df -B1 --output=size /tmp | tail -1; head -c 3M /dev/zero > /tmp/f || stat -c %s /tmp/f; head -c 1M /dev/zero >/dev/shm/f || echo shm full; (echo x > /run/f) || echo run full")
		s.Files, s.DiskBytes = &Files{PrivateTmp: true}, 2<<20
		out, _ := run(t, s)
		for _, line := range []string{"/dev/shm:\n\n/tmp:\n\n/var/tmp:\n", "\n2097152\n", "No space left", "shm full", "run full"} {
			if !strings.Contains(out, line) {
				t.Errorf("%q is missing in:\n%s", line, out)
			}
		}
	})
}

func TestDevices(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		s := script(`echo x > /dev/null && head -c 4 /dev/zero | wc -c && head -c 4 /dev/urandom | wc -c; (head -c 1 /dev/zero > /dev/full) 2>&1 | grep -c space
find /dev -type b | wc -l; find /sys /proc/sys -maxdepth 2 -writable -type f 2>/dev/null | wc -l; mknod /dev/shm/n c 1 3 2>/dev/null || echo no; mknod /dev/n c 1 3 2>/dev/null || echo no
script -qec 'tty' /dev/null </dev/null`)
		s.Files, s.Seccomp = &Files{}, true
		check(t, s, "4\n4\n1\n0\n0\nno\nno\n/dev/pts/0")
	})
}

func TestNetwork(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		for network, want := range map[Network]string{
			NetworkNone:     "lo: 0 down\nno",
			NetworkLoopback: "lo: 0 unknown\nno",
		} {
			s := script(`awk -v n=0 'END {print "lo: " n " " s} ' s="$(ip -o link show lo | grep -q 'state DOWN' && echo down || echo unknown)" /dev/null; ip -o link | grep -vc ' lo:' | grep -q '^0$' && echo no`)
			s.Network = network
			check(t, s, want)
		}
	})
}

// TestFamilies checks that a network namespace comes with a filter for sockets
// that it does not confine.
func TestFamilies(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		check(t, Spec{Args: []string{"trl", "family", strconv.Itoa(unix.AF_VSOCK)}, Network: NetworkLoopback}, "address family not supported by protocol")
	})
}

func TestProxy(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		s := script("exec 3<>/dev/tcp/127.0.0.1/3128; read x <&3; echo $x")
		s.Program, s.Args[0], s.Network, s.ProxyPort = "/bin/bash", "bash", NetworkProxy, 3128
		s.Files, s.Seccomp = &Files{PrivateTmp: true}, true
		l, err := probeOnce().Launch(s)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		wait, err := fork(l.Start, [3]*os.File{w, w, w})
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		defer wait()
		f, err := l.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		listener, err := net.FileListener(f)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Write([]byte("from outside\n"))
		if err := errors.Join(err, conn.Close()); err != nil {
			t.Fatal(err)
		}
		out, _ := io.ReadAll(r)
		if string(out) != "from outside\n" {
			t.Errorf("%q", out)
		}
	})
}

func TestListener(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s := Spec{Args: []string{"trl", "listening", "x"}, Files: &Files{}, Seccomp: true}
		out, _, err := tryRun(t, s, int(f.Fd()))
		if err != nil || out != "<nil> 1 true\n" {
			t.Errorf("%q, %v", out, err)
		}
	})
}

func TestFailure(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		for want, change := range map[string]func(*Spec){
			"execute the program: no such file": func(s *Spec) { s.Program = "/missing" },
			"enter the working directory":       func(s *Spec) { s.Dir = "/missing" },
			"open /missing":                     func(s *Spec) { s.Files = &Files{Write: []string{"/missing"}} },
			"limit open files":                  func(s *Spec) { s.OpenFiles = 1 << 40 },
		} {
			s := script("echo started")
			s.Seccomp = true
			change(&s)
			if _, _, err := tryRun(t, s); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		// A launcher that is killed has not executed its program.
		l, err := probeOnce().Launch(script("echo started"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		null, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		l.Start.Path, l.Start.Argv = "/bin/sh", []string{"sh", "-c", "head -c 1 <&3"} // it takes the message and exits
		wait, err := fork(l.Start, [3]*os.File{null, null, null})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Open(t.Context()); err == nil {
			t.Error("a launcher that exits has executed its program")
		}
		wait()
	})
}

// TestSilence checks that Open ends with its context, and that a launcher that is
// not let go exits.
func TestSilence(t *testing.T) {
	l, err := probeOnce().Launch(script("echo started"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	held := l.close[len(l.close)-1] // the launcher's end, so that it seems to be alive
	fd, err := unix.Dup(int(held.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Open(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	_ = unix.Close(fd)
	l.Close()

	if l, err = probeOnce().Launch(script("echo started")); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	wait, err := fork(l.Start, [3]*os.File{null, null, null})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if status := wait(); status.ExitStatus() != 127 {
		t.Errorf("%v", status)
	}
}

// TestHiddenDaemon starts from a process that cannot be looked into, as the daemon
// is: then the files of its children in /proc belong to root.
func TestHiddenDaemon(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) }()
		a := Probe(t.Context(), startProbe)
		for _, b := range a.List {
			if !b.Available && b.Name != AbilityUser {
				t.Errorf("%+v", b)
			}
		}
		s := script("echo started")
		s.Files, s.Network = &Files{}, NetworkLoopback
		check(t, s, "started")
	})
}

// TestSelf checks that a session cannot change the binary through /proc. A write to a
// program that runs fails in any case.
func TestSelf(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the binary belongs to root")
	}
	check(t, Spec{Args: []string{"trl", "chmod", "/proc/self/exe"}, Hide: []string{"/missing"}}, "chmod /proc/self/exe: read-only file system")
}

// TestHideWhatGoes: what is hidden may be removed, and be there again, while a view
// is built: sockets of other programs come and go.
func TestHideWhatGoes(t *testing.T) {
	dir := tree(t)
	s := script("cat " + dir + "/* 2>&1")
	s.Files = &Files{Read: []string{"/"}}
	for i := range 64 {
		s.Files.Deny = append(s.Files.Deny, filepath.Join(dir, "f"+strconv.Itoa(i)))
	}
	stop := make(chan struct{})
	var churn sync.WaitGroup
	defer churn.Wait()
	defer close(stop)
	for half := range 2 {
		churn.Go(func() {
			for i := half; ; i = (i + 2) % len(s.Files.Deny) {
				select {
				case <-stop:
					return
				default:
				}
				_ = os.WriteFile(s.Files.Deny[i], []byte("secret\n"), 0o600)
				_ = os.Remove(s.Files.Deny[i])
			}
		})
	}
	for range 30 {
		if _, _, err := tryRun(t, s); err != nil {
			t.Fatal(err)
		}
	}
}
