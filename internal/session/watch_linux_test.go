package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// startWatch begins a watch. Its events are received from the channel until the
// test has ended or the watch ends by itself.
func startWatch(t *testing.T, p *Pool, params api.SessionWatchParams) <-chan *api.SessionEvent {
	t.Helper()
	_, feed, err := p.Watch(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan *api.SessionEvent)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(events)
		_ = feed(ctx, func(n notify.Notification) error { // the test ends it
			select {
			case events <- n.(*api.SessionEvent):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return events
}

// next returns the next event of a watch.
func next(t *testing.T, events <-chan *api.SessionEvent) *api.SessionEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), trltest.Patience)
	defer cancel()
	select {
	case e, ok := <-events:
		if !ok {
			t.Fatal("the watch has ended")
		}
		return e
	case <-ctx.Done():
		t.Fatal("no event")
	}
	return nil
}

// untilType returns the events up to the first of a type.
func untilType(t *testing.T, events <-chan *api.SessionEvent, typ api.SessionEventType) (all []*api.SessionEvent) {
	t.Helper()
	for {
		e := next(t, events)
		all = append(all, e)
		if e.Type == typ {
			return all
		}
	}
}

// texts describes events in a word or a few.
func texts(events []*api.SessionEvent) (all []string) {
	for _, e := range events {
		text := fmt.Sprintf("%s %s %s %s", e.Type, e.State, e.ExecLabel, e.Outcome)
		if e.ExitCode != nil {
			text += fmt.Sprint(" ", *e.ExitCode)
		}
		if e.Waiting != nil {
			text += " " + string(e.Waiting.For)
		}
		all = append(all, strings.Join(strings.Fields(text), " "))
	}
	return all
}

func TestWatchSnapshot(t *testing.T) {
	p := newPool(t, Config{})
	idle := create(t, p, api.SessionCreateParams{Name: "n", Tags: []string{"t"}, TTY: &api.TTYSize{Rows: 24, Cols: 80}})
	if _, err := p.Hold(t.Context(), api.SessionHoldParams{SessionID: idle.SessionID, Holder: "alice"}); err != nil {
		t.Fatal(err)
	}
	ended := create(t, p, api.SessionCreateParams{})
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: ended.SessionID}); err != nil {
		t.Fatal(err)
	}
	direct := create(t, p, api.SessionCreateParams{Argv: []string{"sleep", "100"}})
	events := startWatch(t, p, api.SessionWatchParams{Snapshot: true})
	first, second, end := next(t, events), next(t, events), next(t, events)
	wantFirst := &api.SessionEvent{
		StreamID: first.StreamID, Type: api.EventSnapshot, SessionID: idle.SessionID, Name: "n", Tags: []string{"t"}, Owner: "tester",
		State: api.StateIdle, TTY: &api.TTYSize{Rows: 24, Cols: 80}, Holder: "alice", At: first.At,
	}
	if diff := cmp.Diff(wantFirst, first); diff != "" {
		t.Error(diff)
	}
	wantSecond := &api.SessionEvent{
		StreamID: first.StreamID, Type: api.EventSnapshot, SessionID: direct.SessionID, Owner: "tester",
		State: api.StateRunning, ExecID: direct.ExecID, ExecLabel: direct.ExecLabel, At: second.At,
	}
	if diff := cmp.Diff(wantSecond, second); diff != "" {
		t.Error(diff)
	}
	if end.Type != api.EventSnapshotEnd || end.SessionID != "" || end.StreamID != first.StreamID || end.At.IsZero() {
		t.Errorf("%+v, want the end of the snapshot", end)
	}
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: direct.SessionID}); err != nil {
		t.Fatal(err)
	}
	if e := next(t, events); e.Type != api.EventDestroyed || e.SessionID != direct.SessionID {
		t.Errorf("%+v, want the end of the direct session: events of commands were not requested", e)
	}

	one := startWatch(t, p, api.SessionWatchParams{SessionID: idle.SessionID, Snapshot: true})
	if diff := cmp.Diff([]string{"snapshot idle", "snapshot_end"}, texts(untilType(t, one, api.EventSnapshotEnd))); diff != "" {
		t.Error(diff)
	}
}

