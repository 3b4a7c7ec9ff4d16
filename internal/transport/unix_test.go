package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
)

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSocketIsPrivateAndLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	defer syscall.Umask(syscall.Umask(0)) // the most permissive one
	l, err := ListenUnix(filepath.Join(dir, "trl.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{
		dir:                                 0o700 | fs.ModeDir,
		filepath.Join(dir, "trl.sock"):      0o600 | fs.ModeSocket,
		filepath.Join(dir, "trl.sock.lock"): 0o600,
	} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, want %v (%v)", path, info.Mode(), want, err)
		}
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestListenUnixAtUsedPath: what ListenUnix does with files that it finds, and with
// directories that it can't trust.
func TestListenUnixAtUsedPath(t *testing.T) {
	const asRoot, asAnyone = true, false
	for name, tc := range map[string]struct {
		needsRoot bool
		prepare   func(t *testing.T, path string)
		want      string // in the error; "": no error
	}{
		"nothing": {asAnyone, func(*testing.T, string) {}, ""},
		"a dead socket": {asAnyone, func(t *testing.T, path string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
		}, ""},
		"a dead daemon's lock": {asAnyone, func(t *testing.T, path string) { write(t, path+".lock") }, ""},
		"a live socket": {asAnyone, func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, fmt.Sprintf("already serving on %%s (pid %d)", os.Getpid())},
		"a live daemon": {asAnyone, func(t *testing.T, path string) {
			l, err := ListenUnix(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, fmt.Sprintf("another daemon is already serving on %%s (pid %d)", os.Getpid())},
		"a file":                 {asAnyone, func(t *testing.T, path string) { write(t, path) }, "not a socket"},
		"a directory":            {asAnyone, func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "not a socket"},
		"a symlink":              {asAnyone, func(t *testing.T, path string) { must(t, os.Symlink("/etc/passwd", path)) }, "not a socket"},
		"a lock elsewhere":       {asAnyone, func(t *testing.T, path string) { must(t, os.Symlink(path+"2", path+".lock")) }, "listen on"},
		"writable by group":      {asAnyone, func(t *testing.T, path string) { chmod(t, path, 0o770) }, "others may write"},
		"writable by all":        {asAnyone, func(t *testing.T, path string) { chmod(t, path, 0o777) }, "others may write"},
		"sticky":                 {asAnyone, func(t *testing.T, path string) { chmod(t, path, 0o777|fs.ModeSticky) }, "others may write"},
		"above, writable by all": {asAnyone, func(t *testing.T, path string) { must(t, os.Chmod(filepath.Dir(filepath.Dir(path)), 0o777)) }, "others may write"},
		"above, sticky": {asAnyone, func(t *testing.T, path string) {
			must(t, os.Chmod(filepath.Dir(filepath.Dir(path)), 0o777|fs.ModeSticky))
		}, ""},
		"above, another's": {asRoot, func(t *testing.T, path string) { must(t, os.Chown(filepath.Dir(filepath.Dir(path)), 65534, -1)) }, "belongs to another user (uid 65534)"},
		"a lock that others may write": {asAnyone, func(t *testing.T, path string) {
			write(t, path+".lock")
			must(t, os.Chmod(path+".lock", 0o666))
		}, "others may write to the lock"},
		"a lock of a group": {asAnyone, func(t *testing.T, path string) {
			write(t, path+".lock")
			must(t, os.Chmod(path+".lock", 0o620))
		}, "others may write to the lock"},
		"a lock with two names": {asAnyone, func(t *testing.T, path string) {
			write(t, path+".lock")
			must(t, os.Link(path+".lock", path+".2"))
		}, "has 2 names"},
		"a lock that is a pipe": {asAnyone, func(t *testing.T, path string) { must(t, unix.Mkfifo(path+".lock", 0o600)) }, "not a regular file"},
		"another's lock": {asRoot, func(t *testing.T, path string) {
			write(t, path+".lock")
			must(t, os.Chown(path+".lock", 65534, -1))
		}, "belongs to another user (uid 65534)"},
		"another's directory": {asRoot, func(t *testing.T, path string) { must(t, os.Chown(filepath.Dir(path), 65534, -1)) }, "belongs to another user (uid 65534)"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.needsRoot && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			path := filepath.Join(t.TempDir(), "x.sock")
			tc.prepare(t, path)
			before := files(t, filepath.Dir(path))
			l, err := ListenUnix(path)
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				l.Close()
				if left := files(t, filepath.Dir(path)); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
				return
			}
			if err == nil {
				l.Close()
				t.Fatal("no error")
			}
			if want := strings.ReplaceAll(tc.want, "%s", path); !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
			if after := files(t, filepath.Dir(path)); strings.Join(after, " ") != strings.Join(before, " ") {
				t.Errorf("files were %v, are %v", before, after)
			}
		})
	}
}

