package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/process"
)

// TestMerge: with merge both streams are one, in the order of the writes.
func TestMerge(t *testing.T) {
	p := newPool(t, Config{})
	for _, name := range []string{"dash", "ash", "bash", "zsh", "mksh"} {
		t.Run(name, func(t *testing.T) {
			s := create(t, p, api.SessionCreateParams{Shell: name})
			merged := func(command string) *api.ExecResult {
				return run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command, Merge: true}})
			}
			for range 20 {
				r := merged("echo 1; echo 2 >&2; sh -c 'echo 3; echo 4 >&2'; echo 5")
				if r.Stdout != "1\n2\n3\n4\n5\n" || r.Stderr != "" || !r.Merged || r.StdoutBytes != 10 || r.StderrBytes != 0 {
					t.Fatalf("got %+v", r)
				}
			}
			// A process left behind writes to the same stream; the next command has
			// two.
			r := merged("(sleep 0.1; echo late >&2) & echo soon")
			waitFor(t, func() bool {
				out, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: r.ExecID})
				return err == nil && len(out.Chunks) == 1 && out.Chunks[0].Type == api.ChunkStdout && out.Chunks[0].Data == "soon\nlate\n"
			})
			if _, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: r.ExecID, Stream: api.ChunkStderr}); !api.IsCode(err, api.CodeInvalidParams) {
				t.Errorf("stderr of a merged command: %v", err)
			}
			if r := sh(t, p, s, "echo out; echo err >&2"); r.Stdout != "out\n" || r.Stderr != "err\n" || r.Merged {
				t.Errorf("the next command: %+v", r)
			}
			if r := merged("exit 3"); r.Outcome != api.OutcomeShellExited || *r.ExitCode != 3 {
				t.Errorf("exit: %+v", r)
			}
		})
	}
}

