package cell_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { trltest.Main(m) }

// rig is a daemon and a client of it.
type rig struct {
	*client.Client
	t      *testing.T
	daemon *trltest.Daemon
	before []trltest.Process // of the daemon, without sessions
}

func newRig(t *testing.T, args ...string) *rig {
	t.Helper()
	_, err := trltest.Binary()
	trltest.Need(t, err)
	d, err := trltest.Start(trltest.Config{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.Running() {
			if err := d.Stop(); err != nil {
				t.Errorf("stop: %v\n%s", err, d.Log())
			}
		}
		_ = os.RemoveAll(d.Dir)
	})
	r := &rig{t: t, daemon: d}
	r.Client = r.dial()
	if _, err := r.SystemInfo(t.Context()); err != nil { // tries all abilities
		t.Fatal(err)
	}
	r.before = trltest.Descendants(d.PID)
	return r
}

func (r *rig) dial() *client.Client {
	r.t.Helper()
	c, err := client.Dial(r.t.Context(), r.daemon.Socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// weak is an isolation that every machine can enforce.
func weak() *api.Isolation { return &api.Isolation{NoNewPrivs: true} }

func (r *rig) create(p api.SessionCreateParams) *api.Session {
	r.t.Helper()
	if p.Isolation == nil {
		p.Isolation = weak()
	}
	s, err := r.CreateSession(r.t.Context(), p)
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.daemon.Log())
	}
	return s
}

func (r *rig) run(session, command string) string {
	r.t.Helper()
	result, err := r.Run(r.t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session, Command: command}})
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.daemon.Log())
	}
	return result.Stdout
}

// added returns the processes of the daemon that sessions and cells have added.
func (r *rig) added() []trltest.Process {
	return slices.DeleteFunc(trltest.Descendants(r.daemon.PID), func(p trltest.Process) bool {
		return p.State == "Z" || slices.ContainsFunc(r.before, func(q trltest.Process) bool { return p.PID == q.PID })
	})
}

// awaitNothing waits until no process of a cell is left.
func (r *rig) awaitNothing() {
	r.t.Helper()
	trltest.Eventually(r.t, "no process of a cell is left", func() bool { return len(r.added()) == 0 })
}