// Clients refuse the same locks as a daemon.
func TestReadLockRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		needsRoot bool
		spoil     func(lock string) error
		want      string
	}{
		"nothing":            {false, func(string) error { return nil }, ""},
		"writable":           {false, func(lock string) error { return os.Chmod(lock, 0o602) }, "others may write to the lock"},
		"of a group":         {false, func(lock string) error { return os.Chmod(lock, 0o660) }, "others may write to the lock"},
		"two names":          {false, func(lock string) error { return os.Link(lock, lock+"2") }, "has 2 names"},
		"a link":             {false, func(lock string) error { return errors.Join(os.Rename(lock, lock+"2"), os.Symlink(lock+"2", lock)) }, "too many levels of symbolic links"},
		"a pipe":             {false, func(lock string) error { return errors.Join(os.Remove(lock), unix.Mkfifo(lock, 0o600)) }, "not a regular file"},
		"a directory":        {false, func(lock string) error { return errors.Join(os.Remove(lock), os.Mkdir(lock, 0o700)) }, "not a regular file"},
		"a directory of all": {false, func(lock string) error { return os.Chmod(filepath.Dir(lock), 0o777|fs.ModeSticky) }, "others may write"},
		"another's":          {true, func(lock string) error { return os.Chown(lock, 65534, -1) }, "belongs to another user"},
		// Root may use the daemon of the user who owns the directory.
		"another's, in their directory": {true, func(lock string) error {
			return errors.Join(os.Chown(lock, 65534, -1), os.Chown(filepath.Dir(lock), 65534, -1))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.needsRoot && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			path := filepath.Join(t.TempDir(), "x.sock")
			write(t, path+".lock")
			if err := tc.spoil(path + ".lock"); err != nil {
				t.Fatal(err)
			}
			text, _, err := ReadLock(path)
			if tc.want == "" && (err != nil || text != "precious") || tc.want != "" && (err == nil || text != "" || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%q, %v; want %q", text, err, tc.want)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte("precious"), 0o600))
}

// chmod changes the mode of the directory of path.
func chmod(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	must(t, os.Chmod(filepath.Dir(path), mode))
}

// A daemon that is too busy to accept is not dead.
func TestBusySocketIsNotReplaced(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("on other systems a full backlog looks like a dead socket; only the lock tells them apart")
	}
	path := filepath.Join(t.TempDir(), "x.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		nc, err := net.Dial("unix", path)
		if err != nil {
			break // full
		}
		t.Cleanup(func() { nc.Close() })
	}
	if l, err := ListenUnix(path); err == nil {
		l.Close()
		t.Error("the socket was replaced")
	}
	if left := files(t, filepath.Dir(path)); strings.Join(left, " ") != "x.sock" {
		t.Errorf("left: %v", left)
	}
}

func TestPathTooLong(t *testing.T) {
	_, err := ListenUnix("/tmp/" + strings.Repeat("x", maxPath))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxPath)) {
		t.Errorf("got %v", err)
	}
}

func TestCloseLeavesAnothersSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, path)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left := files(t, filepath.Dir(path)); strings.Join(left, " ") != "x.sock" {
		t.Errorf("left: %v", left)
	}
}

// reach connects to a listener that does not accept. The other daemons probe
// whether it serves, and may have filled its queue.
func reach(path string, l net.Listener) error {
	for {
		nc, err := net.Dial("unix", path)
		if err == nil {
			return nc.Close()
		}
		if !errors.Is(err, syscall.EAGAIN) {
			return err
		}
		if nc, err = l.Accept(); err != nil {
			return err
		}
		nc.Close()
	}
}

