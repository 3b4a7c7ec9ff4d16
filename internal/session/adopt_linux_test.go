package session

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/state"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// endedSessions returns a ledger with ended sessions, each with one exec.
func endedSessions(t testing.TB, sessions int) *ledger.Ledger {
	t.Helper()
	l, err := ledger.New(holder.NewLocalKeeper())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	store := journal.NewStore(journal.Config{})
	defer store.Close()
	env := exec.NewEnv(exec.Config{
		Keeper: holder.NewLocalKeeper(), Journals: store, Ledger: &ledgerWriter{ledger: l, log: slog.New(slog.DiscardHandler)},
	})
	defer env.Close()
	for i := range sessions {
		id := fmt.Sprintf("s-%010d", i)
		s := sessionState{
			number: int64(i + 1), created: time.Now(), tree: uint32(i + 1), program: shell.Program{Path: "/bin/dash", Family: shell.Dash, Argv0: "dash"},
			terminated: &api.Terminated{At: api.Time{Time: time.Now()}, Reason: api.ReasonDestroyed},
		}
		if err := l.Put(endedPrefix+id, s.encode()); err != nil {
			t.Fatal(err)
		}
		e := exec.New(env, exec.Spec{ID: fmt.Sprintf("e-%010d", i), SessionID: id})
		e.SetNumber(1, markOf(1))
		e.Begin(time.Now())
		e.Journal().Append(journal.Stdout, []byte("out\n"))
		e.FinishInShell(shell.Result{}, nil, "/", nil, nil)
		e.CloseJournal()
		e.ReleaseOutput()
	}
	return l
}

// BenchmarkAdoptHistory measures a restart with a thousand ended sessions, until
// requests are served.
func BenchmarkAdoptHistory(b *testing.B) {
	l := endedSessions(b, 1000)
	host, err := process.NewHost(process.Config{})
	if err != nil {
		b.Fatal(err)
	}
	driver, err := shell.OpenDriver(shell.DriverConfig{})
	if err != nil {
		b.Fatal(err)
	}
	store := journal.NewStore(journal.Config{Dir: b.TempDir()})
	for b.Loop() {
		p := NewPool(Config{Ledger: l}, host, driver, store)
		p.Adopt(nil)(func() {})
		b.StopTimer()
		if err := p.Shutdown(b.Context()); err != nil {
			b.Fatal(err)
		}
		p.Close()
		b.StartTimer()
	}
	store.Close()
	if err := driver.Close(); err != nil {
		b.Error(err)
	}
	if err := host.Close(); err != nil {
		b.Error(err)
	}
}

// TestHistory: sessions that ended before a restart are there again, in order, for
// a client that asks at once; and one whose end was being persisted is not revived.
func TestHistory(t *testing.T) {
	l := endedSessions(t, 50)
	half := sessionState{number: 7, tree: 7} // its end was persisted, but its live records were not erased yet
	for key, value := range map[string][]byte{
		sessionPrefix + "s-0000000006": half.encode(), shellPrefix + "s-0000000006": nil, treePrefix + "s-0000000006": nil,
		exec.StatePrefix + "e-forgotten00": encodeText(1, "s-forgotten00"), // its session is gone
		screenPrefix + "s-forgotten00":     (&terminal.Snapshot{}).Encode(),
	} {
		if err := l.Put(key, value); err != nil {
			t.Fatal(err)
		}
	}
	p := newPool(t, Config{Ledger: l})
	p.Adopt(nil)(func() {})
	e, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: "e-0000000049"})
	if err != nil || e.SessionID != "s-0000000049" || *e.ExitCode != 0 {
		t.Errorf("ExecInfo = %+v, %v; want exit code 0 in s-0000000049", e, err)
	}
	list, err := p.List(t.Context(), api.SessionListParams{})
	if err != nil || len(list.Sessions) != 50 {
		t.Fatalf("List returned %d sessions, %v; want 50", len(list.Sessions), err)
	}
	for i, s := range list.Sessions {
		if want := fmt.Sprintf("s-%010d", i); s.SessionID != want || s.State != api.StateTerminated {
			t.Errorf("session %d is %s, %s; want %s, %s", i, s.SessionID, s.State, want, api.StateTerminated)
		}
	}
	for key := range l.All("") {
		if strings.HasPrefix(key, sessionPrefix) || strings.HasPrefix(key, shellPrefix) || strings.Contains(key, "forgotten") {
			t.Errorf("the ledger still has %s", key)
		}
	}
	s := create(t, p, api.SessionCreateParams{})
	if list, err = p.List(t.Context(), api.SessionListParams{}); err != nil || list.Sessions[50].SessionID != s.SessionID {
		t.Errorf("the new session is not the last, %v", err)
	}
}

func encodeText(tag uint64, text string) []byte {
	return state.Encode(func(c *state.Coder) { state.Text(c, tag, &text) })
}

