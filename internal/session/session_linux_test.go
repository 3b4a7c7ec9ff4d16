package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestStateIsKept(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	sh(t, p, s, "cd /usr; V=kept; f() { echo called; }")
	r := sh(t, p, s, `echo "$V $PWD"; f; echo oops >&2; (exit 7)`)
	if *r.ExitCode != 7 || r.Stdout != "kept /usr\ncalled\n" || r.Stderr != "oops\n" || r.Cwd != "/usr" {
		t.Errorf("got %+v", r)
	}
	if r.State != api.ExecExited || r.Outcome != api.OutcomeExited {
		t.Errorf("state %s, outcome %s", r.State, r.Outcome)
	}
}

func TestExecEnvCwdStdin(t *testing.T) {
	for _, shell := range []string{"dash", "ash", "bash", "zsh", "mksh"} {
		t.Run(shell, func(t *testing.T) {
			p := newPool(t, Config{})
			s := create(t, p, api.SessionCreateParams{Shell: shell, Cwd: "/", Env: map[string]string{"A": "session", "B": "b"}})
			in := "line 1\nline 2\n"
			r := run(t, p, api.ExecRunParams{
				ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: `cat; echo "$A $B $NEW $PWD"; env | grep -c '^NEW='; export KEPT=1`, Env: map[string]string{"A": "it's \"odd\" $x\n", "NEW": "n"}, Cwd: "usr", Stdin: &in},
			})
			if want := in + "it's \"odd\" $x\n b n /usr\n1\n"; r.Stdout != want {
				t.Errorf("got %q, want %q (stderr %q)", r.Stdout, want, r.Stderr)
			}
			r = sh(t, p, s, `echo "$A $B ${NEW-unset} $KEPT $PWD"; env | grep '^A='`)
			if want := "session b unset 1 /\nA=session\n"; r.Stdout != want {
				t.Errorf("afterwards: got %q, want %q", r.Stdout, want)
			}
			r = run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "cd /tmp; X=1; exit 3", Cwd: "/usr", Env: map[string]string{"A": "x"}}})
			if *r.ExitCode != 3 || r.Outcome != api.OutcomeShellExited {
				t.Errorf("exit: %+v", r)
			}
			r = sh(t, p, s, `echo "$A ${X-lost} $PWD"`)
			if want := "session 1 /tmp\n"; r.Stdout != want {
				t.Errorf("after an exit: got %q, want %q", r.Stdout, want)
			}
			// A copy of the shell must not hold the output of the exec it was made
			// in open.
			left := sh(t, p, s, "echo out; exit 2")
			waitFor(t, func() bool {
				o, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: left.ExecID})
				return err == nil && o.Closed && o.Chunks[0].Data == "out\n"
			})
		})
	}
}

func TestExitNotesAndRollback(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Shell: "bash"})
	sh(t, p, s, "V=before")
	r := sh(t, p, s, "V=after; exit 3")
	if *r.ExitCode != 3 || r.Outcome != api.OutcomeShellExited || r.RolledBack {
		t.Errorf("exit 3: %+v", r)
	}
	if r := sh(t, p, s, "echo $V"); r.Stdout != "after\n" {
		t.Errorf("state after exit: %q", r.Stdout)
	}
	s = create(t, p, api.SessionCreateParams{Shell: "bash"})
	before := sh(t, p, s, "V=again")
	r = sh(t, p, s, "V=lost; kill -9 $$")
	if *r.ExitCode != 137 || r.Outcome != api.OutcomeShellDied || !r.RolledBack || r.RolledBackTo != before.ExecID || r.Signal != "SIGKILL" {
		t.Errorf("kill -9: %+v", r)
	}
	if r := sh(t, p, s, "echo $V"); r.Stdout != "again\n" {
		t.Errorf("state after kill -9: %q", r.Stdout)
	}
}

