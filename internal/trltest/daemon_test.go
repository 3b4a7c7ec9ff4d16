package trltest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// fakeVariable turns this test binary into a fake daemon with one fault, or none.
const fakeVariable = "FAKE_DAEMON"

func TestMain(m *testing.M) {
	if fault := os.Getenv(fakeVariable); fault != "" {
		os.Exit(fakeDaemon(fault, os.Args[len(os.Args)-1]))
	}
	os.Setenv(BinaryVariable, os.Args[0])
	Main(m)
}

// fakeDaemon answers every request on the socket like a ping, until it gets a
// signal.
func fakeDaemon(fault, socket string) int {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	if fault == "dies" {
		os.Stderr.WriteString("a reason\n")
		return 1
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return 1
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					conn.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{"protocol":1}}` + "\n"))
				}
			}()
		}
	}()
	if fault == "process" {
		if err := exec.Command("sleep", "60").Start(); err != nil {
			return 1
		}
	}
	<-end
	switch fault {
	case "socket":
		listener.(*net.UnixListener).SetUnlinkOnClose(false)
	case "lock":
		os.WriteFile(filepath.Join(filepath.Dir(socket), "trl.lock"), nil, 0o600)
	case "status":
		listener.Close()
		return 3
	}
	listener.Close()
	return 0
}

// Stop must report every kind of unclean exit.
func TestStop(t *testing.T) {
	for fault, complaint := range map[string]string{
		"none":    "",
		"socket":  "file left by the daemon: trl.sock",
		"lock":    "file left by the daemon: trl.lock",
		"status":  "exit status 3",
		"process": "processes left by the daemon",
	} {
		t.Run(fault, func(t *testing.T) {
			if fault == "process" && runtime.GOOS != "linux" {
				t.Skip("the process table is read on Linux only")
			}
			daemon := start(t, fault)
			below := Descendants(daemon.PID)
			err := daemon.Stop()
			switch {
			case complaint == "" && err != nil:
				t.Errorf("a clean exit: %v", err)
			case complaint != "" && (err == nil || !strings.Contains(err.Error(), complaint)):
				t.Errorf("%v, want %q", err, complaint)
			}
			for _, p := range below {
				syscall.Kill(p.PID, syscall.SIGKILL)
			}
			if daemon.Running() {
				t.Error("still running")
			}
			if err := daemon.Stop(); err == nil {
				t.Error("Stop succeeded for a daemon that has exited")
			}
		})
	}
}

func TestKillLeavesWhatACrashLeaves(t *testing.T) {
	daemon := start(t, "none")
	daemon.Kill()
	daemon.Kill()
	if daemon.Running() {
		t.Error("still running")
	}
	if _, err := os.Stat(daemon.Socket); err != nil {
		t.Error(err)
	}
}

func TestStartSaysWhyNot(t *testing.T) {
	dir, err := NewDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if _, err := Start(Config{Dir: dir, Env: []string{fakeVariable + "=dies"}}); err == nil || !strings.Contains(err.Error(), "a reason") {
		t.Errorf("%v, want the daemon's own message", err)
	}
}

func start(t *testing.T, fault string) *Daemon {
	t.Helper()
	daemon, err := Start(Config{Env: []string{fakeVariable + "=" + fault}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		daemon.Kill()
		os.RemoveAll(daemon.Dir)
	})
	return daemon
}
