package client

import (
	"context"
	"encoding/json"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/transport"
)

// TestDeferredCalls: a call that the daemon defers is repeated after the time that the
// daemon gave, whatever its effect; a call deferred for longer than Patience is
// not.
func TestDeferredCalls(t *testing.T) {
	var calls atomic.Int32
	handler := tableWith(func(context.Context, api.ExecRunParams) (*api.ExecResult, error) {
		if calls.Add(1) < 3 {
			return nil, api.Errorf(api.CodeRuntimeUnavailable, "later").With("retry_after_ms", 30)
		}
		return &api.ExecResult{Stdout: "done"}, nil
	})
	path, _ := daemon(t, transport.Config{Handler: handler})
	c := connectPatiently(t, path)
	began := time.Now()
	var got api.ExecResult
	err := c.Call(t.Context(), api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s", Command: "x"}}, &got)
	if took := time.Since(began); err != nil || got.Stdout != "done" || calls.Load() != 3 || took < 60*time.Millisecond {
		t.Errorf("%+v, %v, after %d calls and %s", got, err, calls.Load(), took)
	}
	path, _ = daemon(t, transport.Config{Handler: tableWith(func(context.Context, api.ExecRunParams) (*api.ExecResult, error) {
		return nil, api.Errorf(api.CodeRuntimeUnavailable, "much later").With("retry_after_ms", 3_600_000)
	})})
	if _, err := connectPatiently(t, path).Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s"}}); !api.IsCode(err, api.CodeRuntimeUnavailable) {
		t.Errorf("deferred for an hour: %v", err)
	}
}

// TestRefusedPlace: a call for a place that a person has to repair is not repeated.
func TestRefusedPlace(t *testing.T) {
	var calls atomic.Int32
	path, _ := daemon(t, transport.Config{Handler: tableWith(func(context.Context, api.ExecRunParams) (*api.ExecResult, error) {
		calls.Add(1)
		return nil, api.Errorf(api.CodeRuntimeUnavailable, "unknown host key").With("runtime", "ssh:box").With("sent", "no")
	})})
	_, err := connectPatiently(t, path).Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s", Key: "k"}})
	if !api.IsCode(err, api.CodeRuntimeUnavailable) || calls.Load() != 1 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

// TestMaybeSentCalls: a call that may have been executed is repeated only if that
// has the same effect as making it once.
func TestMaybeSentCalls(t *testing.T) {
	run := func(sent any, key string) (calls int32, err error) {
		var count atomic.Int32
		path, _ := daemon(t, transport.Config{Handler: tableWith(func(context.Context, api.ExecRunParams) (*api.ExecResult, error) {
			if count.Add(1) > 1 {
				return &api.ExecResult{}, nil
			}
			away := api.Errorf(api.CodeRuntimeUnavailable, "away").With("retry_after_ms", 1)
			if sent != nil {
				away = away.With("sent", sent)
			}
			return nil, away
		})})
		err = connectPatiently(t, path).Call(t.Context(), api.MethodExecRun,
			api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s", Command: "x", Key: key}}, nil)
		return count.Load(), err
	}
	for _, tc := range []struct {
		sent   any
		key    string
		repeat bool
	}{
		{"maybe", "", false}, {"maybe", "k", true}, {"no", "", true}, {"no", "k", true}, {nil, "", true},
	} {
		calls, err := run(tc.sent, tc.key)
		if tc.repeat && (calls != 2 || err != nil) || !tc.repeat && (calls != 1 || !api.IsCode(err, api.CodeRuntimeUnavailable)) {
			t.Errorf("sent %v, key %q: %d calls, %v", tc.sent, tc.key, calls, err)
		}
	}
	// A read is repeated over a connection that can't be made again, too.
	var calls atomic.Int32
	path, _ := daemon(t, transport.Config{Handler: handlerFunc(func(string) (any, error) {
		if calls.Add(1) > 1 {
			return &api.PingResult{}, nil
		}
		return nil, api.Errorf(api.CodeRuntimeUnavailable, "away").With("retry_after_ms", 1).With("sent", "maybe")
	})})
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := NewConn(nc)
	defer c.Close()
	if _, err := c.Ping(t.Context()); err != nil || calls.Load() != 2 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

// TestLostThenUnreachable: a call whose connection was lost may have been executed,
// even if the daemon that answers the repeated call has not sent that to the place.
func TestLostThenUnreachable(t *testing.T) {
	for method, want := range map[string]string{api.MethodExecRun: "maybe", api.MethodExecStream: "maybe", api.MethodExecInfo: "no"} {
		received := make(chan struct{})
		path, stop := daemon(t, transport.Config{Handler: blockingHandler(received)})
		c := connectWith(t, path, Options{Patience: time.Second})
		failed := make(chan error, 1)
		command := api.ExecCommand{SessionID: "s", Command: "x", Key: "k"}
		go func() {
			var err error
			switch method {
			case api.MethodExecRun:
				_, err = c.Run(t.Context(), api.ExecRunParams{ExecCommand: command})
			case api.MethodExecStream:
				_, err = c.Stream(t.Context(), api.ExecStreamParams{ExecCommand: command})
			default:
				err = c.Call(t.Context(), method, api.ExecParams{ExecID: "e"}, nil)
			}
			failed <- err
		}()
		<-received
		stop()
		daemonAt(t, path, transport.Config{Handler: handlerFunc(func(string) (any, error) {
			return nil, api.Errorf(api.CodeRuntimeUnavailable, "paused").With("retry_after_ms", 3_600_000).With("sent", "no")
		})})
		if err := <-failed; !api.IsCode(err, api.CodeRuntimeUnavailable) || api.AsError(err).Details["sent"] != want {
			t.Errorf("%s: %v, %v; want sent %s", method, err, api.AsError(err).Details, want)
		}
	}
}

// blockingHandler answers no call. It closes received at the first one.
func blockingHandler(received chan struct{}) callFunc {
	return func(ctx context.Context, _ string) (any, error) {
		close(received)
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

// callFunc is handlerFunc with a context.
type callFunc func(ctx context.Context, method string) (any, error)

func (f callFunc) Call(ctx context.Context, method string, _ json.RawMessage) (any, error) {
	return f(ctx, method)
}

// handlerFunc serves calls by their methods alone.
type handlerFunc func(method string) (any, error)

func (f handlerFunc) Call(_ context.Context, method string, _ json.RawMessage) (any, error) {
	return f(method)
}

// TestReadOnlyMethods: the client and the table, which a router repeats calls by,
// agree on what only reads.
func TestReadOnlyMethods(t *testing.T) {
	for _, m := range tableWith(nil).Methods() {
		if m.Reads != readOnly[m.Name] {
			t.Errorf("%s: the table says %t, the client %t", m.Name, m.Reads, readOnly[m.Name])
		}
	}
}