func TestTimeoutKeepsStateAndPartialOutput(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	for _, command := range []string{"sleep 100", "while :; do :; done", "sleep 100 | cat", `sh -c 'kill -STOP $$'`} {
		trltest.Undisturbed(t, func() error {
			sh(t, p, s, "V=")
			start := time.Now()
			r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "V=kept; echo partial; " + command + "; echo NOT", TimeoutMS: ms(100)}})
			took := time.Since(start)
			if !r.TimedOut || r.Outcome != api.OutcomeTimedOut {
				t.Errorf("%s: %+v", command, r)
			}
			state := sh(t, p, s, "echo $V").Stdout
			if r.Stdout == "" && state == "\n" {
				return fmt.Errorf("%s: it had not begun when its time was over", command)
			}
			if r.Stdout != "partial\n" {
				t.Errorf("%s: %+v", command, r)
			}
			if state != "kept\n" {
				t.Errorf("%s: state lost: %q", command, state)
			}
			if took > 5500*time.Millisecond {
				return fmt.Errorf("%s took %v", command, took)
			}
			return nil
		})
	}
}

// TestIdleTimeout: each byte restarts the idle timer, so a command that lasts
// longer than its idle timeout is not stopped while it writes.
func TestIdleTimeout(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	const idle = 500
	trltest.Undisturbed(t, func() error {
		r := run(t, p, api.ExecRunParams{
			ExecCommand: api.ExecCommand{SessionID: s.SessionID, IdleTimeoutMS: idle, Command: "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done; sleep 100"},
		})
		written := int64(0)
		for _, c := range timedOutput(t, p, r.ExecID, 1<<20) {
			if c.Type == api.ChunkStdout { // what the shell says of the signal comes later
				written = *c.AtMS
			}
		}
		if quiet := r.DurationMS - written; !r.TimedOut || quiet < idle {
			t.Errorf("stopped %d ms after its last output: %+v", quiet, r)
		}
		if r.Stdout != "1\n2\n3\n4\n5\n6\n7\n8\n" {
			return fmt.Errorf("stopped after %q", r.Stdout) // correct, if a busy machine delayed it that long
		}
		return nil
	})
}

func TestYieldThenOutput(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	wait, open := trltest.Gate(t)
	// The answer has what was written so far: a slow machine gets more time to
	// write it.
	var r *api.ExecResult
	for yield := int64(100); ; yield *= 4 {
		r = run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo one; " + wait + "; echo two"}, YieldMS: yield})
		if r.State != api.ExecRunning || r.ExitCode != nil || r.Outcome != api.OutcomeRunning {
			t.Fatalf("yield: %+v", r)
		}
		if r.Stdout == "one\n" {
			break
		}
		if r.Stdout != "" || yield > 10_000 {
			t.Fatalf("yield after %d ms: %+v", yield, r)
		}
		if _, err := p.Cancel(t.Context(), api.ExecCancelParams{ExecID: r.ExecID}); err != nil {
			t.Fatal(err)
		}
	}
	open()
	o, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: r.ExecID, From: 4, WaitMS: 60_000})
	if err != nil || len(o.Chunks) != 1 || o.Chunks[0].Data != "two\n" || o.Chunks[0].Offset != 4 || o.Next != 8 {
		t.Errorf("output: %+v, %v", o, err)
	}
	if _, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo three", Wait: true}}); err != nil {
		t.Error(err)
	}
	info, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: r.ExecID})
	if err != nil || info.State != api.ExecExited || *info.ExitCode != 0 || info.StdoutBytes != 8 {
		t.Errorf("info: %+v, %v", info, err)
	}
}

