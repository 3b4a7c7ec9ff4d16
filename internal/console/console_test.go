package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

func TestKey(t *testing.T) {
	for text, want := range map[string]struct {
		key  Key
		name string
	}{
		`ctrl-\`: {0x1c, `ctrl-\`}, "CTRL-T": {0x14, "ctrl-t"}, "^t": {0x14, "ctrl-t"}, "^]": {0x1d, "ctrl-]"}, "ctrl-_": {0x1f, "ctrl-_"},
	} {
		var k Key
		if err := k.Set(text); err != nil || k != want.key || k.String() != want.name {
			t.Errorf("%s: %#x, %s, %v", text, byte(k), k.String(), err)
		}
	}
	for _, text := range []string{"", "t", "ctrl-", "ctrl-tt", "ctrl-1", "^`", "alt-t"} {
		k := DefaultDetachKey
		if err := k.Set(text); err == nil || k != DefaultDetachKey {
			t.Errorf("%q was accepted as %s", text, k.String())
		}
	}
}

func TestSessionEnded(t *testing.T) {
	three := 3
	for want, terminated := range map[string]*api.Terminated{
		"has ended": nil,
		"has ended: its command was killed by SIG\\x1bKILL": {Signal: "SIG\x1bKILL"},
		"has ended: its command exited with status 3":       {ExitCode: &three},
		"has ended: it was idle for too long":               {Reason: api.ReasonIdle},
		"has ended: the daemon was stopped":                 {Reason: api.ReasonShutdown},
	} {
		if got := (&sessionEnded{terminated}).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A session that can't be attached to is reported with what to run instead.
func TestAttachable(t *testing.T) {
	size := &api.TTYSize{Rows: 24, Cols: 80}
	for hint, session := range map[string]api.Session{
		"`trl shell s-1` opens a prompt":   {SessionID: "s-1"},
		"`trl exec list s-1` lists":        {SessionID: "s-1", Argv: []string{"cat"}},
		"`trl screen s-1` prints its last": {SessionID: "s-1", TTY: size, State: api.StateTerminated},
	} {
		err, ok := errors.AsType[*SessionError](attachable(&api.SessionInfo{Session: session}))
		if !ok || !strings.Contains(err.Err.Hint, hint) {
			t.Errorf("%q is not the hint of %v", hint, err)
		}
	}
	if err := attachable(&api.SessionInfo{Session: api.Session{SessionID: "s-1", TTY: size, State: api.StateIdle}}); err != nil {
		t.Error(err)
	}
}

// answers is a daemon that answers a number of pings and then none.
type answers struct{ left int }

func (a *answers) Ping(ctx context.Context) (*api.PingResult, error) {
	if a.left == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	a.left--
	return nil, api.Errorf(api.CodeUnauthorized, "an error is an answer too")
}

func TestAwaitSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !AwaitSilence(t.Context(), &answers{left: 3}) {
			t.Error("silence was not noticed")
		}
		if took, want := time.Since(began), 3*exitPingInterval+exitPingTimeout; took != want {
			t.Errorf("noticed after %s, want %s", took, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if AwaitSilence(ctx, &answers{left: 1000}) {
			t.Error("a daemon that answers counts as silent")
		}
	})
}

func TestUnreachable(t *testing.T) {
	for _, err := range []error{client.ErrClosed, fmt.Errorf("call: %w", client.ErrNoDaemon), api.Errorf(api.CodeRuntimeUnavailable, "gone")} {
		if !unreachable(err) {
			t.Errorf("%v does not count as unreachable", err)
		}
	}
	if err := api.Errorf(api.CodeSessionNotFound, "no session"); unreachable(err) {
		t.Errorf("%v counts as unreachable", err)
	}
}

// Input typed behind a line is the command's, except for the rest of a paste.
func TestTypedAhead(t *testing.T) {
	p := &prompt{pending: []byte("ls\rabc")}
	read := func() string {
		t.Helper()
		b := make([]byte, 64)
		n, err := p.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	if got := read(); got != "ls\r" {
		t.Errorf("the editor got %q", got)
	}
	if got := p.takePending(); string(got) != "abc" || p.pending != nil {
		t.Errorf("the command got %q, and %q is left", got, p.pending)
	}
	p.pending = []byte("x\x03y")
	if got := []string{read(), read(), read()}; !slices.Equal(got, []string{"x", discardLine, "y"}) {
		t.Errorf("ctrl-c came out as %q", got)
	}
	p.pending = []byte(pasteBegin + "one\rtwo\r" + pasteEnd + "rest")
	if got := read(); got != pasteBegin+"one\r" || p.takePending() != nil {
		t.Errorf("the editor got %q of a paste", got)
	}
	if got := read(); got != "two\r" || p.takePending() != nil {
		t.Errorf("the editor got %q of a paste", got)
	}
	if read(); p.pasting {
		t.Error("the paste has not ended")
	}
}

func TestLineHistory(t *testing.T) {
	var h lineHistory
	for _, line := range []string{"a", "", " secret", "b", "b", "c"} {
		h.Add(line)
	}
	if h.Len() != 3 || h.At(0) != "c" || h.At(2) != "a" {
		t.Errorf("%q", h.lines)
	}
	for i := range maxHistory {
		h.Add(fmt.Sprint(i))
	}
	if h.Len() != maxHistory || h.At(maxHistory-1) != "0" {
		t.Errorf("%d lines, the oldest is %q", h.Len(), h.At(h.Len()-1))
	}
}

// fakeKeyboardClient is a daemon with one keyboard.
type fakeKeyboardClient struct {
	held    error // refuses a new lease
	refused error // refuses input
	leases  int
	typed   bytes.Buffer
	calls   []string
}

func (f *fakeKeyboardClient) Hold(_ context.Context, p api.SessionHoldParams) (*api.SessionHoldResult, error) {
	f.calls = append(f.calls, "hold "+p.Lease)
	if f.held != nil && !p.Force {
		return nil, f.held
	}
	f.leases++
	return &api.SessionHoldResult{Lease: fmt.Sprint("l-", f.leases)}, nil
}

func (f *fakeKeyboardClient) Release(_ context.Context, p api.SessionReleaseParams) (*api.SessionReleaseResult, error) {
	f.calls = append(f.calls, "release "+p.Lease)
	return &api.SessionReleaseResult{}, nil
}

func (f *fakeKeyboardClient) ResizeSession(_ context.Context, p api.SessionResizeParams) (*api.SessionResizeResult, error) {
	f.calls = append(f.calls, fmt.Sprintf("resize %s %dx%d", p.Lease, p.Rows, p.Cols))
	return &api.SessionResizeResult{}, nil
}

func (f *fakeKeyboardClient) Input(_ context.Context, p api.ExecInputParams) (*api.ExecInputResult, error) {
	f.calls = append(f.calls, fmt.Sprintf("input %s %s %d %t", p.ExecID, p.Lease, len(p.Data), p.EOF))
	f.typed.WriteString(p.Data)
	return &api.ExecInputResult{}, f.refused
}

func TestKeyboardSendsInput(t *testing.T) {
	f := &fakeKeyboardClient{}
	k := newKeyboard(f, "s-1")
	if err := k.take(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	k.send(t.Context()) // there is no command yet
	k.setExec("e-1")
	long := strings.Repeat("x", inputChunkBytes+1)
	if !k.enqueue([]byte(long)) || k.enqueue(make([]byte, maxQueuedInput)) {
		t.Error("the queue has the wrong size")
	}
	k.enqueueEOF()
	k.send(t.Context())
	k.send(t.Context())
	k.send(t.Context()) // nothing is left
	k.enqueue([]byte("lost"))
	k.setExec("e-2")
	k.send(t.Context()) // what was typed for e-1 does not go to e-2
	k.release()
	k.release()
	want := []string{"hold ", fmt.Sprintf("input e-1 l-1 %d false", inputChunkBytes), "input e-1 l-1 1 true", "release l-1"}
	if !slices.Equal(f.calls, want) || f.typed.String() != long {
		t.Errorf("%q, want %q", f.calls, want)
	}
}

func TestKeyboardLosesItsLease(t *testing.T) {
	f := &fakeKeyboardClient{}
	k := newKeyboard(f, "s-1")
	var lost error
	k.onError = func(err error) { lost = err }
	k.setExec("e-1")
	size := api.TTYSize{Rows: 24, Cols: 80}
	if err := errors.Join(k.take(t.Context(), true), k.resize(t.Context(), size), k.resize(t.Context(), size)); err != nil {
		t.Fatal(err)
	}
	// It expired, and no other client has it: it is taken again.
	f.refused = api.Errorf(api.CodeSessionHeld, "no such lease")
	k.enqueue([]byte("a"))
	k.send(t.Context())
	want := []string{"hold ", "resize l-1 24x80", "input e-1 l-1 1 false", "hold ", "resize l-2 24x80"}
	if !slices.Equal(f.calls, want) || lost != nil || k.currentLease() != "l-2" {
		t.Errorf("%q, want %q; %v", f.calls, want, lost)
	}
	// Another client has taken it.
	f.held = api.Errorf(api.CodeSessionHeld, "held").With("holder", "bob\x1b")
	f.refused = f.held
	k.enqueue([]byte("b"))
	k.send(t.Context())
	if by, ok := errors.AsType[errLeaseLost](lost); !ok || by.by != `bob\x1b` || k.currentLease() != "" {
		t.Errorf("%v, lease %q", lost, k.currentLease())
	}
}
