package relay

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/stdio"
	"github.com/terminal-runtime/trl/internal/transport"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// startProcess starts `trl connect`. Unlike the other tests it keeps the relay's
// own ends open.
func startProcess(t *testing.T, socket string, files ends) (*rig, *exec.Cmd) {
	t.Helper()
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--socket", socket, "connect")
	cmd.Env = trltest.Environ(t.TempDir())
	cmd.Stdin, cmd.Stdout = files.stdin, files.stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &rig{in: files.in, out: files.out, lines: bufio.NewReader(files.out), ended: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		for _, f := range []*os.File{files.in, files.out, files.stdin, files.stdout} {
			_ = f.Close()
		}
	})
	return r, cmd
}

// moved returns how many bytes a process has read and written.
func moved(t *testing.T, pid int) (n int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var some int64
		if _, err := fmt.Sscanf(line, "rchar: %d", &some); err == nil {
			n += some
		}
		if _, err := fmt.Sscanf(line, "wchar: %d", &some); err == nil {
			n += some
		}
	}
	return n
}

// A relay that has passed its files moves no byte between them, and the mode of the
// files that it shares with other processes is as it was.
func TestPassedFilesAreNotCopied(t *testing.T) {
	_, socket := serve(t, transport.Config{})
	inBothForms(t, func(t *testing.T, files ends) {
		modes := func() (modes [2]int) {
			for i, f := range []*os.File{files.stdin, files.stdout} {
				raw, err := f.SyscallConn()
				if err != nil {
					t.Fatal(err)
				}
				_ = raw.Control(func(fd uintptr) { modes[i], _ = unix.FcntlInt(fd, unix.F_GETFL, 0) })
			}
			return modes
		}
		r, cmd := startProcess(t, socket, files) // which makes pipes block
		before := modes()
		r.line(t)
		r.send(t, ping)
		r.line(t)
		at := moved(t, cmd.Process.Pid)
		const size, times = 1 << 10, 100
		for range times {
			r.send(t, `{"jsonrpc":"2.0","id":1,"method":"echo","params":"`+strings.Repeat("x", size)+`"}`+"\n")
			r.line(t)
		}
		passed := strings.HasSuffix(t.Name(), "passed")
		// It may have read the daemon's last answer to itself, which is shorter than one of these.
		if bytes := moved(t, cmd.Process.Pid) - at; passed && bytes >= size || !passed && bytes < 2*size*times {
			t.Errorf("the relay moved %d bytes while its caller sent and received %d each", bytes, size*times)
		}
		if after := modes(); after != before || passed && after[0]&unix.O_NONBLOCK != 0 {
			t.Errorf("the files had modes %o, have %o", before, after)
		}
	})
}

// The daemon ends the connection of a relay that was killed, and the caller, which
// may have other copies of its files, finds the end of the answers.
func TestKilledRelay(t *testing.T) {
	s, socket := serve(t, transport.Config{})
	inBothForms(t, func(t *testing.T, files ends) {
		r, cmd := startProcess(t, socket, files)
		r.line(t)
		r.send(t, ping)
		r.line(t)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		awaitNoConnection(t, s)
		_ = files.stdout.Close()
		if got := r.line(t); got != "" {
			t.Errorf("read %q", got)
		}
	})
}

// Where the daemon can't take the files, the relay copies.
func TestCopiesWhereTheDaemonCannot(t *testing.T) {
	for name, socket := range map[string]string{
		"an older daemon": olderDaemon(t),
		"behind a proxy":  behindProxy(t),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, socket, forms["passed"](t), stdio.Timing{})
			r.line(t)
			for range 3 {
				r.send(t, `{"jsonrpc":"2.0","id":1,"method":"echo","params":"x"}`+"\n")
				if got := r.line(t); !strings.Contains(got, `"result":"x"`) {
					t.Fatalf("answered %q", got)
				}
			}
		})
	}
}

// behindProxy returns the socket of a proxy, which passes bytes on and no
// descriptors.
func behindProxy(t *testing.T) string {
	t.Helper()
	_, socket := serve(t, transport.Config{})
	p, err := trltest.NewProxy("unix", filepath.Join(t.TempDir(), "proxy.sock"), socket, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p.Addr()
}

// olderDaemon returns the socket of a daemon that does not know stdio.Method.
func olderDaemon(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "old.sock"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(trltest.Patience))
		for in := bufio.NewScanner(nc); in.Scan(); {
			var q struct {
				ID     int
				Method string
				Params json.RawMessage
			}
			_ = json.Unmarshal(in.Bytes(), &q)
			switch q.Method {
			case "system.info":
				fmt.Fprintf(nc, `{"jsonrpc":"2.0","id":%d,"result":{"protocol":1}}`+"\n", q.ID)
			case "echo":
				fmt.Fprintf(nc, `{"jsonrpc":"2.0","id":%d,"result":%s}`+"\n", q.ID, q.Params)
			default:
				fmt.Fprintf(nc, `{"jsonrpc":"2.0","id":%d,"error":{"code":-32601,"message":"no","data":{"code":"METHOD_NOT_FOUND"}}}`+"\n", q.ID)
			}
		}
	}()
	return l.Addr().String()
}