func TestBackgroundChildNeitherDelaysNorLosesOutput(t *testing.T) {
	store, err := ledger.New(holder.NewLocalKeeper())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	p := newPool(t, Config{Ledger: store}) // the end of its output is persisted too
	s := create(t, p, api.SessionCreateParams{})
	wait, open := trltest.Gate(t)
	r := sh(t, p, s, "("+wait+"; echo late; sleep 0.1) & echo now") // it returns before the gate is open
	if r.Stdout != "now\n" {
		t.Errorf("got %q", r.Stdout)
	}
	if len(r.Survivors) == 0 || r.Survivors[0].ExecID != r.ExecID {
		t.Errorf("survivors: %+v", r.Survivors)
	}
	if next := sh(t, p, s, "echo other"); next.Stdout != "other\n" || len(next.Survivors) != 0 {
		t.Errorf("the next command got %+v", next)
	}
	open()
	var got string
	from := int64(0)
	waitFor(t, func() bool { // a long poll returns at once: the exec itself is over
		o, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: r.ExecID, From: from})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range o.Chunks {
			got += c.Data
		}
		from = o.Next
		return o.Closed
	})
	if got != "now\nlate\n" {
		t.Errorf("journal has %q", got)
	}
}

func TestBusyWaitAndCancel(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 100"}, YieldMS: 1})
	_, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true"}})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeSessionBusy || e.Details["exec_id"] != r.ExecID {
		t.Fatalf("got %v", err)
	}
	var wg sync.WaitGroup
	order := make(chan string, 3)
	for _, name := range []string{"a", "b", "c"} {
		queued := make(chan struct{})
		wg.Go(func() {
			close(queued)
			r, err := p.Run(context.Background(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo " + name, Wait: true}})
			if err != nil {
				t.Error(err)
				return
			}
			order <- r.Stdout
		})
		<-queued
		waitFor(t, func() bool {
			l, err := p.ExecList(t.Context(), api.SessionParams{SessionID: s.SessionID})
			return err == nil && len(l.Execs) == strings.Index("abc", name)+2
		})
	}
	c, err := p.Cancel(t.Context(), api.ExecCancelParams{SessionID: s.SessionID})
	if err != nil || !c.Cancelled || c.ExecID != r.ExecID {
		t.Errorf("cancel: %+v, %v", c, err)
	}
	wg.Wait()
	close(order)
	var got []string
	for o := range order {
		got = append(got, o)
	}
	if len(got) != 3 {
		t.Errorf("ran %q", got)
	}
	l, _ := p.ExecList(t.Context(), api.SessionParams{SessionID: s.SessionID})
	for i := 1; i < len(l.Execs); i++ {
		if l.Execs[i].StartedAt.Before(l.Execs[i-1].StartedAt.Time) {
			t.Error("the queue was not served in order")
		}
	}
	if info, _ := p.ExecInfo(t.Context(), api.ExecParams{ExecID: r.ExecID}); info.Outcome != api.OutcomeCancelled || !info.Cancelled {
		t.Errorf("cancelled exec: %+v", info)
	}
}

// waitFor polls for a condition that has no event.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	trltest.Eventually(t, "it came true", ok)
}

func TestDirectSession(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Argv: []string{"sh", "-c", "read x; echo got $x; setsid sleep 100 & exit 4"}})
	if s.State != api.StateRunning || s.ExecID == "" {
		t.Fatalf("%+v", s)
	}
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: s.ExecID, Data: "hello\n"}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		i, _ := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
		return i.State == api.StateTerminated
	})
	i, _ := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
	if i.Terminated.Reason != api.ReasonExited || *i.Terminated.ExitCode != 4 {
		t.Errorf("terminated: %+v", i.Terminated)
	}
	o, _ := p.Output(t.Context(), api.ExecOutputParams{ExecID: s.ExecID})
	if len(o.Chunks) != 1 || o.Chunks[0].Data != "got hello\n" || !o.Closed {
		t.Errorf("output: %+v", o)
	}
}

