package route

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestCallsInAPlace(t *testing.T) {
	k7 := start(t, "k7")
	r := New(Config{System: system{}, Places: testPlaces{k7}})
	u := newUser(t, r)
	id := u.session("cmd:k7")
	if !strings.HasPrefix(id, "s-k7-") {
		t.Fatalf("session %s", id)
	}
	var result api.ExecResult
	u.call(api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: id, Command: "echo hello; cd /"}}, &result)
	if result.Stdout != "hello\n" || result.SessionID != id {
		t.Errorf("result %+v", result)
	}
	var info api.SessionInfo
	u.call(api.MethodSessionInfo, api.SessionParams{SessionID: id}, &info)
	if info.Cwd != "/" || info.Runtime != "cmd:k7" || info.LastExec == nil {
		t.Errorf("info %+v", info)
	}
	var list api.SessionListResult
	u.call(api.MethodSessionList, api.SessionListParams{}, &list)
	if len(list.Sessions) != 1 || list.Sessions[0].Runtime != "cmd:k7" || list.Unreachable != nil {
		t.Errorf("list %+v", list)
	}
	u.call(api.MethodSessionList, api.SessionListParams{Runtime: "cmd:k7"}, &list)
	if len(list.Sessions) != 1 {
		t.Errorf("list by runtime %+v", list)
	}
	if err := u.try(api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "s-k7-nothere", Command: "true"}}, nil); !api.IsCode(err, api.CodeSessionNotFound) {
		t.Errorf("unknown session: %v", err)
	}
	u.call(api.MethodSessionDestroy, api.SessionDestroyParams{SessionID: id}, nil)
}

// Calls of one connection reach a place in order, also those that are repeated
// after the connection broke.
func TestCallsKeepTheirOrder(t *testing.T) {
	k7 := start(t, "k7")
	r := New(Config{System: system{}, Places: testPlaces{k7}})
	u := newUser(t, r)
	id := u.session("cmd:k7")
	var running sync.WaitGroup
	for i := range 50 {
		queued := make(chan struct{})
		one := *u
		one.ctx = withQueued(u.ctx, sync.OnceFunc(func() { close(queued) }))
		running.Go(func() {
			p := api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: id, Wait: true, Command: fmt.Sprintf(`order="$order %d"`, i)}}
			if err := one.try(api.MethodExecRun, p, nil); err != nil {
				t.Error(err)
			}
		})
		<-queued
		if i%20 == 10 {
			k7.cut()
		}
	}
	running.Wait()
	var result api.ExecResult
	u.call(api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: id, Command: `echo $order`}}, &result)
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprint(i))
	}
	if got := strings.TrimSpace(result.Stdout); got != strings.Join(want, " ") {
		t.Errorf("the commands ran as %s", got)
	}
}

// A command whose connection breaks is run once, and its result arrives.
func TestRepeatsWhatIsSafe(t *testing.T) {
	k7 := start(t, "k7")
	r := New(Config{System: system{}, Places: testPlaces{k7}})
	u := newUser(t, r)
	id := u.session("cmd:k7")
	wait, open := trltest.Gate(t)
	done := make(chan error, 1)
	var result api.ExecResult
	go func() {
		done <- u.try(api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: id, Command: "n=$((n+1)); " + wait + "; echo $n"}}, &result)
	}()
	running := func() bool {
		var info api.SessionInfo
		u.call(api.MethodSessionInfo, api.SessionParams{SessionID: id}, &info)
		return info.State == api.StateRunning
	}
	trltest.Eventually(t, "the command runs", running)
	k7.cut()
	trltest.Eventually(t, "the place is back", running)
	open()
	if err := <-done; err != nil || result.Stdout != "1\n" {
		t.Errorf("%v, %+v", err, result)
	}
}

// A call that may not be repeated says that it may have been executed.
func TestDoesNotRepeatTheRest(t *testing.T) {
	k7 := start(t, "k7")
	r := New(Config{System: system{}, Places: testPlaces{k7}})
	u := newUser(t, r)
	id := u.session("cmd:k7")
	k7.leave(errors.New("gone"))
	err := u.try(api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: id, Command: "true"}}, nil)
	if e := api.AsError(err); e.Code != api.CodeRuntimeUnavailable || e.Details["sent"] != "no" {
		t.Errorf("%v %v", err, e.Details)
	}
	var list api.SessionListResult
	u.call(api.MethodSessionList, api.SessionListParams{}, &list)
	if len(list.Unreachable) != 1 || list.Unreachable[0].Reason != "unreachable" || list.Unreachable[0].Runtime != "cmd:k7" {
		t.Errorf("list %+v", list)
	}
	k7.leave(nil)
	u.call(api.MethodSessionDestroy, api.SessionDestroyParams{SessionID: id}, nil)
}

