package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/transport"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(trltest.Exit)) }

type runFunc func(context.Context, api.ExecRunParams) (*api.ExecResult, error)

type fakeExecs struct {
	service.Execs
	run runFunc
}

func (f fakeExecs) Run(ctx context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
	arrival.MarkQueued(ctx)
	return f.run(ctx, p)
}

type fakeSystem struct{ service.System }

func (fakeSystem) Ping(context.Context) *api.PingResult {
	return &api.PingResult{Version: "test", Protocol: api.Protocol}
}

func tableWith(run runFunc) *service.Table {
	return service.New(service.Config{
		Execs: fakeExecs{run: run}, System: fakeSystem{},
		UserName: func(int) (string, error) { return "tester", nil },
	})
}

// daemon serves on a Unix socket until the test ends or stop is called.
func daemon(t *testing.T, cfg transport.Config) (path string, stop func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "trl.sock")
	return path, daemonAt(t, path, cfg)
}

// daemonAt is daemon for a given path.
func daemonAt(t *testing.T, path string, cfg transport.Config) (stop func()) {
	t.Helper()
	l, err := transport.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = transport.NewServer(cfg).Serve(ctx, l) })
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

func connect(t *testing.T, addr string) *Client { return connectWith(t, addr, Options{Patience: -1}) }

func connectPatiently(t *testing.T, addr string) *Client { return connectWith(t, addr, Options{}) }

func connectWith(t *testing.T, addr string, opts Options) *Client {
	t.Helper()
	c, err := DialWith(t.Context(), addr, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestDialAndPing(t *testing.T) {
	path, _ := daemon(t, transport.Config{Handler: tableWith(nil)})
	for _, addr := range []string{path, "unix:" + path, "unix://" + path} {
		got, err := connect(t, addr).Ping(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&api.PingResult{Version: "test", Protocol: api.Protocol, Caller: "tester"}, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestNoDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	if _, err := Dial(t.Context(), path); !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), path) {
		t.Errorf("without a socket: %v", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := Dial(t.Context(), "unix:"+path); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("with a dead socket: %v", err)
	}
	for _, addr := range []string{"ftp://localhost", "http://", "http://a@b/", "http://host/?q=1", "stdio:", "stdio:/no/such/program"} {
		if _, err := Dial(t.Context(), addr); err == nil || errors.Is(err, ErrNoDaemon) {
			t.Errorf("with the address %s: %v", addr, err)
		}
	}
}

func TestCallsAreMultiplexed(t *testing.T) {
	// Each call waits until all have arrived, and returns its own command.
	const n = 200
	var arrived sync.WaitGroup
	arrived.Add(n)
	path, _ := daemon(t, transport.Config{Handler: tableWith(func(_ context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
		arrived.Done()
		arrived.Wait()
		return &api.ExecResult{Stdout: p.Command}, nil
	})})
	c := connect(t, path)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			want := fmt.Sprintf("echo <%d> && true", i)
			got, err := c.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s", Command: want}})
			if err != nil || got.Stdout != want {
				t.Errorf("%q: got %+v, %v", want, got, err)
			}
		})
	}
	wg.Wait()
}

func TestErrorsOfTheDaemon(t *testing.T) {
	want := api.Errorf(api.CodeSessionBusy, "busy").WithHint("wait").With("exec_id", "e-1")
	path, _ := daemon(t, transport.Config{MaxRequestBytes: 1000, Handler: tableWith(func(context.Context, api.ExecRunParams) (*api.ExecResult, error) {
		return nil, want
	})})
	c := connect(t, path)
	_, err := c.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s"}})
	if diff := cmp.Diff(error(want), err); diff != "" {
		t.Error(diff)
	}
	if err := c.Call(t.Context(), "no.such", nil, nil); !api.IsCode(err, api.CodeMethodNotFound) {
		t.Error(err)
	}
	if err := c.Call(t.Context(), api.MethodSystemPing, map[string]int{"x": 1}, nil); !api.IsCode(err, api.CodeInvalidParams) {
		t.Error(err)
	}
	if err := c.Call(t.Context(), api.MethodSystemPing, make(chan int), nil); err == nil {
		t.Error("params that cannot be encoded were sent")
	}
	_, err = c.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s", Command: strings.Repeat("x", 1000)}})
	if !api.IsCode(err, api.CodeInvalidRequest) {
		t.Errorf("a request that is too long: %v", err)
	}
	if err := c.Call(t.Context(), api.MethodSystemPing, api.None{}, nil); err != nil {
		t.Error(err)
	}
}

func TestLargeResults(t *testing.T) {
	big := strings.Repeat("0123456789\n", 1<<20)
	path, _ := daemon(t, transport.Config{Handler: tableWith(func(context.Context, api.ExecRunParams) (*api.ExecResult, error) {
		return &api.ExecResult{Stdout: big}, nil
	})})
	c := connect(t, path)
	got, err := c.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s"}})
	if err != nil || got.Stdout != big {
		t.Errorf("got %d bytes of %d, %v", len(got.Stdout), len(big), err)
	}
}

