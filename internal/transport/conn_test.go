package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
)

func runLine(id int, command string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"exec.run","params":{"session_id":"s","command":%q}}`+"\n", id, command)
}

// gate is a run handler. Its calls report that they have started, and then wait
// to be released or cancelled.
type gate struct {
	begun     chan string
	open      chan struct{}
	cancelled chan string

	mu        sync.Mutex
	now, most int
}

func newGate() *gate {
	return &gate{begun: make(chan string, 10_000), open: make(chan struct{}), cancelled: make(chan string, 10_000)}
}

func (g *gate) run(ctx context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
	g.mu.Lock()
	g.now++
	g.most = max(g.most, g.now)
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.now--
		g.mu.Unlock()
	}()
	g.begun <- p.Command
	select {
	case <-g.open:
		return &api.ExecResult{Stdout: p.Command}, nil
	case <-ctx.Done():
		g.cancelled <- p.Command
		return nil, ctx.Err()
	}
}

func TestRequestsOfOneConnectionAreConcurrent(t *testing.T) {
	g := newGate()
	_, path := start(t, Config{}, g.run)
	p := dial(t, path)
	const n = 100
	for i := range n {
		p.send(runLine(i, "x"))
	}
	for range n {
		<-g.begun
	}
	p.ping() // answered while all the others wait
	close(g.open)
	seen := map[string]bool{}
	for range n {
		r := p.reply()
		if r.Error != nil || seen[string(r.ID)] {
			t.Fatalf("id %s: seen %v, error %v", r.ID, seen[string(r.ID)], r.Error)
		}
		seen[string(r.ID)] = true
	}
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	const limit = 4 << 10
	for name, tc := range map[string]struct {
		cfg  Config
		line string
		most int
	}{
		"in number": {Config{MaxInFlight: 3}, "x", 3},
		"in bytes":  {Config{MaxRequestBytes: limit}, strings.Repeat("x", limit/2), 2*maxInFlightRequests + 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			_, path := start(t, tc.cfg, g.run)
			p := dial(t, path)
			const n = 100
			go func() {
				for i := range n {
					if _, err := p.Write([]byte(runLine(i, tc.line))); err != nil {
						return
					}
				}
			}()
			for range n {
				<-g.begun
				g.open <- struct{}{}
				p.reply()
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.most > tc.most {
				t.Errorf("%d at once, want at most %d", g.most, tc.most)
			}
			p.ping()
		})
	}
}

func TestNotificationsRunUnanswered(t *testing.T) {
	ran := make(chan string, 1)
	_, path := start(t, Config{}, func(_ context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
		ran <- p.Command
		return nil, errors.New("never sent")
	})
	p := dial(t, path)
	p.send(`{"jsonrpc":"2.0","method":"exec.run","params":{"session_id":"s","command":"note"}}` + "\n")
	if got := <-ran; got != "note" {
		t.Errorf("ran %q", got)
	}
	p.ping() // and not an answer to the notification
}

func TestCutOffLineIsNotRun(t *testing.T) {
	_, path := start(t, Config{}, func(context.Context, api.ExecRunParams) (*api.ExecResult, error) {
		t.Error("half a line was run")
		return nil, nil
	})
	p := dial(t, path)
	p.send(strings.TrimSuffix(runLine(1, "rm -rf /"), "\n"))
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(p.r); err != nil || len(rest) > 0 {
		t.Errorf("read %q, %v", rest, err)
	}
}

func TestDisconnectCancelsItsRequests(t *testing.T) {
	for name, leave := range map[string]func(*peer){
		"closed":                 func(p *peer) { p.Close() },
		"half closed, then gone": func(p *peer) { p.CloseWrite(); p.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			_, path := start(t, Config{}, g.run)
			p, other := dial(t, path), dial(t, path)
			p.send(runLine(1, "mine") + runLine(2, "mine"))
			other.send(runLine(1, "other's"))
			for range 3 {
				<-g.begun
			}
			leave(p)
			for range 2 {
				if got := <-g.cancelled; got != "mine" {
					t.Errorf("cancelled %q", got)
				}
			}
			close(g.open)
			if r := other.reply(); r.Error != nil {
				t.Error(r.Error)
			}
		})
	}
}

// While reading is paused, the end of the input is not read either.
func TestDisconnectIsNoticedWhilePaused(t *testing.T) {
	g := newGate()
	_, path := start(t, Config{MaxInFlight: 1}, g.run)
	p := dial(t, path)
	p.send(runLine(1, "a") + runLine(2, "b"))
	<-g.begun
	p.Close()
	<-g.cancelled
}

func TestHangUpIsPolled(t *testing.T) {
	g := newGate()
	looks := 0
	in := strings.NewReader(runLine(1, "x"))
	err := NewServer(Config{Handler: tableWith(g.run)}).run(t.Context(), access.Actor{Scope: access.ScopeAdmin}, link{
		Reader: in, Writer: io.Discard, close: func() error { return nil }, stopRead: func() {},
		hungUp: func() bool { looks++; return looks == 3 },
	})
	if err != nil || looks != 3 || len(g.cancelled) != 1 {
		t.Errorf("error %v, looked %d times, %d cancelled", err, looks, len(g.cancelled))
	}
}

func TestHalfClosedClientGetsItsAnswers(t *testing.T) {
	g := newGate()
	_, path := start(t, Config{}, g.run)
	p := dial(t, path)
	p.send(runLine(1, "a") + runLine(2, "b"))
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-g.begun
	<-g.begun
	close(g.open)
	p.reply()
	p.reply()
	if _, err := p.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last answer: %v", err)
	}
}

func TestClientThatDoesNotReadIsCutOff(t *testing.T) {
	big := strings.Repeat("x", 4<<20) // more than any socket buffer
	gone := make(chan struct{}, 1)
	_, path := start(t, Config{WriteTimeout: 300 * time.Millisecond}, func(ctx context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
		if p.Command == "wait" {
			<-ctx.Done()
			gone <- struct{}{}
		}
		return &api.ExecResult{Stdout: big}, nil
	})
	deaf, other := dial(t, path), dial(t, path)
	deaf.send(runLine(1, "wait"))
	for i := range 10 {
		deaf.send(runLine(2+i, "big"))
	}
	other.ping()
	<-gone
	other.ping()
}

func TestLargeAnswersArriveWhole(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 3*writePieceBytes/16) + "end"
	_, path := start(t, Config{}, func(context.Context, api.ExecRunParams) (*api.ExecResult, error) {
		return &api.ExecResult{Stdout: big}, nil
	})
	p := dial(t, path)
	for i := range 3 {
		p.send(runLine(i, ""))
	}
	for range 3 {
		if line := p.line(); !strings.Contains(line, big) {
			t.Errorf("an answer of %d bytes lacks the output", len(line))
		}
	}
}

func TestShutdownAnswersWhatIsInFlight(t *testing.T) {
	g := newGate()
	s, path := start(t, Config{}, g.run)
	idle := dial(t, path)
	idle.ping()
	var peers []*peer
	for range 20 { // enough that some are being read at that moment
		p := dial(t, path)
		p.send(runLine(1, "x"))
		<-g.begun
		p.ping()
		peers = append(peers, p)
	}
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.Background()) }()
	// An idle connection ends at once, and the daemon accepts no new ones while
	// it still holds the lock.
	if _, err := idle.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("idle connection: %v", err)
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("a connection was accepted")
	}
	if _, err := ListenUnix(path); err == nil || !strings.Contains(err.Error(), "already serving") {
		t.Errorf("a second daemon: %v", err)
	}
	close(g.open)
	for _, p := range peers {
		if r := p.reply(); r.Error != nil {
			t.Error(r.Error)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestShutdownCancelsWhatDoesNotFinish(t *testing.T) {
	g := newGate()
	s, path := start(t, Config{}, g.run)
	p := dial(t, path)
	p.send(runLine(1, "x"))
	<-g.begun
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("shutdown: %v", err)
	}
	<-g.cancelled
	if err := s.Serve(context.Background(), nopListener{}); !errors.Is(err, ErrServerClosed) {
		t.Errorf("serve after shutdown: %v", err)
	}
}

type nopListener struct{ net.Listener }

func (nopListener) Close() error { return nil }

func TestServeEndsWithItsContext(t *testing.T) {
	g := newGate()
	cfg := Config{Handler: tableWith(g.run)}
	path := t.TempDir() + "/trl.sock"
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- NewServer(cfg).Serve(ctx, l) }()
	p := dial(t, path)
	p.send(runLine(1, "x"))
	<-g.begun
	cancel()
	<-g.cancelled
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left, err := os.ReadDir(strings.TrimSuffix(path, "/trl.sock")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestActorAndLog(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	actors := make(chan access.Actor, 1)
	_, path := start(t, Config{Log: slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug}))},
		func(ctx context.Context, _ api.ExecRunParams) (*api.ExecResult, error) {
			a, _ := access.From(ctx)
			actors <- a
			return nil, api.Errorf(api.CodeSessionBusy, "busy")
		})
	p := dial(t, path)
	p.send(runLine(7, "hunter2"))
	if diff := cmp.Diff(access.Actor{UID: os.Geteuid(), PID: os.Getpid(), Transport: "unix", Scope: access.ScopeAdmin}, <-actors); diff != "" {
		t.Error(diff)
	}
	p.reply()
	p.CloseWrite()
	io.Copy(io.Discard, p.r) // the log entry is written before the connection ends
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"method=exec.run", "id=7", "code=SESSION_BUSY", "duration="} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %q lacks %s", &log, want)
		}
	}
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log contains a parameter: %s", &log)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