func TestStreamInAPlace(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprintf("shared %v", shared), func(t *testing.T) {
			k7 := start(t, "k7")
			k7.shared = shared
			r := New(Config{System: system{}, Places: testPlaces{k7}})
			u := newUser(t, r)
			id := u.session("cmd:k7")
			command := api.ExecCommand{SessionID: id, Command: `i=0; while [ $i -lt 20000 ]; do echo "line $i of many, long enough to fill more than a few chunks"; i=$((i+1)); done`}
			o := u.open(api.MethodExecStream, api.ExecStreamParams{ExecCommand: command})
			var chunks int
			out, last := read(t, o, func(*api.Chunk) {
				if chunks++; chunks%3 == 2 {
					k7.cut()
				}
			})
			if last.Type != api.ChunkExit || last.Result == nil {
				t.Fatalf("the last chunk is %+v", last)
			}
			lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
			if len(lines) != 20000 || !bytes.HasPrefix(lines[19999], []byte("line 19999 ")) {
				t.Errorf("%d lines", len(lines))
			}
			again, last := read(t, u.open(api.MethodExecAttach, api.ExecAttachParams{ExecID: last.ExecID}), nil)
			if !bytes.Equal(again, out) || last.Type != api.ChunkExit {
				t.Errorf("attached: %d bytes instead of %d", len(again), len(out))
			}
		})
	}
}

// withQueued returns the context of another request of the same connection.
func withQueued(ctx context.Context, queued func()) context.Context {
	connection, _ := arrival.Connection(ctx)
	return arrival.With(connection, queued)
}

// A slow reader does not delay other calls to the place, and misses nothing.
func TestSlowReader(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprintf("shared %v", shared), func(t *testing.T) {
			k7 := start(t, "k7")
			k7.shared = shared
			r := New(Config{System: system{}, Places: testPlaces{k7}})
			u := newUser(t, r)
			id, other := u.session("cmd:k7"), u.session("cmd:k7")
			o := u.open(api.MethodExecStream, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: id, Command: `head -c 8000000 /dev/zero | tr '\0' x`}})
			var chunks int
			out, last := read(t, o, func(*api.Chunk) {
				if chunks++; chunks > 5 {
					return
				}
				var result api.ExecResult
				u.call(api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: other, Command: "echo still here"}}, &result)
				if result.Stdout != "still here\n" {
					t.Errorf("result %+v", result)
				}
			})
			if len(out) != 8_000_000 || last.Type != api.ChunkExit {
				t.Errorf("%d bytes, then %s", len(out), last.Type)
			}
		})
	}
}

// A stream ends with an error if the place comes back without its command.
func TestForgottenCommand(t *testing.T) {
	k7, later := start(t, "k7"), start(t, "k7")
	r := New(Config{System: system{}, Places: testPlaces{k7}})
	u := newUser(t, r)
	id := u.session("cmd:k7")
	o := u.open(api.MethodExecStream, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: id, Command: `echo begin; sleep 600`}})
	out, last := read(t, o, func(c *api.Chunk) {
		if c.Type == api.ChunkStdout {
			k7.mu.Lock()
			k7.dial = later.dial
			k7.mu.Unlock()
			k7.cut()
		}
	})
	if string(out) != "begin\n" || last.Type != api.ChunkError || last.Error.Code != api.CodeExecNotFound || last.Error.Details["runtime"] != "cmd:k7" {
		t.Errorf("%q, then %+v", out, last)
	}
}

// A caller that leaves does not wait.
func TestCallerLeaves(t *testing.T) {
	k7 := start(t, "k7")
	r := New(Config{System: system{}, Places: testPlaces{k7}})
	u, other := newUser(t, r), newUser(t, r)
	id := u.session("cmd:k7")
	done := make(chan error, 1)
	go func() {
		done <- u.try(api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: id, Command: "sleep 600"}}, nil)
	}()
	trltest.Eventually(t, "the command runs", func() bool {
		var info api.SessionInfo
		other.call(api.MethodSessionInfo, api.SessionParams{SessionID: id}, &info)
		return info.State == api.StateRunning
	})
	u.leave()
	if err := <-done; err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("the call returned %v", err)
	}
}
