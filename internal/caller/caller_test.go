package caller

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake has one exec and three events.
type fake struct {
	service.Sessions
	service.Execs
	service.System
}

func (fake) Ping(context.Context) *api.PingResult { return &api.PingResult{Version: "test"} }

func (fake) Attach(_ context.Context, p api.ExecAttachParams) (*api.ExecAttachResult, notify.Feed, error) {
	if p.ExecID != "e-1" {
		return nil, nil, api.Errorf(api.CodeExecNotFound, "no exec %q", p.ExecID)
	}
	return &api.ExecAttachResult{StreamID: "st-1", From: p.From}, func(_ context.Context, send func(notify.Notification) error) error {
		for _, n := range []notify.Notification{
			&notify.RawChunk{Chunk: api.Chunk{StreamID: "st-1", ExecID: "e-1", Type: api.ChunkStdout, Next: 4}, Raw: []byte("one\n")},
			&notify.RawChunk{Chunk: api.Chunk{StreamID: "st-1", ExecID: "e-1", Type: api.ChunkStdout, Offset: 4, Next: 6}, Raw: []byte("\xff\n")},
			&api.Chunk{StreamID: "st-1", ExecID: "e-1", Type: api.ChunkExit, Offset: 6, Next: 6},
		} {
			if err := send(n); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func (fake) Watch(context.Context, api.SessionWatchParams) (*api.SessionWatchResult, notify.Feed, error) {
	return &api.SessionWatchResult{StreamID: "st-2"}, func(ctx context.Context, send func(notify.Notification) error) error {
		for _, id := range []string{"s-1", "s-2", "s-3"} {
			if err := send(&api.SessionEvent{StreamID: "st-2", Type: api.EventCreated, SessionID: id}); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	}, nil
}

func dial(t *testing.T) Caller {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trl.sock")
	l, err := transport.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	server := transport.NewServer(transport.Config{Handler: service.New(service.Config{Sessions: fake{}, Execs: fake{}, System: fake{}})})
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), l) }()
	c, err := client.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
		<-served
	})
	return Client(c)
}

func TestClient(t *testing.T) {
	c := dial(t)
	var ping api.PingResult
	if err := c.Call(t.Context(), api.MethodSystemPing, nil, &ping); err != nil || ping.Version != "test" {
		t.Errorf("ping: %+v, %v", ping, err)
	}
	var got []string
	all := func(chunk *api.Chunk, data []byte) bool {
		got = append(got, string(chunk.Type)+" "+string(data))
		return true
	}
	if err := c.Attach(t.Context(), api.ExecAttachParams{ExecID: "e-1"}, all); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"stdout one\n", "stdout \xff\n", "exit "}, got); diff != "" {
		t.Error(diff)
	}
	calls := 0
	if err := c.Attach(t.Context(), api.ExecAttachParams{ExecID: "e-1"}, func(*api.Chunk, []byte) bool { calls++; return false }); err != nil || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if err := c.Attach(t.Context(), api.ExecAttachParams{ExecID: "e-2"}, all); !api.IsCode(err, api.CodeExecNotFound) {
		t.Errorf("no exec: %v", err)
	}
	var seen []string
	if err := c.Watch(t.Context(), api.SessionWatchParams{}, func(e *api.SessionEvent) bool {
		seen = append(seen, e.SessionID)
		return len(seen) < 2
	}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"s-1", "s-2"}, seen); diff != "" {
		t.Error(diff)
	}
}
