package relay

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/stdio"
	"github.com/terminal-runtime/trl/internal/transport"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestHelloComesFirst(t *testing.T) {
	d := startDaemon(t)
	inBothForms(t, func(t *testing.T, files ends) {
		r := start(t, d.Socket, files, stdio.Timing{})
		var hello struct {
			Method string
			Params api.Hello
		}
		if err := json.Unmarshal([]byte(r.line(t)), &hello); err != nil {
			t.Fatal(err)
		}
		h := hello.Params
		if hello.Method != api.NotifySystemHello || h.Protocol != api.Protocol || h.Node != "k7" || len(h.Digest) != 64 || h.Boot == "" || h.OS != "linux" || h.User == "" {
			t.Errorf("hello %+v", hello)
		}
		r.send(t, ping)
		if got := r.line(t); !strings.Contains(got, `"id":7,"result"`) {
			t.Errorf("answered %q", got)
		}
	})
}

// A caller that has closed its side still receives its answers; then the relay
// ends.
func TestAnswersFollowTheEndOfInput(t *testing.T) {
	d := startDaemon(t)
	inBothForms(t, func(t *testing.T, files ends) {
		r := start(t, d.Socket, files, stdio.Timing{})
		r.line(t)
		r.send(t, ping)
		_ = r.in.Close()
		if got := r.line(t); !strings.Contains(got, `"id":7`) {
			t.Errorf("answered %q", got)
		}
		if err := r.awaitEnd(t); err != nil {
			t.Error(err)
		}
	})
}

// The daemon ends, dies, or is replaced: the relay ends, and so does its output. A
// new relay reaches the next daemon.
func TestEndsWithItsDaemon(t *testing.T) {
	for name, tc := range map[string]struct {
		end       func(t *testing.T, d *trltest.Daemon) error
		comesBack bool
	}{
		"stopped": {func(_ *testing.T, d *trltest.Daemon) error { return d.Stop() }, false},
		"killed": {func(t *testing.T, d *trltest.Daemon) error {
			return syscall.Kill(ask[api.SystemInfo](t, d.Socket, api.MethodSystemInfo).PID, syscall.SIGKILL)
		}, true},
		"upgraded": {func(t *testing.T, d *trltest.Daemon) error {
			ask[api.UpgradeResult](t, d.Socket, api.MethodSystemUpgrade)
			return nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBothForms(t, func(t *testing.T, files ends) {
				d := startDaemon(t)
				r := start(t, d.Socket, files, stdio.Timing{})
				r.line(t)
				r.send(t, ping)
				r.line(t)
				if err := tc.end(t, d); err != nil {
					t.Fatal(err)
				}
				if got := r.line(t); got != "" {
					t.Errorf("read %q", got)
				}
				if err := r.awaitEnd(t); err != nil {
					t.Error(err)
				}
				if tc.comesBack {
					ask[api.SystemInfo](t, d.Socket, api.MethodSystemInfo)
				}
			})
		})
	}
}