// TestCrashesAreReported: a shell that dies while it starts is always reported with its
// status.
func TestCrashesAreReported(t *testing.T) {
	p := newPool(t, Config{})
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(dir+"/bash", []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	failure := func(params api.SessionCreateParams) *api.Error {
		t.Helper()
		params.Shell = dir + "/bash"
		_, err := p.Create(t.Context(), params, "tester")
		e, ok := errors.AsType[*api.Error](err)
		if !ok {
			t.Fatalf("got %v", err)
		}
		return e
	}
	write("#!/bin/dash\necho boom >&2\nexit 42\n")
	for range 40 {
		if e := failure(api.SessionCreateParams{}); e.Code != api.CodeShellCrashed || e.Details["exit_code"] != 42 || e.Details["stderr"] != "boom" {
			t.Fatalf("%v, %v", e, e.Details)
		}
	}
	write("#!/bin/dash\nkill -SEGV $$\n")
	for range 40 {
		if e := failure(api.SessionCreateParams{}); e.Code != api.CodeShellCrashed || e.Details["signal"] != "SIGSEGV" {
			t.Fatalf("%v, %v", e, e.Details)
		}
	}
	write("#!/bin/dash\necho waiting >&2\nexec sleep 100\n")
	if e := failure(api.SessionCreateParams{CreateTimeoutMS: 300}); e.Code != api.CodeShellCrashed || e.Details["signal"] != "SIGKILL" || e.Details["stderr"] != "waiting" {
		t.Errorf("%v, %v", e, e.Details)
	}
	write("\x7fELF is not enough")
	if e := failure(api.SessionCreateParams{}); e.Code != api.CodeShellNotFound {
		t.Errorf("%v, %v", e, e.Details)
	}
	if l, _ := p.List(t.Context(), api.SessionListParams{}); len(l.Sessions) != 0 {
		t.Errorf("%d sessions are left", len(l.Sessions))
	}
}

// TestLoginIsReported: how the login files ended is reported.
func TestLoginIsReported(t *testing.T) {
	p := newPool(t, Config{Grace: 200 * time.Millisecond})
	home := t.TempDir()
	login := func(text string) *api.Session {
		t.Helper()
		if err := os.WriteFile(home+"/.profile", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return create(t, p, api.SessionCreateParams{Shell: "dash", Env: api.Env{"HOME": home}, Login: true, CreateTimeoutMS: 1000})
	}
	for _, c := range []struct {
		text    string
		outcome api.Outcome
		code    int
		late    bool
	}{
		{"A=1", api.OutcomeExited, 0, false},
		{"A=1; return 3", api.OutcomeExited, 3, false},
		{"sleep 100; A=1", api.OutcomeTimedOut, 143, true},
		{"kill -9 $$", api.OutcomeShellDied, 137, false},
		{"exit 4", api.OutcomeShellExited, 4, false},
	} {
		s := login(c.text)
		if l := s.Login; l == nil || l.Outcome != c.outcome || *l.ExitCode != c.code || l.TimedOut != c.late {
			t.Errorf("%s: %+v", c.text, s.Login)
		}
		if r := sh(t, p, s, "echo here"); r.Stdout != "here\n" {
			t.Errorf("%s: the session printed %q", c.text, r.Stdout)
		}
	}
	if s := create(t, p, api.SessionCreateParams{}); s.Login != nil {
		t.Errorf("without login files: %+v", s.Login)
	}
}

// TestDestroyCutsCreation: a session that is being created can be destroyed at
// once.
func TestDestroyCutsCreation(t *testing.T) {
	const createPatience = time.Minute
	p := newPool(t, Config{})
	home := t.TempDir()
	if err := os.WriteFile(home+"/.profile", []byte("trap '' TERM\nsleep 100 & echo $! >"+home+"/pid\nsleep 100\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hanging := home + "/bash"
	if err := os.WriteFile(hanging, []byte("#!/bin/dash\necho $$ >"+home+"/pid\nexec sleep 100\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, params := range []api.SessionCreateParams{
		{Shell: "dash", Env: api.Env{"HOME": home}, Login: true, CreateTimeoutMS: createPatience.Milliseconds()},
		{Shell: hanging, CreateTimeoutMS: createPatience.Milliseconds()},
	} {
		_ = os.Remove(home + "/pid")
		made := make(chan error, 1)
		go func() {
			_, err := p.Create(t.Context(), params, "tester")
			made <- err
		}()
		var pid int
		waitFor(t, func() bool {
			text, _ := os.ReadFile(home + "/pid")
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
			return pid > 0
		})
		l, err := p.List(t.Context(), api.SessionListParams{State: api.StateCreating})
		if err != nil || len(l.Sessions) != 1 {
			t.Fatalf("%+v, %v", l, err)
		}
		began := time.Now()
		gone, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: l.Sessions[0].SessionID})
		if err != nil || gone.Survivors == nil || len(gone.Survivors) != 0 {
			t.Errorf("destroyed: %+v, %v", gone, err)
		}
		if err := <-made; !api.IsCode(err, api.CodeSessionTerminated) {
			t.Errorf("created: %v", err)
		}
		if took := time.Since(began); took > createPatience/2 {
			t.Errorf("it took %s", took)
		}
		waitFor(t, func() bool { return unix.Kill(pid, 0) != nil }) // it is dead, and about to be reaped
	}
}

// TestDroppedBytesAreReported: bytes that quota has dropped are not said to be available.
func TestDroppedBytesAreReported(t *testing.T) {
	p := newPoolWith(t, Config{}, process.Config{}, journal.Config{Dir: t.TempDir(), ExecQuota: 200_000})
	s := create(t, p, api.SessionCreateParams{})
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "seq 1 200000"}, MaxOutputBytes: ms(50)})
	if r.DroppedBytes < 1_000_000 || !strings.Contains(r.Stdout, fmt.Sprintf("has all but %d that quota has dropped", r.DroppedBytes)) {
		t.Errorf("dropped %d: %q", r.DroppedBytes, r.Stdout)
	}
	gap := int64(0)
	for from := int64(0); ; {
		out, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: r.ExecID, From: from})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range out.Chunks {
			gap += c.Bytes
		}
		if from = out.Next; out.Closed {
			break
		}
	}
	if gap != r.DroppedBytes {
		t.Errorf("exec.output has a gap of %d, the result reports %d", gap, r.DroppedBytes)
	}
	// Binary output has no place for a line.
	r = run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "head -c 5000 /dev/zero | tr '\\0' '\\377'"}, MaxOutputBytes: ms(10)})
	if b, err := api.DecodeBytes(r.Stdout, r.StdoutEncoding); err != nil || string(b) != strings.Repeat("\xff", 10) || !r.Truncated {
		t.Errorf("%q, %v", b, err)
	}
}