// TestWatchSnapshotOfEnded: the snapshot of one session is taken before the answer, so
// that what happens before it is sent follows. That of all sessions lacks a session that
// has ended by then.
func TestWatchSnapshotOfEnded(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	params := api.SessionWatchParams{SessionID: s.SessionID, Snapshot: true, Execs: true}
	_, one, err := p.Watch(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	params.SessionID = ""
	_, all, err := p.Watch(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	sh(t, p, s, "true")
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
	other := create(t, p, api.SessionCreateParams{})
	want := []string{
		"snapshot idle", "snapshot_end", "state running", "exec_started", "exec_ended", "state idle", "destroyed terminated destroyed",
	}
	if diff := cmp.Diff(want, watched(t, one)); diff != "" {
		t.Error(diff)
	}
	var got []string
	if err := all(t.Context(), func(n notify.Notification) error {
		e := n.(*api.SessionEvent)
		got = append(got, string(e.Type)+" "+e.SessionID)
		if e.Type == api.EventCreated {
			return errEnough
		}
		return nil
	}); !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"snapshot_end ", "created " + other.SessionID}, got); diff != "" {
		t.Error("the watch of all sessions:", diff)
	}
}

// TestWatchSnapshotIsExact: whatever happens while a snapshot is taken, each
// watcher sees every session appear once, each command begin once and end once, and
// each session end once.
func TestWatchSnapshotIsExact(t *testing.T) {
	p := newPool(t, Config{})
	const workers, rounds, watchers = 4, 8, 12
	var work, watching sync.WaitGroup
	for range workers {
		work.Go(func() {
			for range rounds {
				s, err := p.Create(t.Context(), api.SessionCreateParams{}, "tester")
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					if _, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true"}}); err != nil {
						t.Error(err)
					}
				}
				if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	last := make(chan struct{}) // closed when the last session has ended
	for range watchers {
		_, feed, err := p.Watch(t.Context(), api.SessionWatchParams{Snapshot: true, Execs: true})
		if err != nil {
			t.Fatal(err)
		}
		watching.Go(func() {
			m := newMirror()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				select {
				case <-last:
				case <-ctx.Done():
				}
				cancel()
			}()
			_ = feed(ctx, func(n notify.Notification) error { return m.apply(n.(*api.SessionEvent)) }) // the test ends it
			for _, problem := range m.problems {
				t.Error(problem)
			}
		})
		sh(t, p, create(t, p, api.SessionCreateParams{}), "true") // so that watchers begin at different times
	}
	work.Wait()
	close(last)
	watching.Wait()
}

// mirror is what a watcher knows of the sessions, and what did not fit.
type mirror struct {
	running  map[string]string // by session, its exec; "" while idle
	begun    map[string]bool   // execs that began
	problems []string
}

func newMirror() *mirror { return &mirror{running: map[string]string{}, begun: map[string]bool{}} }

func (m *mirror) apply(e *api.SessionEvent) error {
	exec, known := m.running[e.SessionID]
	switch e.Type {
	case api.EventSnapshot, api.EventCreated:
		m.expect(!known, e)
		m.running[e.SessionID] = ""
	case api.EventExecStarted:
		m.expect(known && exec == "" && !m.begun[e.ExecID], e)
		m.running[e.SessionID], m.begun[e.ExecID] = e.ExecID, true
	case api.EventExecEnded:
		m.expect(known && exec == e.ExecID, e)
		m.running[e.SessionID] = ""
	case api.EventDestroyed:
		m.expect(known && exec == "", e)
		delete(m.running, e.SessionID)
	case api.EventState:
		m.expect(known && exec == "", e) // before a command begins, and after it ends
	case api.EventSnapshotEnd:
	default:
		m.expect(false, e)
	}
	return nil
}

func (m *mirror) expect(ok bool, e *api.SessionEvent) {
	if !ok {
		m.problems = append(m.problems, fmt.Sprintf("%s %s of %s %s does not fit %q", e.Type, e.State, e.SessionID, e.ExecID, m.running[e.SessionID]))
	}
}

func TestWatchExecs(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	plain := startWatch(t, p, api.SessionWatchParams{SessionID: s.SessionID})
	events := startWatch(t, p, api.SessionWatchParams{SessionID: s.SessionID, Execs: true})
	sh(t, p, s, "(exit 3)")
	first := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "read x", StdinOpen: true}, YieldMS: 1})
	if _, _, err := p.Stream(t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 100", Wait: true}}); err != nil {
		t.Fatal(err)
	}

	late := startWatch(t, p, api.SessionWatchParams{Execs: true, Snapshot: true})
	snapshot := untilType(t, late, api.EventSnapshotEnd)
	if diff := cmp.Diff([]string{"snapshot running read …", "exec_started read …", "snapshot_end"}, texts(snapshot)); diff != "" {
		t.Error(diff)
	}
	if started := snapshot[1]; started.ExecID != first.ExecID || !started.At.Equal(first.StartedAt.Time) || started.SessionID != s.SessionID {
		t.Errorf("%+v, want the start of %s at %v", started, first.ExecID, first.StartedAt)
	}

	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: first.ExecID, EOF: true}); err != nil {
		t.Fatal(err)
	}
	after := untilType(t, late, api.EventExecStarted)
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
	after = append(after, untilType(t, late, api.EventDestroyed)...)
	rest := []string{
		"exec_ended read … exited 1", "state running sleep 100", "exec_started sleep 100",
		"exec_ended sleep 100 cancelled 143", "destroyed terminated",
	}
	want := append([]string{
		"state running", "exec_started", "exec_ended exited 3", "state idle",
		"state running read …", "exec_started read …",
	}, rest...)
	if diff := cmp.Diff(want, texts(untilType(t, events, api.EventDestroyed))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(rest, texts(after)); diff != "" {
		t.Error(diff)
	}
	sessions := slices.DeleteFunc(want, func(text string) bool { return strings.HasPrefix(text, "exec_") })
	if diff := cmp.Diff(sessions, texts(untilType(t, plain, api.EventDestroyed))); diff != "" {
		t.Error("events of commands were not requested:", diff)
	}
}