// ask makes a call over a relay.
func ask[R any](t *testing.T, socket, method string) *R {
	t.Helper()
	r := start(t, socket, forms["passed"](t), stdio.Timing{})
	r.line(t)
	r.send(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`+"\n")
	var result R
	if err := peer.Decode(method, []byte(r.line(t)), &result); err != nil {
		t.Fatal(err)
	}
	return &result
}

// A command is under way, both pipes of the caller are closed, as after its death:
// the relay must not wait for the answer.
func TestEndsWithItsCaller(t *testing.T) {
	d := startDaemon(t)
	inBothForms(t, func(t *testing.T, files ends) {
		r := start(t, d.Socket, files, stdio.Timing{Interval: time.Hour, Silence: time.Hour, Poll: 10 * time.Millisecond})
		r.line(t)
		r.send(t, `{"jsonrpc":"2.0","id":1,"method":"session.create","params":{"argv":["sleep","600"]}}`+"\n")
		var made struct{ Result api.Session }
		if err := json.Unmarshal([]byte(r.line(t)), &made); err != nil {
			t.Fatal(err)
		}
		r.send(t, `{"jsonrpc":"2.0","id":2,"method":"exec.output","params":{"exec_id":"`+made.Result.ExecID+`","wait_ms":600000}}`+"\n")
		_ = errors.Join(r.in.Close(), r.out.Close())
		if err := r.awaitEnd(t); err != nil {
			t.Error(err)
		}
	})
}

// quick lets tests see heartbeats and their absence.
var quick = stdio.Timing{Interval: 50 * time.Millisecond, Silence: 300 * time.Millisecond, Poll: 10 * time.Millisecond}

// The engine of a container may keep both pipes open although the caller is gone.
func TestEndsWithoutHeartbeats(t *testing.T) {
	s, socket := serve(t, transport.Config{Heartbeats: quick})
	inBothForms(t, func(t *testing.T, files ends) {
		r := start(t, socket, files, quick)
		r.line(t)
		r.send(t, "\n")
		if err := r.awaitEnd(t); err != nil && !errors.Is(err, stdio.ErrSilent) {
			t.Errorf("ended with %v", err)
		}
		awaitNoConnection(t, s)
	})
	inBothForms(t, func(t *testing.T, files ends) { // a person, who never sends one
		r := start(t, socket, files, quick)
		r.line(t)
		for range 10 { // heartbeats prove that time has passed
			if text, err := r.lines.ReadString('\n'); text != "\n" || err != nil {
				t.Fatalf("read %q: %v", text, err)
			}
		}
		r.send(t, ping)
		if got := r.line(t); !strings.Contains(got, `"id":7`) {
			t.Errorf("answered %q", got)
		}
	})
}

// A caller that reads nothing holds a connection no longer than any other client
// that does not read its answers, or until it is silent.
func TestStalledReader(t *testing.T) {
	for name, cfg := range map[string]transport.Config{
		"timeout": {WriteTimeout: time.Second},
		"silence": {WriteTimeout: time.Hour, Heartbeats: quick},
	} {
		t.Run(name, func(t *testing.T) {
			s, socket := serve(t, cfg)
			inBothForms(t, func(t *testing.T, files ends) {
				r := start(t, socket, files, cfg.Heartbeats)
				r.line(t)
				r.send(t, "\n")
				long := `{"jsonrpc":"2.0","id":1,"method":"echo","params":"` + strings.Repeat("x", 4<<20) + `"}` + "\n"
				go func() { _, _ = r.in.WriteString(long + long) }() // it may not be read to its end
				awaitNoConnection(t, s)
			})
		})
	}
}

func TestLongLines(t *testing.T) {
	often := stdio.Timing{Interval: time.Millisecond, Silence: time.Hour, Poll: time.Millisecond}
	_, socket := serve(t, transport.Config{Heartbeats: often})
	inBothForms(t, func(t *testing.T, files ends) {
		r := start(t, socket, files, often)
		r.line(t)
		text := `"` + strings.Repeat("0123456789", 700<<10) + `"`
		for range 3 {
			go func() { _, _ = r.in.WriteString(`{"jsonrpc":"2.0","id":1,"method":"echo","params":` + text + "}\n") }()
			if got := r.line(t); got != `{"jsonrpc":"2.0","id":1,"result":`+text+"}\n" {
				t.Errorf("%d bytes came back as %d", len(text), len(got))
			}
		}
	})
}

func TestWaitsForADaemon(t *testing.T) {
	dir, err := trltest.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := trltest.SocketIn(dir)
	if err := Run(t.Context(), Config{Socket: socket}); !errors.Is(err, peer.ErrNoDaemon) {
		t.Errorf("without waiting: %v", err)
	}
	stdin, in, _ := os.Pipe()
	out, stdout, _ := os.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), Config{Socket: socket, Wait: trltest.Patience, Stdin: stdin, Stdout: stdout})
		_ = stdout.Close()
	}()
	d, err := trltest.Start(trltest.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop() })
	if text, err := bufio.NewReader(out).ReadString('\n'); !strings.Contains(text, "system.hello") {
		t.Errorf("read %q: %v", text, err)
	}
	_ = in.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	_ = errors.Join(stdin.Close(), out.Close())
}