// The creator of a session whose command has ended already gets the session, and the
// output of the command. Only one that was destroyed before it was created has none.
func TestCreateOfAShortCommand(t *testing.T) {
	p := newPool(t, Config{})
	start := func() *Session {
		t.Helper()
		s, err := newSession(p.shared, p.numbers.Add(1), api.SessionCreateParams{Argv: []string{"echo", "short"}}, "")
		if err == nil {
			_, err = p.add(s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := start()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	<-s.destroyed
	if got, err := p.created(s); err != nil || got != s {
		t.Errorf("%v, %v", got, err)
	}
	o, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: s.snapshot().ExecID})
	if err != nil || len(o.Chunks) != 1 || o.Chunks[0].Data != "short\n" {
		t.Errorf("output: %+v, %v", o, err)
	}
	s = start()
	done := s.destroy(api.ReasonDestroyed, true)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	<-done
	if _, err := p.created(s); !api.IsCode(err, api.CodeSessionTerminated) {
		t.Errorf("destroyed in its creation: %v", err)
	}
}

func TestCreateFailures(t *testing.T) {
	p := newPool(t, Config{MaxSessions: 1})
	for _, tt := range []struct {
		params api.SessionCreateParams
		code   api.Code
	}{
		{api.SessionCreateParams{Shell: "no-such-shell"}, api.CodeShellNotFound},
		{api.SessionCreateParams{Shell: "cat"}, api.CodeShellNotFound},
		{api.SessionCreateParams{Cwd: "/no/such/dir"}, api.CodeCwdNotFound},
		{api.SessionCreateParams{Cwd: "/etc/passwd"}, api.CodeCwdNotFound},
		{api.SessionCreateParams{Runtime: "moon"}, api.CodeRuntimeNotFound},
		{api.SessionCreateParams{Limits: &api.Limits{MemoryBytes: 1 << 30}}, api.CodeLimitsUnavailable},
		{api.SessionCreateParams{Argv: []string{"no-such-program"}}, api.CodeShellNotFound},
		{api.SessionCreateParams{InheritEnv: "some"}, api.CodeInvalidParams},
		{api.SessionCreateParams{Shell: "bash", Env: map[string]string{"LD_PRELOAD": "", "BASH_ENV": ""}}, ""},
		{api.SessionCreateParams{}, api.CodeMaxSessions},
	} {
		_, err := p.Create(t.Context(), tt.params, "tester")
		if tt.code == "" && err != nil || tt.code != "" && !api.IsCode(err, tt.code) {
			t.Errorf("%+v: got %v, want %s", tt.params, err, tt.code)
		}
	}
	if l, _ := p.List(t.Context(), api.SessionListParams{}); len(l.Sessions) != 1 {
		t.Errorf("%d sessions are left", len(l.Sessions))
	}
}

func TestShellThatCrashes(t *testing.T) {
	p := newPool(t, Config{})
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/bash", []byte("#!/bin/sh\necho no way >&2\nexit 9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := p.Create(t.Context(), api.SessionCreateParams{Shell: dir + "/bash"}, "tester")
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeShellCrashed {
		t.Fatalf("got %v", err)
	}
	want := map[string]any{"exit_code": 9, "signal": "", "stderr": "no way"}
	if diff := cmp.Diff(want, e.Details); diff != "" {
		t.Error(diff)
	}
}

func TestDestroyAndAfter(t *testing.T) {
	p := newPool(t, Config{SessionRetention: time.Hour})
	for _, force := range []bool{false, true} {
		trltest.Undisturbed(t, func() error { return destroyAndAfter(t, p, force) })
	}
}

// destroyAndAfter returns an error if it took too long, which may be due to a busy
// machine.
func destroyAndAfter(t *testing.T, p *Pool, force bool) error {
	t.Helper()
	s := create(t, p, api.SessionCreateParams{Name: "n", Env: map[string]string{"SECRET": "canary"}})
	sh(t, p, s, `sh -c 'trap "" TERM; while :; do sleep 1; done' & setsid sleep 100 & (setsid sh -c "sleep 100" &)`)
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 100"}, YieldMS: 1})
	start := time.Now()
	d, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID, Force: force})
	if err != nil || d.State != api.StateTerminated || len(d.Survivors) != 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	took := time.Since(start)
	if !force && took < 4900*time.Millisecond {
		t.Errorf("it had a grace of 5 s, and took %v", took)
	}
	i, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
	if err != nil || i.State != api.StateTerminated || i.Terminated.Reason != api.ReasonDestroyed || len(i.Processes) != 0 {
		t.Errorf("%+v, %v", i, err)
	}
	if diff := cmp.Diff([]string{"SECRET"}, i.EnvKeys); diff != "" {
		t.Error(diff)
	}
	if e, _ := p.ExecInfo(t.Context(), api.ExecParams{ExecID: r.ExecID}); e.Outcome != api.OutcomeCancelled {
		t.Errorf("the running exec: %+v", e)
	}
	if _, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true"}}); !api.IsCode(err, api.CodeSessionTerminated) {
		t.Errorf("run: %v", err)
	}
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); !api.IsCode(err, api.CodeSessionTerminated) {
		t.Errorf("destroy again: %v", err)
	}
	if force && took > 2*time.Second || took > 6*time.Second {
		return fmt.Errorf("force %v took %v", force, took)
	}
	return nil
}