func TestAbandonedCall(t *testing.T) {
	begun, open := make(chan struct{}), make(chan struct{})
	path, _ := daemon(t, transport.Config{Handler: tableWith(func(ctx context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
		begun <- struct{}{}
		select {
		case <-open:
		case <-ctx.Done():
			select {
			case <-open: // the test has ended
			default:
				t.Error("the daemon's request was cancelled")
			}
		}
		return &api.ExecResult{Stdout: "late"}, nil
	})})
	c := connect(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s"}})
		done <- err
	}()
	<-begun
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), api.MethodExecRun) {
		t.Error(err)
	}
	close(open) // the abandoned call's answer is dropped
	for range 3 {
		if _, err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A daemon that does not read must not block a call past its context.
func TestAbandonedWhileWriting(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := NewConn(near)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for range 2 { // the first is being written, the second waits for it
		if err := c.Call(ctx, "x", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}

func TestConnectionLost(t *testing.T) {
	for name, end := range map[string]func(c *Client, stop func()){
		"closed here":  func(c *Client, _ func()) { c.Close() },
		"closed there": func(_ *Client, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			const n = 10
			begun := make(chan struct{}, n)
			path, stop := daemon(t, transport.Config{Handler: tableWith(func(ctx context.Context, _ api.ExecRunParams) (*api.ExecResult, error) {
				begun <- struct{}{}
				<-ctx.Done()
				return nil, ctx.Err()
			})})
			c := connect(t, path)
			errs := make(chan error, n)
			for range n {
				go func() {
					_, err := c.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s"}})
					errs <- err
				}()
			}
			for range n {
				<-begun
			}
			end(c, stop)
			for range n {
				if err := <-errs; !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
			if _, err := c.Ping(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("a later call: %v", err)
			}
		})
	}
}

// serveRaw answers the first request with a fixed text, and closes the
// connection.
func serveRaw(t *testing.T, answer string) *Client {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		if _, err := bufio.NewReader(far).ReadString('\n'); err == nil {
			io.WriteString(far, answer)
		}
	}()
	c := NewConn(near)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAnswersInAnyForm(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  string
		version string
		closed  bool
		code    api.Code
	}{
		"plain":           {`{"jsonrpc":"2.0","id":1,"result":{"version":"v"}}` + "\n", "v", false, ""},
		"another order":   {` { "result" : {"version":"v","new":[1]}, "id" : 1, "jsonrpc":"2.0" }` + "\r\n", "v", false, ""},
		"null result":     {`{"jsonrpc":"2.0","id":1,"result":null}` + "\n", "", false, ""},
		"others before":   {`{"jsonrpc":"2.0","method":"exec.chunk","params":{}}` + "\n" + `{"jsonrpc":"2.0","id":9,"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":"x","result":{}}` + "\n" + `{"jsonrpc":"2.0","id":1,"result":{"version":"v"}}` + "\n", "v", false, ""},
		"foreign error":   {`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}` + "\n", "", false, api.CodeMethodNotFound},
		"refused":         {`{"jsonrpc":"2.0","id":null,"error":{"code":-32010,"message":"m","data":{"code":"UNAUTHORIZED"}}}` + "\n", "", true, api.CodeUnauthorized},
		"nothing":         {"", "", true, ""},
		"half an answer":  {`{"jsonrpc":"2.0","id":1,"result":{"ver`, "", true, ""},
		"another service": {"HTTP/1.1 400 Bad Request\r\n\r\n", "", true, ""},
		"JSON of another": {"{}\n", "", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := serveRaw(t, tc.answer).Ping(t.Context())
			if errors.Is(err, ErrClosed) != tc.closed {
				t.Errorf("error %v, closed should be %v", err, tc.closed)
			}
			if tc.code != "" && !api.IsCode(err, tc.code) {
				t.Errorf("error %v, want %s", err, tc.code)
			}
			if tc.closed || tc.code != "" {
				return
			}
			if err != nil || got.Version != tc.version {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// A daemon that refuses the caller is called once: it would refuse again.
func TestRefusedCallerDoesNotComeBack(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var asked atomic.Int32
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			_, _ = io.WriteString(nc, `{"jsonrpc":"2.0","id":null,"error":{"code":-32010,"message":"m","data":{"code":"UNAUTHORIZED"}}}`+"\n")
			nc.Close()
		}
	}()
	c, err := Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := c.Ping(ctx); !api.IsCode(err, api.CodeUnauthorized) || !errors.Is(err, ErrClosed) {
		t.Errorf("error %v", err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the daemon was called %d times", n)
	}
}

func TestAnswerOfAnotherTypeIsAnError(t *testing.T) {
	_, err := serveRaw(t, `{"jsonrpc":"2.0","id":1,"result":{"version":5}}`+"\n").Ping(t.Context())
	if err == nil || errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), api.MethodSystemPing) {
		t.Errorf("got %v", err)
	}
}

// recorder answers every method with an empty result, and records the calls.
type recorder struct{ calls chan string }

func (r recorder) Call(_ context.Context, method string, _ json.RawMessage) (any, error) {
	r.calls <- method
	return struct{}{}, nil
}

// streamMethods maps the methods of a Client that open streams to the methods
// of the table that they call.
var streamMethods = map[string]string{
	"Stream": api.MethodExecStream, "Attach": api.MethodExecAttach, "Watch": api.MethodSessionWatch,
	"": api.MethodStreamClose, // Close of the returned stream
}

func TestEveryMethodHasACall(t *testing.T) {
	r := recorder{make(chan string, 1)}
	path, _ := daemon(t, transport.Config{Handler: r})
	c := reflect.ValueOf(connect(t, path))
	methods := map[string]service.Method{}
	for _, m := range tableWith(nil).Methods() {
		methods[m.Name] = m
	}
	for i := range c.NumMethod() {
		name := c.Type().Method(i).Name
		if slices.Contains([]string{"Call", "Close", "Exec", "NewSession", "Session"}, name) {
			continue // not one method of the contract; handles are tested in session_test.go
		}
		if _, opens := streamMethods[name]; opens {
			continue // tested in stream_test.go
		}
		fn := c.Method(i)
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		if fn.Type().NumIn() == 2 {
			args = append(args, reflect.Zero(fn.Type().In(1)))
		}
		if err := fn.Call(args)[1]; !err.IsNil() {
			t.Errorf("%s: %v", name, err)
			continue
		}
		method := <-r.calls
		m, ok := methods[method]
		if !ok {
			t.Errorf("%s calls %s, which is not in the table or was called before", name, method)
			continue
		}
		delete(methods, method)
		if fn.Type().NumIn() == 2 && fn.Type().In(1) != m.Params || fn.Type().NumIn() == 1 && m.Params != reflect.TypeFor[api.None]() {
			t.Errorf("%s: params are %v", name, m.Params)
		}
		if fn.Type().Out(0).Elem() != m.Result {
			t.Errorf("%s: the result is %v", name, m.Result)
		}
	}
	for _, name := range streamMethods {
		delete(methods, name)
	}
	// A Client makes requests for its own user only.
	delete(methods, api.MethodSystemDelegate)
	delete(methods, api.MethodSystemDisconnect)
	for name := range methods {
		t.Errorf("no call for %s", name)
	}
}

func BenchmarkPing(b *testing.B) {
	path := filepath.Join(b.TempDir(), "trl.sock")
	l, err := transport.ListenUnix(path)
	if err != nil {
		b.Fatal(err)
	}
	s := transport.NewServer(transport.Config{Handler: tableWith(nil)})
	go s.Serve(context.Background(), l)
	defer s.Shutdown(context.Background())
	c, err := Dial(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// TestSeveralAddresses: a client switches to the next address when one is lost.
func TestSeveralAddresses(t *testing.T) {
	says := func(text string) transport.Config {
		return transport.Config{Handler: tableWith(func(context.Context, api.ExecRunParams) (*api.ExecResult, error) {
			return &api.ExecResult{Stdout: text}, nil
		})}
	}
	first, endFirst := daemon(t, says("first"))
	second, _ := daemon(t, says("second"))
	none := filepath.Join(t.TempDir(), "none.sock")
	c, err := DialWith(t.Context(), none, Options{Also: []string{first, second}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func() string {
		t.Helper()
		got, err := c.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s"}})
		if err != nil {
			t.Fatal(err)
		}
		return got.Stdout
	}
	if got := ask(); got != "first" {
		t.Errorf("the %s answers", got)
	}
	endFirst()
	for range 2 {
		if got := ask(); got != "second" {
			t.Errorf("after the first is gone, the %s answers", got)
		}
	}
	if _, err := DialWith(t.Context(), none, Options{Also: []string{none}}); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("with no daemon at all: %v", err)
	}
	if _, err := DialWith(t.Context(), "stdio:trl serve --stdio", Options{Also: []string{first}}); err == nil {
		t.Error("a stdio address was accepted as one of several")
	}
}

// A caller that connects does not block others: each waits as long as its own
// context allows, and the client can be closed meanwhile.
func TestConnectingDelaysNobody(t *testing.T) {
	trying, release := make(chan struct{}), make(chan struct{})
	path, _ := daemon(t, transport.Config{Handler: tableWith(nil)})
	s := &failoverTransport{connect: []func(context.Context) (daemonTransport, error){
		func(context.Context) (daemonTransport, error) {
			close(trying)
			<-release
			return dial(t.Context(), path, Options{})
		},
	}}
	first := make(chan error, 1)
	go func() {
		_, err := s.current(t.Context())
		first <- err
	}()
	<-trying
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.current(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller whose context is cancelled gets %v", err)
	}
	second := make(chan error, 1)
	go func() {
		_, err := s.current(t.Context())
		second <- err
	}()
	s.close()
	close(release)
	for _, c := range []chan error{first, second} {
		if err := <-c; !errors.Is(err, ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	}
}
