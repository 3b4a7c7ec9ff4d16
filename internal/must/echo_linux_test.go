package must

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// echoVariable turns this test binary into an echo server on the socket it names.
const echoVariable = "MUST_ECHO"

// runEcho turns this process into the echo server, if it was started as one. It
// is a separate process because the daemon is one: the context switch is part of
// the cost of a bare round trip.
func runEcho() {
	path := os.Getenv(echoVariable)
	if path == "" {
		return
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		os.Exit(1)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			os.Exit(1)
		}
		go func() {
			in := bufio.NewReader(conn)
			for {
				line, err := in.ReadSlice('\n')
				if err != nil {
					return
				}
				if _, err := conn.Write(line); err != nil {
					return
				}
			}
		}()
	}
}

// startEcho starts the echo server and connects to it.
func startEcho(t *testing.T) *gauge.Direct {
	t.Helper()
	dir, err := os.MkdirTemp("", "echo-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "echo.sock")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), echoVariable+"="+path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var d *gauge.Direct
	if err := eventually(trltest.Patience, func() (err error) {
		d, err = gauge.DialDirect(path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}
