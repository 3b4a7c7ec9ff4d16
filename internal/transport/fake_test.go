package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeExecs implements only Run, with a function of the test.
type fakeExecs struct {
	service.Execs
	run func(context.Context, api.ExecRunParams) (*api.ExecResult, error)
}

func (f fakeExecs) Run(ctx context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
	arrival.MarkQueued(ctx)
	return f.run(ctx, p)
}

type fakeSystem struct{}

func (fakeSystem) Ping(context.Context) *api.PingResult {
	return &api.PingResult{Version: "test", Protocol: api.Protocol}
}
func (fakeSystem) SystemInfo(context.Context) *api.SystemInfo { return &api.SystemInfo{} }
func (fakeSystem) Stats(context.Context) *api.SystemStats     { return &api.SystemStats{} }
func (fakeSystem) Upgrade(context.Context) (*api.UpgradeResult, error) {
	return &api.UpgradeResult{}, nil
}

type runFunc = func(context.Context, api.ExecRunParams) (*api.ExecResult, error)

func tableWith(run runFunc) *service.Table {
	return service.New(service.Config{Execs: fakeExecs{run: run}, System: fakeSystem{}})
}

// start serves a table with the given run on a Unix socket until the test ends.
func start(t testing.TB, cfg Config, run runFunc) (*Server, string) {
	t.Helper()
	if cfg.Handler == nil {
		cfg.Handler = tableWith(run)
	}
	path := filepath.Join(t.TempDir(), "trl.sock")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(cfg)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; !errors.Is(err, ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return s, path
}

// peer is a raw client.
type peer struct {
	t testing.TB
	*net.UnixConn
	r *bufio.Reader
}

func dial(t testing.TB, path string) *peer {
	t.Helper()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	p := &peer{t: t, UnixConn: nc.(*net.UnixConn), r: bufio.NewReader(nc)}
	p.setDeadline()
	return p
}

// setDeadline makes a test that hangs fail where it hangs.
func (p *peer) setDeadline() { _ = p.SetDeadline(time.Now().Add(30 * time.Second)) }

func (p *peer) send(lines string) {
	p.t.Helper()
	p.setDeadline()
	if _, err := p.Write([]byte(lines)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) line() string {
	p.t.Helper()
	p.setDeadline()
	line, err := p.r.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return line
}

// reply is an answer as a client sees it.
type reply struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   *api.Error      `json:"error"`
}

func (p *peer) reply() reply {
	p.t.Helper()
	return decodeReply(p.t, p.line())
}

func decodeReply(t testing.TB, line string) reply {
	t.Helper()
	var r reply
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		t.Fatalf("answer %.200q: %v", line, err)
	}
	if r.JSONRPC != "2.0" || r.ID == nil || (r.Result == nil) == (r.Error == nil) {
		t.Fatalf("answer %.200q is not a JSON-RPC answer", line)
	}
	return r
}

const pingLine = `{"jsonrpc":"2.0","id":"ping","method":"system.ping"}` + "\n"

// ping checks that the connection is usable and in sync.
func (p *peer) ping() {
	p.t.Helper()
	p.send(pingLine)
	if r := p.reply(); string(r.ID) != `"ping"` || r.Error != nil {
		p.t.Fatalf("ping was answered with %s %s %v", r.ID, r.Result, r.Error)
	}
}
