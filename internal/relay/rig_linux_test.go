package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/stdio"
	"github.com/terminal-runtime/trl/internal/transport"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(trltest.Exit)) }

// ends are the files of a relay: its own, and those of its caller.
type ends struct{ stdin, stdout, in, out *os.File }

// forms are the two forms of a relay, by the files that make it choose one. Every
// promise holds for both.
var forms = map[string]func(t *testing.T) ends{
	"passed": func(t *testing.T) ends { // pipes
		stdin, in, inErr := os.Pipe()
		out, stdout, outErr := os.Pipe()
		if err := errors.Join(inErr, outErr); err != nil {
			t.Fatal(err)
		}
		return ends{stdin, stdout, in, out}
	},
	"copied": func(t *testing.T) ends { // sockets
		stdin, in := socketPair(t)
		out, stdout := socketPair(t)
		return ends{stdin, stdout, in, out}
	},
}

func socketPair(t *testing.T) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
}

// inBothForms runs a test for each of the forms.
func inBothForms(t *testing.T, test func(t *testing.T, files ends)) {
	for name, open := range forms {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// rig is a relay with the caller's ends of its files.
type rig struct {
	in    *os.File // to the relay's standard input
	out   *os.File // from its standard output
	lines *bufio.Reader
	ended chan error
}

// start runs a relay to the daemon at socket.
func start(t *testing.T, socket string, files ends, timing stdio.Timing) *rig {
	t.Helper()
	r := &rig{in: files.in, out: files.out, lines: bufio.NewReader(files.out), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended <- Run(ctx, Config{Socket: socket, Stdin: files.stdin, Stdout: files.stdout, timing: timing})
		_ = errors.Join(files.stdin.Close(), files.stdout.Close())
	}()
	t.Cleanup(func() {
		cancel()
		_ = errors.Join(r.in.Close(), r.out.Close())
		<-done
	})
	return r
}

// startDaemon starts a real daemon.
func startDaemon(t *testing.T) *trltest.Daemon {
	t.Helper()
	d, err := trltest.Start(trltest.Config{Args: []string{"--node", "k7"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.Running() {
			_ = d.Stop()
		}
	})
	return d
}

// line returns the next line that is not empty, or "" at the end.
func (r *rig) line(t *testing.T) string {
	t.Helper()
	if err := r.out.SetReadDeadline(time.Now().Add(trltest.Patience)); err != nil {
		t.Fatal(err)
	}
	for {
		text, err := r.lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		if text != "\n" {
			return text
		}
	}
}

func (r *rig) send(t *testing.T, text string) {
	t.Helper()
	if _, err := r.in.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) awaitEnd(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(trltest.Patience):
		t.Fatal("the relay has not ended")
		return nil
	}
}

const ping = `{"jsonrpc":"2.0","id":7,"method":"system.ping"}` + "\n"

// echo is a daemon's handler: it answers with the params.
type echo struct{}

func (echo) Call(_ context.Context, method string, params json.RawMessage) (any, error) {
	if method == api.MethodSystemInfo {
		return &api.SystemInfo{Protocol: api.Protocol}, nil
	}
	return append(json.RawMessage(nil), params...), nil
}

// serve serves connections as a daemon does, in this process.
func serve(t *testing.T, cfg transport.Config) (*transport.Server, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "trl.sock")
	l, err := transport.ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Handler = echo{}
	s := transport.NewServer(cfg)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), trltest.Patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, transport.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s, socket
}

// awaitNoConnection waits until the server has no connection.
func awaitNoConnection(t *testing.T, s *transport.Server) {
	t.Helper()
	trltest.Eventually(t, "the daemon has ended the connection", func() bool {
		open, _ := s.Connections()
		return open == 0
	})
}