// Tags of the slots of stdout and of the journal in the state of an exec.
const stdoutTag, segmentTag = 19, 21

// execWith returns the state of an exec that has one slot.
func execWith(t *testing.T, tag uint64, slot holder.Slot) *exec.State {
	t.Helper()
	st, err := exec.DecodeState(state.Encode(func(c *state.Coder) { state.Int(c, tag, &slot) }))
	if err != nil || !slices.Contains(st.Slots(), slot) {
		t.Fatalf("DecodeState = slots %v, %v; want slot %v", st.Slots(), err, slot)
	}
	return st
}

// TestSharedSlot: a slot that two sessions name, as a ledger with a stale page
// does, is used by neither; other sessions go on.
func TestSharedSlot(t *testing.T) {
	const (
		ofTwoSessions = holder.Slot(1<<24 | 1001)
		ofOneSession  = holder.Slot(1<<24 | 1002)
		ofTwoExecs    = holder.Slot(1003)
		ofTheDriver   = holder.Slot(1004)
	)
	onTerminal := func(id string, slots terminal.Slots) *foundSession {
		return &foundSession{id: id, state: &sessionState{terminal: &slots}}
	}
	withExecs := func(id string, execs ...foundExec) *foundSession {
		return &foundSession{id: id, state: &sessionState{}, execs: execs}
	}
	tests := []struct {
		found *foundSession
		want  error
	}{
		{onTerminal("s-1", terminal.Slots{Master: ofTwoSessions}), holder.ErrShared},
		{withExecs("s-2", foundExec{"e-2", execWith(t, stdoutTag, ofTwoSessions)}), holder.ErrShared},
		{withExecs("s-3", foundExec{"e-3", execWith(t, segmentTag, ofOneSession)}), nil},
		{withExecs("s-4", foundExec{"e-4", execWith(t, stdoutTag, ofTwoExecs)}, foundExec{"e-5", execWith(t, stdoutTag, ofTwoExecs)}), holder.ErrShared},
		{onTerminal("s-5", terminal.Slots{Slave: ofTheDriver}), holder.ErrShared},
	}
	var live []*foundSession
	for _, tc := range tests {
		live = append(live, tc.found)
	}
	kept := []holder.Slot{ofTwoSessions, ofOneSession, ofTwoExecs, ofTheDriver}
	p := newPool(t, Config{})
	p.auditSlots(live, kept, []holder.Claim{{Owner: "driver", Slots: []holder.Slot{ofTheDriver}}})
	for _, tc := range tests {
		if !errors.Is(tc.found.bad, tc.want) {
			t.Errorf("%s: error %v, want %v", tc.found.id, tc.found.bad, tc.want)
		}
	}
}

// TestOtherNode: sessions keep their ids when the name of the node changes, and new
// ids have the new name.
func TestOtherNode(t *testing.T) {
	l := endedSessions(t, 1) // made without a name
	form := func(kind, id, node string) {
		t.Helper()
		if pattern := `^` + kind + `-` + node + `[0-9a-v]{10}$`; !regexp.MustCompile(pattern).MatchString(id) {
			t.Errorf("id %q is not of the form %s", id, pattern)
		}
	}
	var sessions, execs []string
	for _, node := range []string{"eu1-n7", "abcdefgh-01234567-abcdefgh-01234567", ""} {
		p := newPool(t, Config{Node: node, Ledger: l})
		p.Adopt(nil)(func() {})
		known := append([]string{"s-0000000000"}, sessions...)
		list, err := p.List(t.Context(), api.SessionListParams{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range list.Sessions {
			got = append(got, s.SessionID)
		}
		if diff := cmp.Diff(known, got); diff != "" {
			t.Errorf("node %q: %s", node, diff)
		}
		for _, id := range append([]string{"e-0000000000"}, execs...) {
			if _, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: id}); err != nil {
				t.Errorf("node %q: %s: %v", node, id, err)
			}
		}
		if node != "" {
			node += "-"
		}
		for _, params := range []api.SessionCreateParams{{}, {Argv: []string{"cat"}}} {
			s := create(t, p, params)
			form("s", s.SessionID, node)
			sessions = append(sessions, s.SessionID)
			if params.Argv == nil {
				sh(t, p, s, "true")
			}
			list, err := p.ExecList(t.Context(), api.SessionParams{SessionID: s.SessionID})
			if err != nil || len(list.Execs) != 1 {
				t.Fatalf("%+v, %v", list, err)
			}
			form("e", list.Execs[0].ExecID, node)
			execs = append(execs, list.Execs[0].ExecID)
			stream, _, err := p.Watch(t.Context(), api.SessionWatchParams{SessionID: s.SessionID})
			if err != nil {
				t.Fatal(err)
			}
			form("st", stream.StreamID, "")
			if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID, Force: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
