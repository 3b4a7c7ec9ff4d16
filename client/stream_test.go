package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/transport"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// journal is a fake daemon with one exec that writes text.
type journal struct {
	service.Sessions
	service.Execs
	text string

	mu       sync.Mutex
	runs     map[string]bool // by key
	attached []int64
	skip     int // number of attached streams that omit a chunk
	forgets  bool
}

const chunkSize = 1000

func (j *journal) Stream(_ context.Context, p api.ExecStreamParams) (*api.ExecStreamResult, notify.Feed, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.runs == nil {
		j.runs = map[string]bool{}
	}
	j.runs[p.Key] = true
	return &api.ExecStreamResult{ExecID: "e-1", StreamID: "st-s"}, j.feed("st-s", 0, false), nil
}

func (j *journal) Attach(_ context.Context, p api.ExecAttachParams) (*api.ExecAttachResult, notify.Feed, error) {
	if p.ExecID != "e-1" {
		return nil, nil, api.Errorf(api.CodeExecNotFound, "no such exec")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.attached = append(j.attached, p.From)
	skip := j.skip > 0
	j.skip--
	id := "st-" + string(rune('a'+len(j.attached)%26))
	return &api.ExecAttachResult{StreamID: id, From: p.From}, j.feed(id, p.From, skip), nil
}

func (j *journal) feed(id string, at int64, skip bool) notify.Feed {
	return func(_ context.Context, send func(notify.Notification) error) error {
		size := int64(len(j.text))
		for n := 0; at < size; n++ {
			end := min(at+chunkSize, size)
			if !skip || n != 1 {
				err := send(&api.Chunk{StreamID: id, ExecID: "e-1", Type: api.ChunkStdout, Offset: at, Data: j.text[at:end], Next: end})
				if err != nil {
					return err
				}
			}
			at = end
		}
		if j.forgets {
			return send(&api.Chunk{StreamID: id, ExecID: "e-1", Type: api.ChunkError, Offset: at, Next: at, Error: api.Errorf(api.CodeExecNotFound, "forgotten").With("runtime", "docker:web")})
		}
		code := 3
		return send(&api.Chunk{StreamID: id, ExecID: "e-1", Type: api.ChunkExit, Offset: at, Next: at, Result: &api.ExecResult{ExecID: "e-1", ExitCode: &code}})
	}
}

func (j *journal) Watch(context.Context, api.SessionWatchParams) (*api.SessionWatchResult, notify.Feed, error) {
	return &api.SessionWatchResult{StreamID: "st-w"}, func(_ context.Context, send func(notify.Notification) error) error {
		return send(&api.SessionEvent{StreamID: "st-w", Type: api.EventCreated, SessionID: "s-1"})
	}, nil
}

func (j *journal) table() *service.Table {
	return service.New(service.Config{Sessions: j, Execs: j, System: fakeSystem{}})
}

func text(size int) string {
	return strings.Repeat("0123456789 \"quoted\" \\ é\n", size/25+1)[:size/25*25]
}

// all receives a stream to its end.
func all(t *testing.T, st *Stream) string {
	t.Helper()
	var got strings.Builder
	for chunk, err := range st.Chunks() {
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString(chunk.Data)
	}
	if r := st.Result(); r == nil || *r.ExitCode != 3 {
		t.Errorf("result %+v", r)
	}
	if c, err := st.Receive(); err != io.EOF {
		t.Errorf("after the end: %+v, %v", c, err)
	}
	return got.String()
}

// same reports where two long texts differ.
func same(t *testing.T, want, got string) {
	t.Helper()
	if want == got {
		return
	}
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	t.Errorf("%d bytes, want %d; they differ at %d", len(got), len(want), at)
}

func TestStreamResumes(t *testing.T) {
	for _, network := range []string{"whole", "cut", "torn"} {
		t.Run(network, func(t *testing.T) {
			j := &journal{text: text(300_000)}
			path, _ := daemon(t, transport.Config{Handler: j.table()})
			cut := 0
			switch network {
			case "cut":
				cut = 20_000
			case "torn":
				j.skip = 3
			}
			proxy, err := trltest.NewProxy("unix", path+".proxy", path, cut, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			c, err := Dial(t.Context(), "unix:"+proxy.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			st, err := c.Stream(t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: "s", Command: "x"}})
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			same(t, j.text, all(t, st))
			st, err = c.Attach(t.Context(), api.ExecAttachParams{ExecID: "e-1", From: 250_000})
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			same(t, j.text[250_000:], all(t, st))
			if len(j.runs) != 1 || j.runs[""] {
				t.Errorf("the command was sent with the keys %v", j.runs)
			}
			if cut > 0 && proxy.Cuts() < 5 || network == "torn" && len(j.attached) < 4 {
				t.Errorf("%d cuts, attached at %v", proxy.Cuts(), j.attached)
			}
		})
	}
}

// TestForgottenExec: an error chunk ends a stream with its error, and the client does
// not try to resume it.
func TestForgottenExec(t *testing.T) {
	j := &journal{text: text(10_000), forgets: true}
	path, _ := daemon(t, transport.Config{Handler: j.table()})
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	st, err := c.Stream(t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var got strings.Builder
	for chunk, err := range st.Chunks() {
		if err != nil {
			if !api.IsCode(err, api.CodeExecNotFound) || api.AsError(err).Details["runtime"] != "docker:web" {
				t.Error(err)
			}
			break
		}
		got.WriteString(chunk.Data)
	}
	same(t, j.text, got.String())
	if _, err := st.Receive(); !api.IsCode(err, api.CodeExecNotFound) {
		t.Errorf("after the end: %v", err)
	}
	if st.Result() != nil || len(j.attached) > 0 {
		t.Errorf("result %+v, attached at %v", st.Result(), j.attached)
	}
}

func TestStreamErrors(t *testing.T) {
	j := &journal{text: text(20_000_000)} // more than fits in the buffers in between
	path, stop := daemon(t, transport.Config{Handler: j.table()})
	c, err := DialWith(t.Context(), path, Options{Patience: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Attach(t.Context(), api.ExecAttachParams{ExecID: "e-2"}); !api.IsCode(err, api.CodeExecNotFound) {
		t.Error(err)
	}
	st, err := c.Stream(t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Receive(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	other, err := c.Attach(ctx, api.ExecAttachParams{ExecID: "e-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	cancel()
	for err = nil; err == nil; {
		_, err = other.Receive()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after its context: %v", err)
	}
	stop() // the daemon does not come back
	for err = nil; err == nil; {
		_, err = st.Receive()
	}
	if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoDaemon) {
		t.Errorf("after the daemon: %v", err)
	}
}

// Streams and calls share the one connection of a stdio daemon.
func TestStreamsShareAConnection(t *testing.T) {
	j := &journal{text: text(100_000)}
	near, far := net.Pipe()
	s := transport.NewServer(transport.Config{Handler: j.table()})
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(context.Background(), far, far) }()
	c := NewConn(near)
	defer func() { c.Close(); <-served }()
	left, err := c.Attach(t.Context(), api.ExecAttachParams{ExecID: "e-1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := left.Receive(); err != nil {
		t.Fatal(err)
	}
	left.Close() // its unread rest must not block other streams
	a, err := c.Attach(t.Context(), api.ExecAttachParams{ExecID: "e-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	same(t, j.text, all(t, a))
	if _, err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	ev, err := c.Watch(t.Context(), api.SessionWatchParams{})
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	got, err := ev.Receive()
	if diff := cmp.Diff("s-1", got.SessionID); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestReadEvents(t *testing.T) {
	const long = 3 * peer.BufferBytes
	for name, tc := range map[string]struct {
		input string
		want  []string
	}{
		"events":   {"id: 3\nevent: chunk\ndata: {\"a\":1}\n\n: \n\ndata:{}\n\n", []string{`{"a":1}`, "{}"}},
		"returns":  {"data: x\r\n\r\n", []string{"x"}},
		"in lines": {"data: a\ndata: b\n\n", []string{"a\nb"}},
		"cut":      {"data: a\n\ndata: b\n", []string{"a"}},
		"empty":    {"", nil},
		"long":     {"data: " + strings.Repeat("x", long) + "\n\n", []string{strings.Repeat("x", long)}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			err := readEvents(strings.NewReader(tc.input), func(data []byte) error {
				got = append(got, string(data))
				return nil
			})
			if err != io.EOF {
				t.Error(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzMessages: whatever a daemon sends, the client survives it.
func FuzzMessages(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"stream_id":"st-1"}}` + "\n" + `{"jsonrpc":"2.0","method":"exec.chunk","params":{"stream_id":"st-1","type":"stdout","offset":0,"data":"a\n","next":2}}` + "\n",
		`{"jsonrpc":"2.0","method":"exec.chunk","params":`, `{"jsonrpc":"2.0","method":"x","params":{}}` + "\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		near, far := net.Pipe()
		go func() {
			_, _ = io.Copy(io.Discard, far)
		}()
		go func() {
			_, _ = io.Copy(far, bytes.NewReader(input))
			_ = far.Close()
		}()
		c := NewConn(near)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		st, err := c.Attach(ctx, api.ExecAttachParams{ExecID: "e"})
		if err != nil {
			return
		}
		defer st.Close()
		for err == nil {
			_, err = st.Receive()
		}
	})
}
