package place

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
)

// testDelivery delivers the real program instead of this test.
func testDelivery(t testing.TB) *delivery {
	t.Helper()
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	d := newDelivery()
	d.programs.executable, d.programs.readable = binary, binary
	return d
}

// sshTo returns the transport to a place on the SSH server, which the test's end
// closes.
func sshTo(t testing.TB, address string) *ssh {
	t.Helper()
	engines.SSHD(t)
	s := &ssh{delivery: testDelivery(t), target: target{
		name: "k7", id: trltest.Token(), node: "k7", runtime: "ssh:" + address, address: address, dir: t.TempDir(),
	}}
	t.Cleanup(s.close)
	return s
}

const guest = engines.Guest + "@" + engines.SSHHost

// mustRemove removes a place, and checks that nothing is left of it.
func mustRemove(t testing.TB, s *ssh, account string) {
	t.Helper()
	if err := s.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(s.target.dir); err != nil || len(left) > 0 {
		t.Errorf("left here: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(engines.Home(account), ".cache")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left on the host: .cache (%v)", err)
	}
	trltest.Eventually(t, "the host has no process of the place", func() bool {
		out, _ := exec.Command("pgrep", "-u", account, "-l").Output() // 1: none
		return len(out) == 0
	})
}

func TestSSH(t *testing.T) {
	for account, shell := range map[string]string{engines.Guest: "dash", engines.BashGuest: "bash"} {
		t.Run(shell, func(t *testing.T) {
			s := sshTo(t, account+"@"+engines.SSHHost)
			_, hello := mustConnect(t, s)
			if hello.Node != "k7" || hello.User != account || hello.OS != "linux" {
				t.Errorf("hello %+v", hello)
			}
			master := s.master
			_, again := mustConnect(t, s)
			if s.master != master || again.Boot != hello.Boot {
				t.Error("the second connection has another master or another daemon")
			}
			s.close()
			if master.alive() {
				t.Error("the master is still there")
			}
			if _, after := mustConnect(t, s); after.Boot != hello.Boot {
				t.Error("the daemon ended with the master")
			}
			mustRemove(t, s, account)
			if err := s.remove(t.Context()); err != nil {
				t.Error("removing it again:", err)
			}
		})
	}
}