// TestUnset: a variable can be removed, from a session and for one command.
func TestUnset(t *testing.T) {
	p := newPool(t, Config{})
	for _, name := range []string{"dash", "ash", "bash", "zsh", "mksh"} {
		s := create(t, p, api.SessionCreateParams{Shell: name, Env: api.Env{"LANG": api.Unset, "A": "1", "B": "2"}})
		look := `echo "${LANG-none} ${A-none} ${B-none}"; sh -c 'echo "${A-none}"'`
		if r := sh(t, p, s, look); r.Stdout != "none 1 2\n1\n" {
			t.Errorf("%s: the session has %q", name, r.Stdout)
		}
		r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: look, Env: api.Env{"A": api.Unset, "B": "3"}}})
		if r.Stdout != "none none 3\nnone\n" {
			t.Errorf("%s: the command has %q", name, r.Stdout)
		}
		if r := sh(t, p, s, look); r.Stdout != "none 1 2\n1\n" {
			t.Errorf("%s: after it the session has %q", name, r.Stdout)
		}
	}
}

// TestRefusals: params that can't be passed on as they are are refused.
func TestRefusals(t *testing.T) {
	p := newPool(t, Config{})
	for _, params := range []api.SessionCreateParams{
		{Argv: []string{}}, {Argv: []string{"echo", "a\x00b"}}, {Name: strings.Repeat("x", 1025)}, {Env: api.Env{"A": "\x00\x00"}},
	} {
		if _, err := p.Create(t.Context(), params, "tester"); !api.IsCode(err, api.CodeInvalidParams) {
			t.Errorf("%+v: %v", params, err)
		}
	}
	s := create(t, p, api.SessionCreateParams{})
	if _, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo a\x00b"}}); !api.IsCode(err, api.CodeInvalidParams) {
		t.Errorf("NUL in a command: %v", err)
	}
}

// TestDeadShellIsNotShown: a dead shell is not shown; the next command gets
// another.
func TestDeadShellIsNotShown(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	if err := unix.Kill(s.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		now, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
		return err == nil && now.PID != s.PID && now.State == api.StateIdle
	})
	if r := sh(t, p, s, "echo here"); r.Stdout != "here\n" {
		t.Errorf("%+v", r)
	}
}

// TestIdleTTLStartsWithoutClients: a client that holds, reads or watches a session keeps it alive;
// its idle TTL starts after that.
func TestIdleTTLStartsWithoutClients(t *testing.T) {
	p := newPool(t, Config{Housekeeping: 5 * time.Millisecond, SessionRetention: time.Hour})
	const ttl = 150
	ended := func(id string) bool {
		s, err := p.Info(t.Context(), api.SessionParams{SessionID: id})
		if err != nil {
			t.Fatal(err)
		}
		return s.State == api.StateTerminated
	}
	forAWhile := func() *api.Session { return create(t, p, api.SessionCreateParams{IdleTTLMS: ms(ttl)}) }

	held, watched, followed, read, left := forAWhile(), forAWhile(), forAWhile(), forAWhile(), forAWhile()
	hold, err := p.Hold(t.Context(), api.SessionHoldParams{SessionID: held.SessionID, Holder: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	_, events, err := p.Watch(t.Context(), api.SessionWatchParams{SessionID: watched.SessionID})
	if err != nil {
		t.Fatal(err)
	}
	_, chunks, err := p.Stream(t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: followed.SessionID, Command: "echo here"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	over := map[string]chan struct{}{}
	for name, feed := range map[string]notify.Feed{"watch": events, "stream": chunks} {
		over[name] = closedAfter(func() { _ = feed(ctx, func(notify.Notification) error { <-ctx.Done(); return nil }) })
	}
	exec := sh(t, p, read, "echo here").ExecID
	until := time.Now().Add(4 * ttl * time.Millisecond)
	for time.Now().Before(until) {
		if _, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: exec}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // pace: as a client that polls
	}
	for name, s := range map[string]*api.Session{"held": held, "watched": watched, "followed": followed, "read": read} {
		if ended(s.SessionID) {
			t.Errorf("a session that is %s has ended", name)
		}
	}
	waitFor(t, func() bool { return ended(left.SessionID) })
	leave()
	<-over["watch"]
	<-over["stream"]
	if _, err := p.Release(t.Context(), api.SessionReleaseParams{SessionID: held.SessionID, Lease: hold.Lease}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*api.Session{held, watched, followed, read} {
		waitFor(t, func() bool { return ended(s.SessionID) })
	}
	l, err := p.List(t.Context(), api.SessionListParams{Alive: true})
	if err != nil || len(l.Sessions) != 0 {
		t.Errorf("%+v live, %v", l, err)
	}
}

// closedAfter calls fn and returns a channel that is closed when fn has returned.
func closedAfter(fn func()) chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	return done
}

// TestEndingAndQueued: it is reported that a session is being ended, and how long a
// command was queued.
func TestEndingAndQueued(t *testing.T) {
	p := newPool(t, Config{Grace: 300 * time.Millisecond, SessionRetention: time.Hour})
	s := create(t, p, api.SessionCreateParams{})
	if _, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 0.2"}, YieldMS: 1}); err != nil {
		t.Fatal(err)
	}
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo second", Wait: true}})
	if r.QueuedMS < 50 || r.QueuedMS > 10_000 {
		t.Errorf("it was queued for %d ms", r.QueuedMS)
	}
	if r := sh(t, p, s, "true"); r.QueuedMS != 0 {
		t.Errorf("a command that was not queued: %d ms", r.QueuedMS)
	}
	sh(t, p, s, "sh -c 'trap \"\" TERM; while :; do sleep 1; done' >/dev/null 2>&1 &")
	gone := closedAfter(func() { _, _ = p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}) })
	waitFor(t, func() bool {
		now, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
		return err == nil && (now.Ending || now.State == api.StateTerminated)
	})
	_, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true"}})
	if !api.IsCode(err, api.CodeSessionTerminated) {
		t.Errorf("a command while it ends: %v", err)
	}
	<-gone
	if now, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID}); err != nil || now.Ending {
		t.Errorf("after its end: %+v, %v", now, err)
	}
}

