package session

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/state"
)

// endedSessions is a ledger with sessions that have ended, each with one exec.
func endedSessions(t testing.TB, sessions int) *ledger.Ledger {
	t.Helper()
	l, err := ledger.New(holder.NewLocalKeeper())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	store := journal.NewStore(journal.Config{})
	t.Cleanup(store.Close)
	output := store.New()
	output.Begin(time.Now())
	output.Append(journal.Stdout, []byte("out\n"))
	output.Close()
	value, code := output.Value(), 0
	output.Release()
	for i := range sessions {
		id := fmt.Sprintf("s-%010d", i)
		s := sessionState{
			number: int64(i + 1), created: time.Now(), tree: uint32(i + 1), program: shell.Program{Path: "/bin/dash", Family: shell.Dash, Argv0: "dash"},
			terminated: &api.Terminated{At: api.Time{Time: time.Now()}, Reason: api.ReasonDestroyed},
		}
		e := execState{
			session: id, number: 1, state: api.ExecExited, began: time.Now(), ended: time.Now(), journal: value,
			result: api.ExecResult{Outcome: api.OutcomeExited, ExitCode: &code, Cwd: "/"},
		}
		for key, value := range map[string][]byte{endedPrefix + id: s.encode(), execPrefix + fmt.Sprintf("e-%010d", i): state.Encode(e.fields)} {
			if err := l.Put(key, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// BenchmarkAdoptHistory is what a restart costs with a thousand sessions that
// have ended, before anything is served.
func BenchmarkAdoptHistory(b *testing.B) {
	l := endedSessions(b, 1000)
	host, err := process.NewHost(process.Config{})
	if err != nil {
		b.Fatal(err)
	}
	hub, err := shell.OpenDriver(shell.DriverConfig{})
	if err != nil {
		b.Fatal(err)
	}
	store := journal.NewStore(journal.Config{Dir: b.TempDir()})
	for b.Loop() {
		p := NewPool(Config{Ledger: l}, host, hub, store)
		p.Adopt(nil)(func() {})
		b.StopTimer()
		if err := p.Shutdown(b.Context()); err != nil {
			b.Fatal(err)
		}
		p.Close()
		b.StartTimer()
	}
	store.Close()
	if err := hub.Close(); err != nil {
		b.Error(err)
	}
	if err := host.Close(); err != nil {
		b.Error(err)
	}
}

// TestHistory: sessions that ended before a restart are there again, in their
// order, for whoever asks at once; and one whose end was being noted is not
// brought back to life.
func TestHistory(t *testing.T) {
	l := endedSessions(t, 50)
	half := sessionState{number: 7, tree: 7} // it had ended, and what says so was written
	for key, value := range map[string][]byte{
		sessionPrefix + "s-0000000006": half.encode(), shellPrefix + "s-0000000006": nil, treePrefix + "s-0000000006": nil,
		execPrefix + "e-forgotten00":   state.Encode((&execState{session: "s-forgotten00"}).fields), // its session is gone
		screenPrefix + "s-forgotten00": state.Encode((&screenSnapshot{}).fields),
	} {
		if err := l.Put(key, value); err != nil {
			t.Fatal(err)
		}
	}
	p := newPool(t, Config{Ledger: l})
	p.Adopt(nil)(func() {})
	e, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: "e-0000000049"})
	if err != nil || e.SessionID != "s-0000000049" || *e.ExitCode != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	list, err := p.List(t.Context(), api.SessionListParams{})
	if err != nil || len(list.Sessions) != 50 {
		t.Fatalf("%d sessions, %v", len(list.Sessions), err)
	}
	for i, s := range list.Sessions {
		if want := fmt.Sprintf("s-%010d", i); s.SessionID != want || s.State != api.StateTerminated {
			t.Errorf("session %d is %s, %s", i, s.SessionID, s.State)
		}
	}
	for key := range l.All() {
		if strings.HasPrefix(key, sessionPrefix) || strings.HasPrefix(key, shellPrefix) || strings.Contains(key, "forgotten") {
			t.Errorf("the ledger still has %s", key)
		}
	}
	s := create(t, p, api.SessionCreateParams{})
	if list, err = p.List(t.Context(), api.SessionListParams{}); err != nil || list.Sessions[50].SessionID != s.SessionID {
		t.Errorf("the new session is not the last, %v", err)
	}
}

// TestSharedSlot: a slot that two sessions name, as a ledger with a stale page
// says, is used by neither; who does not name it goes on.
func TestSharedSlot(t *testing.T) {
	const shared, lane = holder.Slot(1<<24 | 1001), holder.Slot(1<<24 | 1002)
	live := []*foundSession{
		{id: "s-1", state: &sessionState{terminal: &terminalSlots{Master: shared}}},
		{id: "s-2", state: &sessionState{}, execs: []foundExec{{"e-2", &execState{output: [2]holder.Slot{shared}}}}},
		{id: "s-3", state: &sessionState{}, execs: []foundExec{{"e-3", &execState{lane: journal.LiveSegment{Slot: lane}}}}},
		{id: "s-4", state: &sessionState{}, execs: []foundExec{{"e-4", &execState{output: [2]holder.Slot{1003}}}, {"e-5", &execState{output: [2]holder.Slot{1003}}}}},
		{id: "s-5", state: &sessionState{terminal: &terminalSlots{Slave: 1004}}},
	}
	p := newPool(t, Config{})
	p.auditSlots(live, []holder.Slot{shared, lane, 1003, 1004}, []holder.Claim{{Owner: "driver", Slots: []holder.Slot{1004}}})
	for _, f := range live {
		if bad := errors.Is(f.bad, holder.ErrShared); bad != (f.id != "s-3") {
			t.Errorf("%s: %v", f.id, f.bad)
		}
	}
}