// Daemons start and stop at the same path all the time: no two of them hold it
// at once, and one of them always gets it in the end.
func TestOneOfManyDaemonsWins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	var holding, won atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 { // the rarest race needs a thousand or so to show
				l, err := ListenUnix(path)
				if err != nil {
					if !strings.Contains(err.Error(), "already serving") {
						t.Error(err)
					}
					continue
				}
				if n := holding.Add(1); n != 1 {
					t.Errorf("%d hold it at once", n)
				}
				won.Add(1)
				if err := reach(path, l); err != nil {
					t.Errorf("cannot connect to the winner: %v", err)
				}
				holding.Add(-1)
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if won.Load() == 0 {
		t.Error("no daemon got the lock")
	}
	if left := files(t, filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// die closes the descriptors as the death of the process does, and nothing
// else.
func (l *UnixListener) die() { _, _ = l.UnixListener.Close(), l.lock.Close() }

func TestWhatADeadDaemonLeaves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	listen := func(left, name string) *UnixListener {
		t.Helper()
		l, err := ListenUnix(path)
		if err != nil {
			t.Fatal(err)
		}
		if l.StaleLock() != left {
			t.Errorf("stale lock %q, want %q", l.StaleLock(), left)
		}
		if err := l.WriteLock(name); err != nil {
			t.Fatal(err)
		}
		return l
	}
	remove := func(name string, timeout time.Duration, want ...string) {
		t.Helper()
		if err := RemoveUnix(path, func(text string) bool { return text == name || text == "" }, timeout); err != nil {
			t.Error(err)
		}
		if left := files(t, filepath.Dir(path)); !slices.Equal(left, want) {
			t.Errorf("after removing %s: files %v, want %v", name, left, want)
		}
	}
	remove("missing", time.Minute)
	listen("", "a first and long name").die()
	second := listen("a first and long name", "second")
	remove("a first and long name", time.Minute, "x.sock", "x.sock.lock")
	remove("second", 20*time.Millisecond, "x.sock", "x.sock.lock") // it is alive
	if nc, err := net.Dial("unix", path); err != nil {
		t.Errorf("cannot connect to a live daemon: %v", err)
	} else {
		nc.Close()
	}
	second.die()
	remove("first", time.Minute, "x.sock", "x.sock.lock")
	remove("second", time.Minute)

	slow := listen("", "slow")
	time.AfterFunc(30*time.Millisecond, slow.die) // during the probe
	remove("slow", time.Minute)

	listen("", "").die() // before WriteLock
	remove("unsigned", time.Minute)
}

// ListenUnix waits for a lock that is held for an instant without a socket.
func TestLockIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	lock, err := acquireLock(path)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(30*time.Millisecond, func() { lock.Close() })
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhoMayTalk(t *testing.T) {
	for _, tc := range []struct {
		peer, self int
		want       bool
	}{{1000, 1000, true}, {0, 1000, true}, {0, 0, true}, {1001, 1000, false}, {1000, 0, false}, {-1, 1000, false}} {
		if err := allowed(tc.peer, tc.self); (err == nil) != tc.want {
			t.Errorf("allowed(%d, %d) = %v", tc.peer, tc.self, err)
		}
	}
}

const otherUserEnv = "TRL_TEST_STRANGER_CONNECTS_TO"

// TestStrangerIsRefused connects as another user. It runs itself again as that
// user; the permissions that would stop it first are lifted.
func TestStrangerIsRefused(t *testing.T) {
	if path := os.Getenv(otherUserEnv); path != "" {
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(nc).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		r := decodeReply(t, line)
		if _, err := nc.Read(make([]byte, 1)); err == nil {
			t.Error("the connection stays open")
		}
		if !api.IsCode(r.Error, api.CodeUnauthorized) || string(r.ID) != "null" || r.Error.Hint == "" {
			t.Errorf("answer %s", line)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to switch to another user")
	}
	_, path := start(t, Config{}, nil)
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(path); strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	// Only the owner can reach the test binary, so it is copied.
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skip("needs /proc")
	}
	binary := filepath.Join(filepath.Dir(path), "stranger")
	if err := os.WriteFile(binary, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run", "^TestStrangerIsRefused$")
	cmd.Dir = "/"
	cmd.Env = []string{otherUserEnv + "=" + path}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	dial(t, path).ping()
}

func TestOnlyUnixSocketsAreServed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(Config{Handler: tableWith(nil)})
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), l) }()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	line, err := bufio.NewReader(nc).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if r := decodeReply(t, line); !api.IsCode(r.Error, api.CodeUnauthorized) {
		t.Errorf("answer %s", line)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, ErrServerClosed) {
		t.Error(err)
	}
}

// The lock outlives the listener, holds what was written into it, and lets its
// holder listen again while no other process can.
func TestLockStaysBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trl.sock")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept []int
	if err := l.KeepFDs(func(fd int) error {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		kept = append(kept, n)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a long text", "short"} {
		if err := l.WriteLock(text); err != nil {
			t.Fatal(err)
		}
		if got, _, err := ReadLock(path); got != text || err != nil {
			t.Errorf("the lock says %q, %v", got, err)
		}
	}
	if err := errors.Join(l.CloseKeepingLock("left"), unix.Close(kept[0])); err != nil {
		t.Fatal(err)
	}
	if got := files(t, filepath.Dir(path)); !slices.Equal(got, []string{"trl.sock.lock"}) {
		t.Errorf("left: %v", got)
	}
	if got, _, err := ReadLock(path); got != "left" || err != nil {
		t.Errorf("the lock says %q, %v", got, err)
	}
	if _, err := ListenUnix(path); err == nil {
		t.Error("another process could listen")
	}
	again, err := AdoptUnix(path, -1, kept[1])
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if got := files(t, filepath.Dir(path)); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}