func TestHousekeeping(t *testing.T) {
	p := newPool(t, Config{Housekeeping: 10 * time.Millisecond, SessionRetention: 200 * time.Millisecond, MaxExecs: 2})
	s := create(t, p, api.SessionCreateParams{}) // one whose TTL does not end between its commands
	var ids []string
	for range 4 {
		ids = append(ids, sh(t, p, s, "echo hi").ExecID)
	}
	if _, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: ids[0]}); !api.IsCode(err, api.CodeExecNotFound) {
		t.Errorf("the oldest exec is kept: %v", err)
	}
	_, events, err := p.Watch(t.Context(), api.SessionWatchParams{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
	idle := create(t, p, api.SessionCreateParams{IdleTTLMS: ms(100)})
	var ended []string // from events, because an ended session is soon forgotten
	if err := events(t.Context(), func(n notify.Notification) error {
		if e := n.(*api.SessionEvent); e.Type == api.EventDestroyed {
			ended = append(ended, e.SessionID+" "+e.Reason)
		}
		if len(ended) == 2 {
			return errEnough
		}
		return nil
	}); !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{s.SessionID + " " + string(api.ReasonDestroyed), idle.SessionID + " " + string(api.ReasonIdle)}, ended); diff != "" {
		t.Error(diff)
	}
	for _, id := range []string{s.SessionID, idle.SessionID} {
		waitFor(t, func() bool {
			_, err := p.Info(t.Context(), api.SessionParams{SessionID: id})
			return api.IsCode(err, api.CodeSessionNotFound)
		})
	}
	if n := p.Stats().ExecsRetained; n != 0 {
		t.Errorf("%d execs are retained", n)
	}
}

func TestTruncation(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo first; seq 100000; echo last"}, MaxOutputBytes: ms(100)})
	if !r.Truncated || !strings.HasPrefix(r.Stdout, "first\n1\n") || !strings.HasSuffix(r.Stdout, "100000\nlast\n") || !strings.Contains(r.Stdout, "bytes left out") {
		t.Errorf("got %q", r.Stdout)
	}
	if r.StdoutBytes != 588906 {
		t.Errorf("stdout_bytes %d", r.StdoutBytes)
	}
	r = run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: `printf 'a\000b\377'`}})
	if r.StdoutEncoding != api.Base64 || r.Stdout != "YQBi/w==" {
		t.Errorf("binary: %+v", r)
	}
}

