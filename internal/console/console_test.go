package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
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

// Input typed behind a line is the command's, and what the command does not read
// is the next line.
func TestTypedAhead(t *testing.T) {
	p, _ := newTestPrompt(t, &completer{})
	p.pending = []byte("ls\rabc")
	if line, err := p.line(t.Context(), "$ "); line != "ls" || err != nil {
		t.Errorf("the line is %q, %v", line, err)
	}
	if got := p.takePending(); string(got) != "abc" || p.pending != nil {
		t.Errorf("the command got %q, and %q is left", got, p.pending)
	}
	p.putBack([]byte("abc\r"))
	if line, err := p.line(t.Context(), "$ "); line != "abc" || err != nil {
		t.Errorf("the line is %q, %v", line, err)
	}
	p.pending = []byte("x\x03y\r")
	for _, want := range []string{"", "y"} {
		if line, err := p.line(t.Context(), "$ "); line != want || err != nil {
			t.Errorf("the line is %q, %v, want %q", line, err, want)
		}
	}
}

// newTestPrompt returns a prompt on a terminal of 24 rows and 80 columns, and what
// reads its output.
func newTestPrompt(t *testing.T, c *completer) (*prompt, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return newPrompt(&localTerminal{out: w, keys: make(chan []byte, maxBufferedReads)}, c), r
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

// What a command has not read is taken back: the end of what it was sent, and what
// it was not sent any more.
func TestKeyboardTakesBack(t *testing.T) {
	f := &fakeKeyboardClient{}
	k := newKeyboard(f, "s-1")
	k.setExec("e-1")
	k.enqueue([]byte("read\nnext\n"))
	k.send(t.Context())
	f.refused = api.Errorf(api.CodeInvalidParams, "the command has ended").With("bytes", float64(2))
	k.enqueue([]byte("last\n"))
	k.send(t.Context())
	k.enqueue([]byte("queued"))
	if got := string(k.takeBack(len("next\nla"), false)); got != "next\nlast\nqueued" {
		t.Errorf("%q", got)
	}
	if got := k.takeBack(5, false); len(got) != 0 {
		t.Errorf("%q was taken back twice", got)
	}
}

func TestEditedInput(t *testing.T) {
	for typed, want := range map[string]string{
		"a\nbx\x7f\n":        "a\nb\n",
		"größe\x7f\x7fß":     "größ",
		"\x7fa\r\x7fb":       "a\rb",
		"a b\x15c":           "c",
		"one two \x17x":      "one x",
		"lost\nlost\x03kept": "kept",
		"a\x04b\x12":         "ab",
	} {
		if got := string(editedInput([]byte(typed))); got != want {
			t.Errorf("%q is edited to %q, want %q", typed, got, want)
		}
	}
}

func TestAsksToExit(t *testing.T) {
	for line, want := range map[string]bool{
		"exit": true, "exit 3": true, "cd /; exit": true, "(true) && exec vim": true, "logout": true,
		"": false, "echo exited": false, "./exit": false, "exit-code": false, "ls no-exec": false,
	} {
		if asksToExit.MatchString(line) != want {
			t.Errorf("%q is taken wrongly", line)
		}
	}
}

// The prompt counts what runs in the background, not the processes of the session
// itself or of a running command, nor children.
func TestPromptText(t *testing.T) {
	processes := []api.Process{
		{PID: 1, Role: api.RoleShell},
		{PID: 2, PPID: 1, Role: api.RoleStandby},
		{PID: 3, PPID: 1, ExecID: "e-1"},
		{PID: 4, PPID: 3, ExecID: "e-1"},
		{PID: 5, PPID: 1},
		{PID: 6, PPID: 1, ExecID: "e-2"},
	}
	info := &api.SessionInfo{Session: api.Session{ExecID: "e-2"}, Processes: processes}
	s := &interactiveShell{cwd: "/a\x1bb", name: "bu\u202eild", lastStatus: 3, lastDuration: 2 * time.Second, background: backgroundJobs(info)}
	if got, want := s.promptText(), `[3, 2s, 2 in background] bu\u202eild: /a\x1bb $ `; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (&interactiveShell{cwd: "/"}).promptText(); got != "/ $ " {
		t.Errorf("%q", got)
	}
}