// restartDaemon kills the daemon, and waits for the next one.
func (r *rig) restartDaemon() {
	r.t.Helper()
	before, err := r.SystemInfo(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if err := unix.Kill(before.PID, unix.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
	r.awaitOther(before.PID)
}

func (r *rig) awaitOther(pid int) {
	r.t.Helper()
	trltest.Eventually(r.t, "another daemon serves", func() bool {
		now, err := r.SystemInfo(r.t.Context())
		if err == nil && now.PID != pid {
			r.before = append(r.before, trltest.Process{PID: now.PID})
			return true
		}
		return false
	})
}

func (r *rig) state(session string) (api.State, string) {
	r.t.Helper()
	info, err := r.SessionInfo(r.t.Context(), api.SessionParams{SessionID: session})
	if err != nil {
		r.t.Fatal(err)
	}
	if info.Terminated != nil {
		return info.State, info.Terminated.Reason
	}
	return info.State, ""
}

// A confined session is used as any other, and nothing of its cell is left when it
// is destroyed.
func TestConfinedSession(t *testing.T) {
	r := newRig(t)
	s := r.create(api.SessionCreateParams{Name: "confined", Tags: []string{"a"}})
	if s.Runtime != api.RuntimeHost || strings.Count(s.SessionID, "-") != 2 {
		t.Errorf("session %s, runtime %s", s.SessionID, s.Runtime)
	}
	want := &api.IsolationInForce{Isolation: *weak(), Mechanisms: []string{"no_new_privs"}}
	if diff := cmp.Diff(want, s.Isolation); diff != "" {
		t.Error(diff)
	}
	if got := r.run(s.SessionID, "grep NoNewPrivs /proc/self/status; env | grep ^TRL_CELL; x=kept"); got != "NoNewPrivs:\t1\n" {
		t.Errorf("in the session: %q", got)
	}
	if got := r.run(s.SessionID, "echo $x"); got != "kept\n" {
		t.Errorf("the session is not one: %q", got)
	}
	places, err := r.Places(t.Context())
	if err != nil || len(places.Places) != 0 {
		t.Errorf("place.list shows %v, %v", places, err)
	}
	info, err := r.SystemInfo(t.Context())
	if err != nil || !slices.Contains(info.Isolates, "no_new_privs") || len(info.Confinement) == 0 {
		t.Errorf("system.info: %v, %v, %v", info.Isolates, info.Confinement, err)
	}
	listed := func() api.Session {
		t.Helper()
		list, err := r.ListSessions(t.Context(), api.SessionListParams{Tag: "a", Runtime: api.RuntimeHost})
		if err != nil || len(list.Sessions) != 1 || len(list.Unreachable) != 0 {
			t.Fatalf("session.list: %+v, %v", list, err)
		}
		return list.Sessions[0]
	}
	if got := listed(); got.ExecCount != 2 || got.State != api.StateIdle || got.SessionID != s.SessionID {
		t.Errorf("listed as %+v", got)
	}
	if _, err := r.DestroySession(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
	if left := trltest.Remaining(r.added()); len(left) > 0 {
		t.Errorf("after session.destroy: %v", left)
	}
	for _, when := range []string{"after session.destroy", "after a restart"} {
		got := listed()
		if got.State != api.StateTerminated || got.Terminated.Reason != api.ReasonDestroyed || got.ExecCount != 2 || !cmp.Equal(got.Isolation, want) {
			t.Errorf("%s it is listed as %+v", when, got)
		}
		if state, reason := r.state(s.SessionID); state != api.StateTerminated || reason != api.ReasonDestroyed {
			t.Errorf("%s it is %s, %s", when, state, reason)
		}
		_, err = r.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true"}})
		if !api.IsCode(err, api.CodeSessionTerminated) {
			t.Errorf("%s a command gets %v", when, err)
		}
		if when == "after session.destroy" {
			r.restartDaemon()
		}
	}
}

// The list shows what every call and every command has changed.
func TestListIsExact(t *testing.T) {
	r := newRig(t)
	s := r.create(api.SessionCreateParams{})
	listed := func() api.Session {
		t.Helper()
		list, err := r.ListSessions(t.Context(), api.SessionListParams{})
		if err != nil || len(list.Sessions) != 1 {
			t.Fatalf("session.list: %+v, %v", list, err)
		}
		return list.Sessions[0]
	}
	for i := range 50 {
		dir := t.TempDir()
		r.run(s.SessionID, "cd "+dir)
		if got := listed(); got.ExecCount != int64(i+1) || got.Cwd != dir || got.State != api.StateIdle {
			t.Fatalf("after command %d: %+v", i+1, got)
		}
	}
	wait, open := trltest.Gate(t)
	stream, err := r.Stream(t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: wait}})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if got := listed(); got.State != api.StateRunning || got.ExecID == "" {
		t.Errorf("while a command runs: %+v", got)
	}
	open()
	for range stream.Chunks() { // until its end
	}
	if got := listed(); got.State != api.StateIdle || got.ExecCount != 51 {
		t.Errorf("after the exit chunk: %+v", got)
	}
}

// A repeated session.create with a key returns the first session, also after
// restarts and its end.
func TestKeys(t *testing.T) {
	r := newRig(t)
	p := api.SessionCreateParams{Key: "once", Isolation: weak()}
	ids := make(chan string, 4)
	for range cap(ids) {
		go func() {
			s, err := r.CreateSession(t.Context(), p)
			if err != nil {
				ids <- err.Error()
				return
			}
			ids <- s.SessionID
		}()
	}
	first := <-ids
	for range cap(ids) - 1 {
		if id := <-ids; id != first {
			t.Errorf("%s and %s", first, id)
		}
	}
	again := func(when string) {
		t.Helper()
		if s := r.create(p); s.SessionID != first {
			t.Errorf("%s: %s, want %s", when, s.SessionID, first)
		}
		other := p
		other.Name = "other"
		if _, err := r.CreateSession(t.Context(), other); !api.IsCode(err, api.CodeInvalidParams) {
			t.Errorf("%s, with other params: %v", when, err)
		}
		plain := p
		plain.Isolation = nil
		if _, err := r.CreateSession(t.Context(), plain); !api.IsCode(err, api.CodeInvalidParams) {
			t.Errorf("%s, without isolation: %v", when, err)
		}
	}
	again("at once")
	r.restartDaemon()
	again("after a restart")
	if _, err := r.DestroySession(t.Context(), api.SessionDestroyParams{SessionID: first}); err != nil {
		t.Fatal(err)
	}
	again("after its end")
	r.restartDaemon()
	again("after its end and a restart")
	r.awaitNothing()
}

// Streams go on exactly where they were when the daemon is killed or upgraded.
func TestOutlivesTheDaemon(t *testing.T) {
	r := newRig(t)
	s := r.create(api.SessionCreateParams{})
	const lines = 300
	stream, err := r.Stream(t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{
		SessionID: s.SessionID, Command: fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); sleep 0.01; done; x=kept", lines),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var got strings.Builder
	disrupted := 0
	for c, err := range stream.Chunks() {
		if err != nil {
			t.Fatalf("%v\n%s", err, r.daemon.Log())
		}
		if c.Type == api.ChunkStdout {
			got.WriteString(c.Data)
		}
		if disrupted < 3 && strings.Count(got.String(), "\n") > (disrupted+1)*50 {
			if disrupted++; disrupted == 2 {
				info, err := r.SystemInfo(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.Upgrade(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.awaitOther(info.PID)
			} else {
				r.restartDaemon()
			}
		}
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if diff := cmp.Diff(want.String(), got.String()); diff != "" || disrupted != 3 {
		t.Errorf("%d disruptions; %s", disrupted, diff)
	}
	if got := r.run(s.SessionID, "echo $x"); got != "kept\n" {
		t.Errorf("after all: %q", got)
	}
	list, err := r.ListSessions(t.Context(), api.SessionListParams{})
	if err != nil || len(list.Sessions) != 1 || list.Sessions[0].ExecCount != 2 || list.Sessions[0].Isolation == nil {
		t.Errorf("session.list: %+v, %v", list, err)
	}
}

// The death of a cell's TRL ends its session, and only that.
func TestLost(t *testing.T) {
	r := newRig(t)
	other := r.create(api.SessionCreateParams{})
	kept := r.added()
	s := r.create(api.SessionCreateParams{})
	var theirs []trltest.Process
	for _, p := range r.added() {
		if !slices.ContainsFunc(kept, func(q trltest.Process) bool { return p.PID == q.PID }) {
			theirs = append(theirs, p)
		}
	}
	r.run(s.SessionID, "sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 >/dev/null 2>&1 &")
	first := slices.MinFunc(theirs, func(p, q trltest.Process) int { return p.PID - q.PID })
	if err := unix.Kill(first.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	trltest.Eventually(t, "the session is lost", func() bool {
		list, err := r.ListSessions(t.Context(), api.SessionListParams{State: api.StateTerminated})
		return err == nil && len(list.Sessions) == 1 && list.Sessions[0].SessionID == s.SessionID
	})
	if state, reason := r.state(s.SessionID); state != api.StateTerminated || reason != api.ReasonLost {
		t.Errorf("it is %s, %s", state, reason)
	}
	if left := trltest.Remaining(theirs); len(left) > 0 {
		t.Errorf("left of its cell: %v", left)
	}
	if got := r.run(other.SessionID, "echo alive"); got != "alive\n" {
		t.Errorf("another session: %q", got)
	}
}

// A session that ends by itself leaves its output, until it is forgotten.
func TestEndsByItself(t *testing.T) {
	r := newRig(t, "--session-retention-ms", "3s")
	var s *api.Session
	trltest.Undisturbed(t, func() error { // a restart may take longer than its retention
		s = r.create(api.SessionCreateParams{Argv: []string{"sh", "-c", "echo direct"}})
		trltest.Eventually(t, "it has ended", func() bool {
			list, err := r.ListSessions(t.Context(), api.SessionListParams{State: api.StateTerminated})
			return err == nil && slices.ContainsFunc(list.Sessions, func(ended api.Session) bool { return ended.SessionID == s.SessionID })
		})
		r.restartDaemon()
		out, err := r.Output(t.Context(), api.ExecOutputParams{ExecID: s.ExecID})
		if err == nil && (len(out.Chunks) != 1 || out.Chunks[0].Data != "direct\n") {
			t.Errorf("its output: %+v", out)
		}
		return err
	})
	r.awaitNothing()
	trltest.Eventually(t, "it is forgotten after its retention", func() bool {
		_, err := r.SessionInfo(t.Context(), api.SessionParams{SessionID: s.SessionID})
		return api.IsCode(err, api.CodeSessionNotFound)
	})
}

// A session that ends with its client does so, and not with the daemon.
func TestWhileConnected(t *testing.T) {
	r := newRig(t)
	owner := r.dial()
	create := func(reconnectMS int64) string {
		t.Helper()
		s, err := owner.CreateSession(t.Context(), api.SessionCreateParams{Isolation: weak(), WhileConnected: true, ReconnectMS: reconnectMS})
		if err != nil {
			t.Fatal(err)
		}
		return s.SessionID
	}
	stays := create(0) // long enough for its client to return after a restart
	r.restartDaemon()
	if _, err := owner.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: stays, Command: "true"}}); err != nil {
		t.Fatal(err)
	}
	ends := create(300)
	if state, _ := r.state(ends); state != api.StateIdle {
		t.Errorf("it is %s while its client is connected", state)
	}
	owner.Close()
	trltest.Eventually(t, "it has ended", func() bool {
		list, err := r.ListSessions(t.Context(), api.SessionListParams{State: api.StateTerminated})
		return err == nil && slices.ContainsFunc(list.Sessions, func(s api.Session) bool {
			return s.SessionID == ends && s.Terminated.Reason == api.ReasonDisconnected
		})
	})
}

// Errors come before anything is started, or leave nothing behind.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	plain, err := r.CreateSession(t.Context(), api.SessionCreateParams{})
	if err != nil {
		t.Fatal(err)
	}
	confined := r.create(api.SessionCreateParams{})
	before := len(r.added())
	for name, tc := range map[string]struct {
		params api.SessionCreateParams
		code   api.Code
		detail string
	}{
		"a shell that does not exist": {api.SessionCreateParams{Shell: "no-such-shell", Isolation: weak()}, api.CodeShellNotFound, "shell"},
		"a directory that does not":   {api.SessionCreateParams{Cwd: "/no/such", Isolation: weak()}, api.CodeInvalidParams, "field"},
		"a relative path":             {api.SessionCreateParams{Isolation: &api.Isolation{Filesystem: &api.Filesystem{Write: []string{"x"}}}}, api.CodeInvalidParams, "field"},
		"a path that does not exist":  {api.SessionCreateParams{Isolation: &api.Isolation{Filesystem: &api.Filesystem{Deny: []string{"/no/such"}}}}, api.CodeInvalidParams, "field"},
		"a user that does not exist":  {api.SessionCreateParams{Isolation: &api.Isolation{User: "no-such-user"}}, api.CodeInvalidParams, "field"},
		"a parent":                    {api.SessionCreateParams{Parent: plain.SessionID, Isolation: weak()}, api.CodeInvalidParams, "field"},
		"a confined parent":           {api.SessionCreateParams{Parent: confined.SessionID}, api.CodeInvalidParams, "field"},
	} {
		_, err := r.CreateSession(t.Context(), tc.params)
		if !api.IsCode(err, tc.code) || api.AsError(err).Details[tc.detail] == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	trltest.Eventually(t, "nothing is left", func() bool { return len(r.added()) == before })
	list, err := r.ListSessions(t.Context(), api.SessionListParams{})
	if err != nil || len(list.Sessions) != 2 {
		t.Errorf("session.list: %+v, %v", list, err)
	}
}

// A process in a cell can't use the daemon, which could start others without
// confinement.
func TestPeersInCells(t *testing.T) {
	r := newRig(t)
	binary, err := trltest.Binary()
	trltest.Need(t, err)
	s := r.create(api.SessionCreateParams{})
	ask := binary + " session list --socket " + r.daemon.Socket + " 2>&1"
	plain, err := r.CreateSession(t.Context(), api.SessionCreateParams{})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.run(plain.SessionID, ask); !strings.Contains(got, s.SessionID) {
		t.Errorf("in another session: %q", got)
	}
	for _, command := range []string{ask, "setsid " + ask, "(prlimit --locks=0:0 " + ask + ")", "(ulimit -x 0; " + ask + ")"} {
		if got := r.run(s.SessionID, command); strings.Contains(got, s.SessionID) {
			t.Errorf("%s: %q", command, got)
		}
	}
	if !strings.Contains(r.daemon.Log(), "confined session") {
		t.Errorf("the log does not say why: %s", r.daemon.Log())
	}
}

// Watchers see each event of a confined session once.
func TestWatch(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), trltest.Patience)
	defer cancel()
	watch, err := r.dial().Watch(ctx, api.SessionWatchParams{Execs: true, Snapshot: true})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	s := r.create(api.SessionCreateParams{Name: "w"})
	r.run(s.SessionID, "true")
	if _, err := r.DestroySession(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for e, err := range watch.All() {
		if err != nil {
			t.Fatalf("%v after %v", err, got)
		}
		if e.Type == api.EventSnapshotEnd {
			continue
		}
		if e.SessionID != s.SessionID || e.Name != "w" {
			t.Errorf("an event of another session: %+v", e)
		}
		got = append(got, strings.TrimSpace(string(e.Type)+" "+string(e.State)))
		if e.Type == api.EventDestroyed {
			break
		}
	}
	want := []string{"created idle", "state running", "exec_started", "exec_ended", "state idle", "destroyed terminated"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Cells do not outlive their daemon and its holder, nor one on stdio its client.
func TestNothingIsLeft(t *testing.T) {
	r := newRig(t)
	for range 3 {
		s := r.create(api.SessionCreateParams{})
		r.run(s.SessionID, "setsid sleep 1000 >/dev/null 2>&1 &")
	}
	info, err := r.SystemInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	theirs := r.added()
	if err := unix.Kill(r.daemon.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(info.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	trltest.Eventually(t, "the cleaner has killed all", func() bool { return len(trltest.Remaining(theirs)) == 0 })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}