func TestWatchExecOfDirectSession(t *testing.T) {
	p := newPool(t, Config{})
	events := startWatch(t, p, api.SessionWatchParams{Execs: true})
	create(t, p, api.SessionCreateParams{Argv: []string{"true"}})
	want := []string{"created running true", "exec_started true", "exec_ended true exited 0", "destroyed terminated"}
	if diff := cmp.Diff(want, texts(untilType(t, events, api.EventDestroyed))); diff != "" {
		t.Error(diff)
	}
}

// TestWatchWaiting: watchers of commands know when one on a terminal waits for
// input, when it asks again, and when it goes on.
func TestWatchWaiting(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Shell: "bash", TTY: &api.TTYSize{Rows: 24, Cols: 80}})
	other := create(t, p, api.SessionCreateParams{TTY: &api.TTYSize{Rows: 24, Cols: 80}})
	started, _, err := p.Stream(t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: other.SessionID, Command: "sleep 100"}})
	if err != nil {
		t.Fatal(err)
	}
	events := startWatch(t, p, api.SessionWatchParams{SessionID: s.SessionID, Execs: true})
	e, _, err := p.Stream(t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{
		SessionID: s.SessionID, Label: "asks", Command: "read -p 'first? ' x; read -s -p 'second? ' y; sleep 100",
	}})
	if err != nil {
		t.Fatal(err)
	}
	asked := untilType(t, events, api.EventWaiting)
	if diff := cmp.Diff([]string{"state running asks", "exec_started asks", "waiting asks input"}, texts(asked)); diff != "" {
		t.Error(diff)
	}
	if w := asked[2]; w.ExecID != e.ExecID || w.SessionID != s.SessionID || w.Waiting.PID == 0 || w.Waiting.Process == "" || w.Waiting.Since.IsZero() {
		t.Errorf("%+v %+v", w, w.Waiting)
	}

	late := startWatch(t, p, api.SessionWatchParams{Execs: true, Snapshot: true})
	snapshot := untilType(t, late, api.EventSnapshotEnd)
	want := []string{
		"snapshot running asks", "exec_started asks", "waiting asks input",
		"snapshot running sleep 100", "exec_started sleep 100", "snapshot_end",
	}
	if diff := cmp.Diff(want, texts(snapshot)); diff != "" {
		t.Error(diff)
	}

	answer := func() {
		t.Helper()
		if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: e.ExecID, Data: "x\n"}); err != nil {
			t.Fatal(err)
		}
	}
	answer()
	if got := untilType(t, events, api.EventWaiting); got[len(got)-1].Waiting.For != api.WaitingPassword {
		t.Error(texts(got))
	}
	if got := untilType(t, late, api.EventWaiting); got[len(got)-1].Waiting.For != api.WaitingPassword {
		t.Error(texts(got))
	}
	answer()
	if got := untilType(t, events, api.EventWaitingEnded); got[len(got)-1].ExecID != e.ExecID {
		t.Error(texts(got))
	}
	for _, id := range []string{e.ExecID, started.ExecID} {
		if _, err := p.Cancel(t.Context(), api.ExecCancelParams{ExecID: id}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWatchWaitingAtFirst: the snapshot has a command that waits already, although no
// one watched before; and what was known is not used after the last watcher has left.
func TestWatchWaitingAtFirst(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Shell: "bash", TTY: &api.TTYSize{Rows: 24, Cols: 80}})
	e := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "read -p '? ' x; sleep 100"}, YieldOnInput: true})
	snapshot := func(session string) []string {
		t.Helper()
		_, feed, err := p.Watch(t.Context(), api.SessionWatchParams{SessionID: session, Execs: true, Snapshot: true})
		if err != nil {
			t.Fatal(err)
		}
		var events []*api.SessionEvent
		if err := feed(t.Context(), func(n notify.Notification) error {
			e := n.(*api.SessionEvent)
			events = append(events, e)
			if e.Type == api.EventSnapshotEnd {
				return errEnough
			}
			return nil
		}); !errors.Is(err, errEnough) {
			t.Fatal(err)
		}
		return texts(events)
	}
	want := []string{"snapshot running read …", "exec_started read …", "waiting read … input", "snapshot_end"}
	for _, session := range []string{"", s.SessionID} {
		if diff := cmp.Diff(want, snapshot(session)); diff != "" {
			t.Errorf("session %q: %s", session, diff)
		}
	}
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: e.ExecID, Data: "x\n"}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		info, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
		return err == nil && info.Waiting == nil
	})
	want = slices.Delete(want, 2, 3)
	for _, session := range []string{"", s.SessionID} {
		if diff := cmp.Diff(want, snapshot(session)); diff != "" {
			t.Errorf("session %q: %s", session, diff)
		}
	}
	if _, err := p.Cancel(t.Context(), api.ExecCancelParams{ExecID: e.ExecID}); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkSnapshot measures the snapshot of 10,000 sessions.
func BenchmarkSnapshot(b *testing.B) {
	p := newPool(b, Config{})
	for i := range 10_000 {
		s := &Session{shared: p.shared, id: fmt.Sprint("s-", i), state: api.StateIdle}
		p.order = append(p.order, s)
	}
	b.Cleanup(func() { p.order = nil }) // they have no processes to end
	for b.Loop() {
		_, feed, err := p.Watch(b.Context(), api.SessionWatchParams{Snapshot: true, Execs: true})
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		err = feed(b.Context(), func(e notify.Notification) error {
			if n++; e.(*api.SessionEvent).Type == api.EventSnapshotEnd {
				return errEnough
			}
			return nil
		})
		if !errors.Is(err, errEnough) || n != 10_001 {
			b.Fatal(n, err)
		}
	}
}