// TestSSHLost kills what connects: the next connection finds the daemon again.
func TestSSHLost(t *testing.T) {
	s := sshTo(t, guest)
	conn, hello := mustConnect(t, s)
	find := func() {
		t.Helper()
		<-conn.Done()
		var now *api.Hello
		if conn, now = mustConnect(t, s); now.Boot != hello.Boot {
			t.Error("another daemon")
		}
	}
	signal := func(pid int, sig syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	signal(s.master.cmd.Process.Pid, syscall.SIGKILL)
	find()
	for _, p := range trltest.Descendants(os.Getpid()) {
		if p.Name == "ssh" && p.PID != s.master.cmd.Process.Pid {
			signal(p.PID, syscall.SIGKILL)
		}
	}
	find()
	engines.SSHD(t).Restart(t)
	find()
	// A daemon that was killed may leave its master, which another daemon ends.
	conn.Close()
	left := s.master
	s.master = nil
	find()
	trltest.Eventually(t, "the master that was left has ended", func() bool { return !left.alive() })
	// The master goes on without its socket, so channels can't find it.
	conn.Close()
	if err := os.Remove(s.master.socket); err != nil {
		t.Fatal(err)
	}
	find()
	mustRemove(t, s, engines.Guest)
}

// TestSSHKilled checks that a daemon that is killed leaves no master. The child is
// the daemon.
func TestSSHKilled(t *testing.T) {
	const variable = "TRL_TEST_SSH_DIR"
	if dir := os.Getenv(variable); dir != "" {
		client := &sshClient{program: "ssh", host: guest, dir: dir, name: "k7.ssh"}
		m, err := client.startMaster(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("master", m.cmd.Process.Pid)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	engines.SSHD(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestSSHKilled$")
	cmd.Env = append(os.Environ(), variable+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	var pid int
	if _, scanErr := fmt.Sscanf(string(out), "master %d", &pid); err == nil || scanErr != nil {
		t.Fatalf("%v, %s", err, out)
	}
	trltest.Eventually(t, "the master has ended", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

func TestSSHRefusals(t *testing.T) {
	sshd := engines.SSHD(t)
	t.Run("host key", func(t *testing.T) {
		sshd.ForgetHostKey(t)
		wantRefusal(t, sshTo(t, guest), badHostKey, guest, "Host key verification failed.")
	})
	t.Run("auth", func(t *testing.T) {
		wantRefusal(t, sshTo(t, "nosuchuser@"+engines.SSHHost), noAccess, "Permission denied (publickey)")
	})
	t.Run("no shell", func(t *testing.T) {
		wantRefusal(t, sshTo(t, "daemon@"+engines.SSHHost), noShell, "not available")
	})
	t.Run("no server", func(t *testing.T) {
		s := sshTo(t, guest)
		sshd.Kill(t)
		wantRefusal(t, s, unreachable, "Connection refused")
		sshd.Start(t)
	})
	t.Run("no name", func(t *testing.T) {
		wantRefusal(t, sshTo(t, "nosuch.invalid"), unreachable, "Could not resolve hostname")
	})
	t.Run("no ssh", func(t *testing.T) {
		s := sshTo(t, guest)
		t.Setenv("PATH", t.TempDir())
		wantRefusal(t, s, noEngine, "no ssh")
	})
	t.Run("canceled", func(t *testing.T) {
		s := sshTo(t, guest)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := s.connect(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestSSHSocket uses a directory whose path is too long for a socket.
func TestSSHSocket(t *testing.T) {
	s := sshTo(t, guest)
	s.target.dir = filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	mustConnect(t, s)
	dir := s.master.dir
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if err := s.remove(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
}

// loginShell runs commands as sshd does.
type loginShell struct{ program string }

func (l loginShell) command(script string, args ...string) []string {
	return []string{l.program, "-c", remoteCommand(script, args)}
}

func (l loginShell) explain(err error, _ string) *refusal {
	return &refusal{reason: unknown, message: err.Error()}
}

// TestLoginShells delivers and starts a daemon through login shells that are not
// POSIX, or not quite. TestSSH has others.
func TestLoginShells(t *testing.T) {
	for _, name := range []string{"zsh", "fish", "tcsh"} {
		t.Run(name, func(t *testing.T) {
			program, err := exec.LookPath(name)
			if err != nil {
				t.Skip(err)
			}
			home := t.TempDir()
			for _, file := range []string{".bashrc", ".zshenv", ".cshrc", ".tcshrc"} { // fish has its own directory
				if err := os.WriteFile(filepath.Join(home, file), []byte("echo welcome\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			d, box := testDelivery(t), loginShell{program}
			at := target{name: "k7", id: trltest.Token(), node: "k7", env: []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}}
			wire, hello, err := d.open(t.Context(), at, box)
			if err != nil {
				t.Fatal(err)
			}
			conn := peer.NewConn(wire)
			mustPing(t, conn)
			conn.Close()
			if hello.Node != "k7" {
				t.Errorf("hello %+v", hello)
			}
			if err := d.remove(t.Context(), at, box); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(filepath.Join(home, ".cache")); len(left) > 0 && name != "fish" {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// BenchmarkSSH compares connections with a bare login: with a new master, with a
// master that is there, and to a daemon that must be started.
func BenchmarkSSH(b *testing.B) {
	b.Run("login", func(b *testing.B) {
		server := engines.SSHD(b)
		for b.Loop() {
			if _, err := server.Try(engines.Guest, "", "true"); err != nil {
				b.Fatal(err)
			}
		}
	})
	s := sshTo(b, guest)
	connect := func(b *testing.B) {
		b.Helper()
		wire, _, err := s.connect(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		_ = wire.Close()
	}
	connect(b)
	b.Run("master", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s.close()
			b.StartTimer()
			connect(b)
		}
	})
	b.Run("channel", func(b *testing.B) {
		for b.Loop() {
			connect(b)
		}
	})
	b.Run("daemon", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			box, _, err := s.logIn(b.Context())
			if err == nil {
				_, err = run(b.Context(), nil, box.command(commonScript+`each_base found && exec "$dir/trl" stop --socket "$dir/s.sock"`, s.target.directory()), nil)
			}
			if err != nil {
				b.Fatal(err)
			}
			s.close()
			b.StartTimer()
			connect(b)
		}
	})
	if err := s.remove(b.Context()); err != nil {
		b.Error(err)
	}
}

// TestSSHPlace adds, uses and removes a place by its runtime.
func TestSSHPlace(t *testing.T) {
	engines.SSHD(t)
	dir := filepath.Join(t.TempDir(), "p")
	r := Open(Config{Node: "eu1", TTLMS: time.Hour.Milliseconds(), Dir: dir, Log: slog.New(slog.DiscardHandler)})
	defer r.Close()
	r.delivery = testDelivery(t)
	added, err := r.Add(t.Context(), api.PlaceParams{Runtime: "ssh:" + guest})
	if err != nil {
		t.Fatal(err)
	}
	if added.State != api.PlaceConnected || added.User != engines.Guest || added.Shells == nil {
		t.Errorf("place %+v", added)
	}
	conn, exclusive, release, err := r.Find(added.Name).OpenStream(t.Context())
	if err != nil || !exclusive {
		t.Fatal(exclusive, err)
	}
	line, err := conn.Call(t.Context(), peer.Request{Method: api.MethodSystemPing, Actor: []byte(`{"scope":"read","connection":"c-1"}`)}, nil)
	if err == nil {
		err = peer.Decode(api.MethodSystemPing, line, nil)
	}
	if err != nil {
		t.Error(err)
	}
	release()
	if _, err := r.Add(t.Context(), api.PlaceParams{Runtime: "ssh:-oProxyCommand=id"}); api.AsError(err).Code != api.CodeRuntimeNotFound {
		t.Error(err)
	}
	if _, err := r.Remove(t.Context(), api.PlaceRemoveParams{Runtime: added.Name}); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err == nil && len(left) > 0 {
		t.Errorf("left here: %v", left)
	}
	if _, err := os.Stat(filepath.Join(engines.Home(engines.Guest), ".cache")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left on the host: .cache (%v)", err)
	}
}
