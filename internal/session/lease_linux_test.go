package session

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// mustHold takes the keyboard lease of a session.
func mustHold(t *testing.T, p *Pool, params api.SessionHoldParams) *api.SessionHoldResult {
	t.Helper()
	r, err := p.Hold(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// heldBy fails the test unless err names holder as the one who has the session.
func heldBy(t *testing.T, what string, err error, holder string) {
	t.Helper()
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Code != api.CodeSessionHeld || e.Details["holder"] != holder {
		t.Errorf("%s: %v, want it held by %s", what, err, holder)
	}
}

func TestHold(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Shell: "bash", TTY: &api.TTYSize{Rows: 24, Cols: 80}})
	_, events, err := p.Watch(t.Context(), api.SessionWatchParams{SessionID: s.SessionID})
	if err != nil {
		t.Fatal(err)
	}
	agents, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "cat; stty size"}, YieldOnInput: true})
	if err != nil || agents.State != api.ExecRunning {
		t.Fatal(agents, err)
	}
	input := func(lease, data string) error {
		_, err := p.Input(t.Context(), api.ExecInputParams{ExecID: agents.ExecID, Data: data, Lease: lease})
		return err
	}
	resize := func(lease string, rows int) error {
		_, err := p.Resize(t.Context(), api.SessionResizeParams{SessionID: s.SessionID, Rows: rows, Cols: 100, Lease: lease})
		return err
	}
	run := func(lease string) error {
		_, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true", Lease: lease}})
		return err
	}

	alice := mustHold(t, p, api.SessionHoldParams{SessionID: s.SessionID, Holder: "alice"})
	heldBy(t, "typing without a lease", input("", "agent\n"), "alice")
	heldBy(t, "running without a lease", run(""), "alice")
	heldBy(t, "resizing without a lease", resize("", 30), "alice")
	_, err = p.Hold(t.Context(), api.SessionHoldParams{SessionID: s.SessionID, Holder: "bob"})
	heldBy(t, "a second hold", err, "alice")
	if err := errors.Join(input(alice.Lease, "alice\n"), resize(alice.Lease, 30), resize(alice.Lease, 31)); err != nil {
		t.Error("the holder is refused:", err)
	}
	if err := run(alice.Lease); !api.IsCode(err, api.CodeSessionBusy) {
		t.Error("the holder finds the session", err)
	}
	if info, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID}); err != nil || info.Held == nil || info.Held.Holder != "alice" || info.TypedAt != nil {
		t.Errorf("session.info says %+v, %v", info.Held, err)
	}

	bob := mustHold(t, p, api.SessionHoldParams{SessionID: s.SessionID, Holder: "bob", Force: true})
	heldBy(t, "typing after a takeover", input(alice.Lease, "late\n"), "bob")
	_, err = p.Hold(t.Context(), api.SessionHoldParams{SessionID: s.SessionID, Holder: "alice", Lease: alice.Lease})
	heldBy(t, "renewing after a takeover", err, "bob")
	_, err = p.Release(t.Context(), api.SessionReleaseParams{SessionID: s.SessionID, Lease: alice.Lease})
	heldBy(t, "releasing after a takeover", err, "bob")
	if again := mustHold(t, p, api.SessionHoldParams{SessionID: s.SessionID, Holder: "bob", Lease: bob.Lease}); again.Lease != bob.Lease || again.Hold.Since != bob.Hold.Since {
		t.Errorf("renewed to %+v, was %+v", again, bob)
	}
	for range 2 { // the second time there is nothing to release
		if _, err := p.Release(t.Context(), api.SessionReleaseParams{SessionID: s.SessionID, Lease: bob.Lease}); err != nil {
			t.Error(err)
		}
	}
	if err := input(bob.Lease, "late\n"); !api.IsCode(err, api.CodeSessionHeld) {
		t.Error("typing with a lease that has ended:", err)
	}
	if err := input("", "agent\n\x04"); err != nil {
		t.Error("typing in a free session:", err)
	}
	waitFor(t, func() bool {
		info, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: agents.ExecID})
		return err == nil && info.State == api.ExecExited
	})
	output, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: agents.ExecID})
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, c := range output.Chunks {
		out += c.Data
	}
	if strings.Contains(out, "late") || !strings.Contains(out, "alice") || !strings.Contains(out, "agent") || !strings.Contains(out, "24 80") {
		t.Errorf("the terminal shows %q; its size before the lease is not restored", out)
	}

	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
	var seen []string
	if err := events(t.Context(), func(n notify.Notification) error {
		e := n.(*api.SessionEvent)
		switch e.Type {
		case api.EventHeld:
			seen = append(seen, "held by "+e.Holder)
		case api.EventResized:
			seen = append(seen, "resized")
		case api.EventReleased:
			seen = append(seen, "released")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := "held by alice, resized, resized, held by bob, released, resized"; strings.Join(seen, ", ") != want {
		t.Errorf("watchers got %q, want %q", seen, want)
	}
}

// TestHoldCutsOff: typing that is under way when another client takes over is cut
// off before that client gets its answer.
func TestHoldCutsOff(t *testing.T) {
	p := newPool(t, Config{})
	for name, tty := range map[string]*api.TTYSize{"pipe": nil, "tty": {Rows: 24, Cols: 80}} {
		t.Run(name, func(t *testing.T) {
			s := create(t, p, api.SessionCreateParams{Shell: "bash", TTY: tty})
			e, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 100", StdinOpen: tty == nil}, YieldMS: 1})
			if err != nil {
				t.Fatal(err)
			}
			failed := make(chan error, 1)
			go func() { // more than the kernel takes while nothing reads
				_, err := p.Input(context.Background(), api.ExecInputParams{ExecID: e.ExecID, Data: strings.Repeat("x\n", 1<<20)})
				failed <- err
			}()
			waitFor(t, func() bool {
				info, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
				return err == nil && info.TypedAt != nil
			})
			mustHold(t, p, api.SessionHoldParams{SessionID: s.SessionID, Holder: "alice"})
			select {
			case err := <-failed:
				heldBy(t, "typing during a takeover", err, "alice")
			case <-time.After(trltest.Patience):
				t.Error("it still types")
			}
		})
	}
}

// TestHoldBeforeStdinIsRead: input that came with a command does not count as
// typing: a command that does not read it keeps no client from the keyboard.
func TestHoldBeforeStdinIsRead(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Shell: "dash"})
	stdin := strings.Repeat("x\n", 1<<20) // more than a pipe takes
	e := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 100", Stdin: &stdin, StdinOpen: true}, YieldMS: 1})
	held := make(chan *api.SessionHoldResult, 1)
	go func() {
		h, err := p.Hold(context.Background(), api.SessionHoldParams{SessionID: s.SessionID, Holder: "alice"})
		if err != nil {
			t.Error(err)
		}
		held <- h
	}()
	select {
	case <-held:
	case <-time.After(trltest.Patience):
		t.Error("taking the keyboard waits for a command to read")
	}
	if _, err := p.Cancel(t.Context(), api.ExecCancelParams{ExecID: e.ExecID}); err != nil {
		t.Fatal(err)
	}
}

func TestHoldRunsOut(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Shell: "dash"})
	began := time.Now()
	h := mustHold(t, p, api.SessionHoldParams{SessionID: s.SessionID, Holder: "alice", TTLMS: 1000})
	mustHold(t, p, api.SessionHoldParams{SessionID: s.SessionID, Holder: "alice", TTLMS: 1500, Lease: h.Lease})
	waitFor(t, func() bool {
		info, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
		return err == nil && info.Held == nil
	})
	if lasted := time.Since(began); lasted < 1400*time.Millisecond {
		t.Errorf("it was renewed for 1.5 s and lasted %v", lasted)
	}
	if _, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true"}}); err != nil {
		t.Error(err)
	}
	for what, params := range map[string]api.SessionHoldParams{
		"no holder":    {},
		"two lines":    {Holder: "a\nb"},
		"a long name":  {Holder: strings.Repeat("a", 101)},
		"no time":      {Holder: "a", TTLMS: 1},
		"too much":     {Holder: "a", TTLMS: 1 << 62},
		"less than no": {Holder: "a", TTLMS: -1},
	} {
		params.SessionID = s.SessionID
		if _, err := p.Hold(t.Context(), params); !api.IsCode(err, api.CodeInvalidParams) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