func TestLogin(t *testing.T) {
	for shell, file := range map[string]string{"dash": ".profile", "ash": ".profile", "bash": ".bash_profile", "zsh": ".zprofile"} {
		t.Run(shell, func(t *testing.T) {
			p := newPool(t, Config{})
			home := t.TempDir()
			if err := os.WriteFile(home+"/"+file, []byte("FROM_PROFILE=yes\necho noise\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			env := map[string]string{"HOME": home}
			for login, want := range map[bool]string{false: "no\n", true: "yes\n"} {
				s := create(t, p, api.SessionCreateParams{Shell: shell, Env: env, Login: login})
				if r := sh(t, p, s, "echo ${FROM_PROFILE-no}"); r.Stdout != want {
					t.Errorf("login %v: got %q", login, r.Stdout)
				}
			}
		})
	}
}

func TestTransitions(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an illegal transition does not panic")
		}
	}()
	transition(api.StateTerminated, api.StateIdle)
}

// TestQueuedCommandOutlivesItsCaller: a queued command belongs to the session: it
// stays when its caller goes away, and a retry by key finds it.
func TestQueuedCommandOutlivesItsCaller(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	first := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 100"}, YieldMS: 1})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	params := api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo ran", Wait: true, Key: "k"}}
	go func() {
		_, err := p.Run(ctx, params)
		gone <- err
	}()
	waitFor(t, func() bool {
		l, err := p.ExecList(t.Context(), api.SessionParams{SessionID: s.SessionID})
		return err == nil && len(l.Execs) == 2 && l.Execs[1].State == api.ExecQueued
	})
	cancel()
	if err := <-gone; err == nil {
		t.Error("the caller got an answer")
	}
	if _, err := p.Cancel(t.Context(), api.ExecCancelParams{ExecID: first.ExecID}); err != nil {
		t.Fatal(err)
	}
	r := run(t, p, params)
	if r.Stdout != "ran\n" || r.Outcome != api.OutcomeExited {
		t.Errorf("got %+v", r)
	}
	// An exec that is cancelled in the queue never runs.
	first = run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 100"}, YieldMS: 1})
	r = run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo NOT", Wait: true}, YieldMS: 1})
	if r.State != api.ExecQueued {
		t.Errorf("got %+v", r)
	}
	if c, err := p.Cancel(t.Context(), api.ExecCancelParams{ExecID: r.ExecID}); err != nil || !c.Cancelled {
		t.Errorf("%+v, %v", c, err)
	}
	if i, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: r.ExecID}); err != nil || i.Outcome != api.OutcomeCancelled || i.ExitCode != nil {
		t.Errorf("%+v, %v", i, err)
	}
	if _, err := p.Cancel(t.Context(), api.ExecCancelParams{ExecID: first.ExecID}); err != nil {
		t.Fatal(err)
	}
}

// TestRemovedTag: a command that removes the tag from its shell makes it unusable,
// and one that removes it from a child does not escape the timeout where cgroups
// track it.
func TestRemovedTag(t *testing.T) {
	p := newPool(t, Config{Grace: 500 * time.Millisecond})
	s := create(t, p, api.SessionCreateParams{Shell: "bash"})
	sh(t, p, s, "V=kept")
	r := sh(t, p, s, "ulimit -x 7; (exit 4)")
	if *r.ExitCode != 4 || r.Outcome != api.OutcomeShellDied || !r.RolledBack {
		t.Errorf("got %+v", r)
	}
	if r := sh(t, p, s, "echo $V"); r.Stdout != "kept\n" || *r.ExitCode != 0 {
		t.Errorf("got %+v", r)
	}
	if p.host.Support().Cgroup == "" {
		return
	}
	r = run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "bash -c 'ulimit -x 7; echo $$; exec sleep 100'", TimeoutMS: ms(300)}})
	pid, err := strconv.Atoi(strings.TrimSpace(r.Stdout))
	if err != nil || !r.TimedOut {
		t.Fatalf("got %+v", r)
	}
	waitFor(t, func() bool { return unix.Kill(pid, 0) == unix.ESRCH }) // neither alive nor a zombie
}