// TestProcessesAreNamed: processes left behind are named by what they have
// executed, and shells by their names.
func TestProcessesAreNamed(t *testing.T) {
	p := newPool(t, Config{})
	for _, name := range []string{"dash", "ash", "bash", "zsh", "mksh"} {
		s := create(t, p, api.SessionCreateParams{Shell: name})
		for range 30 {
			r := sh(t, p, s, "sleep 300 >/dev/null 2>&1 & echo hi")
			if len(r.Survivors) != 1 || r.Survivors[0].Command != "sleep 300" {
				t.Fatalf("%s left %+v", name, r.Survivors)
			}
			if _, err := p.Signal(t.Context(), api.ExecSignalParams{ExecID: r.ExecID, Signal: "KILL"}); err != nil {
				t.Fatal(err)
			}
		}
		sh(t, p, s, "(sleep 300; :) >/dev/null 2>&1 &")
		info, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
		if err != nil {
			t.Fatal(err)
		}
		for _, proc := range info.Processes {
			if strings.Contains(proc.Command, "/proc/") {
				t.Errorf("%s: a process is called %q", name, proc.Command)
			}
		}
	}
}

// TestDirectSessionIsBusy: the error for a command in a direct session names the
// exec that runs.
func TestDirectSessionIsBusy(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Argv: []string{"sleep", "3600"}})
	_, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true"}})
	if e := api.AsError(err); err == nil || e.Code != api.CodeSessionBusy || s.ExecID == "" || e.Details["exec_id"] != s.ExecID {
		t.Errorf("%v of %+v", err, s)
	}
}

// TestStatusAfterHandledSIGTERM: a command that handles SIGTERM keeps its own
// status when it is stopped. (zsh exits before it knows.)
func TestStatusAfterHandledSIGTERM(t *testing.T) {
	p := newPool(t, Config{})
	for _, shell := range []string{"dash", "ash", "bash"} {
		s := create(t, p, api.SessionCreateParams{Shell: shell})
		for _, tt := range []struct {
			command string
			code    int
			signal  string
		}{
			{"sh -c 'trap \"echo bye; exit 5\" TERM; echo up; while :; do sleep 0.01; done'", 5, ""},
			{"false; sh -c 'trap \"exit 0\" TERM; echo up; while :; do sleep 0.01; done'; echo no", 0, ""},
			{"echo up; sleep 100", 143, "SIGTERM"},
			{"echo up; while ! false; do false; done", 143, "SIGTERM"},
			{"sleep 100 & echo up; while :; do :; done", 143, "SIGTERM"},
			{"sleep 100 & echo up; wait", 143, "SIGTERM"},
		} {
			ran, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: tt.command}, YieldMS: 1})
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool {
				out, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: ran.ExecID})
				return err == nil && len(out.Chunks) > 0
			})
			waitFor(t, func() bool { // a shell that is about to wait for its child does not handle it yet
				info, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
				return err == nil && (process.AwaitsChild(info.PID) || !strings.Contains(tt.command, "sh -c"))
			})
			if _, err := p.Cancel(t.Context(), api.ExecCancelParams{ExecID: ran.ExecID}); err != nil {
				t.Fatal(err)
			}
			r, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: ran.ExecID})
			if err != nil || r.ExitCode == nil || *r.ExitCode != tt.code || r.Signal != tt.signal || !r.Cancelled {
				t.Errorf("%s: %s: %+v, %v", shell, tt.command, r, err)
			}
		}
	}
}
