package process

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/pty"
)

// onTerminal starts a shell script on the terminal, with its output there.
func onTerminal(t *testing.T, term *Terminal, slave *os.File, text string) *Proc {
	t.Helper()
	fd := int(slave.Fd())
	p, err := term.Start(Spec{
		Path: "/bin/sh", Argv: []string{"sh", "-c", text}, Env: []string{"PATH=" + os.Getenv("PATH")}, Files: [3]int{fd, fd, fd},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// until reads the master until its output contains want.
func until(t *testing.T, master *os.File, want string) string {
	t.Helper()
	if err := master.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var got []byte
	buf := make([]byte, 1000)
	for !strings.Contains(string(got), want) {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatalf("%v, waiting for %q after %q", err, want, got)
		}
		got = append(got, buf[:n]...)
	}
	return string(got)
}

// newTerminal creates a terminal in a tree for the duration of the test.
func newTerminal(t *testing.T, tree *Tree) (master, slave *os.File, term *Terminal) {
	t.Helper()
	master, slave, err := pty.Open(pty.Size{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); slave.Close() })
	if term, err = tree.NewTerminal(slave); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = term.Close() })
	return master, slave, term
}

func TestTerminal(t *testing.T) {
	hosts(t, func(t *testing.T, h *Host) {
		tree := newTree(t, h)
		master, slave, term := newTerminal(t, tree)

		first := onTerminal(t, term, slave, "trap 'exit 3' USR1; echo on $(tty) >/dev/tty; while :; do sleep 0.01; done")
		until(t, master, "on /dev/pts/")
		first.Signal(unix.SIGUSR1)
		<-first.Done()
		if code := first.Status().Code; code != 3 {
			t.Errorf("exit code %d: the status is not that of the shell", code)
		}
		// The terminal outlives the programs on it. Its keys reach only the
		// foreground process group.
		second := onTerminal(t, term, slave, "trap 'echo got it; exit 5' INT; echo ready; while :; do sleep 0.01; done")
		third := onTerminal(t, term, slave, "sleep 4242")
		if err := term.Foreground(second); err != nil {
			t.Fatal(err)
		}
		until(t, master, "ready")
		if _, err := master.Write([]byte{3}); err != nil {
			t.Fatal(err)
		}
		until(t, master, "got it")
		<-second.Done()
		if second.Status().Code != 5 || third.Exited() {
			t.Errorf("second %+v, third exited: %t", second.Status(), third.Exited())
		}
		if _, err := term.Start(Spec{Path: "/no/such/program", Argv: []string{"x"}, Files: [3]int{int(slave.Fd()), int(slave.Fd()), int(slave.Fd())}}); err == nil {
			t.Error("a program that does not exist was started")
		}
		// When the leader exits, the terminal goes away and the foreground
		// process group gets SIGHUP.
		if err := term.Foreground(third); err != nil {
			t.Fatal(err)
		}
		if err := term.Close(); err != nil {
			t.Fatal(err)
		}
		<-third.Done()
		if third.Status().Signal != unix.SIGHUP {
			t.Errorf("third %+v", third.Status())
		}
		if _, err := term.Start(Spec{Path: "/bin/true", Argv: []string{"true"}}); err == nil {
			t.Error("a closed terminal started a program")
		}
	})
}

func TestLeadingATerminal(t *testing.T) {
	hosts(t, func(t *testing.T, h *Host) {
		tree := newTree(t, h)
		master, slave, err := pty.Open(pty.Size{Rows: 24, Cols: 80})
		if err != nil {
			t.Fatal(err)
		}
		defer master.Close()
		fd := int(slave.Fd())
		p, err := tree.startGated(Spec{
			Path: "/bin/sh", Argv: []string{"sh", "-c", "echo mine >/dev/tty; read x; exit 4"}, Env: []string{"PATH=" + os.Getenv("PATH")},
			Files: [3]int{fd, fd, fd}, SessionLeader: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		slave.Close()
		until(t, master, "mine")
		if _, err := master.WriteString("x\n"); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if p.Status().Code != 4 {
			t.Errorf("%+v", p.Status())
		}
	})
}

// When a command stops the leader, requests fail and nothing hangs.
func TestStoppedLeader(t *testing.T) {
	h := newHost(t, Config{})
	tree := newTree(t, h)
	_, slave, term := newTerminal(t, tree)
	p := onTerminal(t, term, slave, "sleep 4242")
	term.leader.Signal(unix.SIGSTOP)
	soon := unix.NsecToTimeval((50 * time.Millisecond).Nanoseconds())
	if err := unix.SetsockoptTimeval(term.conn, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &soon); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one is not even sent
		if err := term.Foreground(p); err == nil {
			t.Error("a stopped leader answered")
		}
	}
}
