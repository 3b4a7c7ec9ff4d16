package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(trltest.Exit)) }

// rig is a relay to a real daemon, with the caller's ends of its pipes.
type rig struct {
	daemon *trltest.Daemon
	in     *os.File // to the relay's standard input
	out    *os.File // from its standard output
	lines  *bufio.Reader
	ended  chan error
}

func start(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	d, err := trltest.Start(trltest.Config{Args: []string{"--node", "k7"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop() })
	stdin, in, inErr := os.Pipe()
	out, stdout, outErr := os.Pipe()
	if err := errors.Join(inErr, outErr); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Socket: d.Socket, Stdin: stdin, Stdout: stdout}
	if change != nil {
		change(&cfg)
	}
	r := &rig{daemon: d, in: in, out: out, lines: bufio.NewReader(out), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		r.ended <- Run(ctx, cfg)
		_ = errors.Join(stdin.Close(), stdout.Close())
	}()
	t.Cleanup(func() {
		cancel()
		_ = errors.Join(in.Close(), out.Close())
	})
	return r
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

func TestHelloComesFirst(t *testing.T) {
	r := start(t, nil)
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
}

// A caller that has closed its side still receives its answers; then the relay
// ends.
func TestAnswersFollowTheEndOfInput(t *testing.T) {
	r := start(t, nil)
	r.line(t)
	r.send(t, ping)
	_ = r.in.Close()
	if got := r.line(t); !strings.Contains(got, `"id":7`) {
		t.Errorf("answered %q", got)
	}
	if err := r.awaitEnd(t); err != nil {
		t.Error(err)
	}
}

func TestEndsWithItsDaemon(t *testing.T) {
	r := start(t, nil)
	r.line(t)
	if err := r.daemon.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := r.line(t); got != "" {
		t.Errorf("read %q", got)
	}
	if err := r.awaitEnd(t); err != nil {
		t.Error(err)
	}
}

// A command is under way, both pipes of the caller are closed, as after its death:
// the relay must not wait for the answer.
func TestEndsWithItsCaller(t *testing.T) {
	r := start(t, func(c *Config) { c.interval, c.silence, c.poll = time.Hour, time.Hour, 10*time.Millisecond })
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
}

// The engine of a container may keep both pipes open although the caller is gone.
func TestEndsWithoutHeartbeats(t *testing.T) {
	quick := func(c *Config) {
		c.interval, c.silence, c.poll = 50*time.Millisecond, 300*time.Millisecond, 10*time.Millisecond
	}
	r := start(t, quick)
	r.line(t)
	r.send(t, "\n")
	if err := r.awaitEnd(t); !errors.Is(err, errSilent) {
		t.Errorf("ended with %v", err)
	}

	person := start(t, quick) // never sends one
	person.line(t)
	for range 3 { // heartbeats prove that time has passed
		if text, err := person.lines.ReadString('\n'); text != "\n" || err != nil {
			t.Fatalf("read %q: %v", text, err)
		}
	}
	person.send(t, ping)
	if got := person.line(t); !strings.Contains(got, `"id":7`) {
		t.Errorf("answered %q", got)
	}
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
