package session

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/notify"
)

// TestNamesAreOneLine: names must be one line of visible characters.
func TestNamesAreOneLine(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Name: "größer 日本 👩\u200d💻", Tags: []string{"mcp:/srv/a b", ""}})
	for _, odd := range []string{"a\nb", "\x1b[2J", "\x7f", "\u009b", "\u202e", "\u2066", "\u200b", "\u2028", "\U000e0041"} {
		_, name := p.Create(t.Context(), api.SessionCreateParams{Name: "x" + odd}, "tester")
		_, tag := p.Create(t.Context(), api.SessionCreateParams{Tags: []string{"plain", "x" + odd}}, "tester")
		_, label := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true", Label: "x" + odd}})
		_, holder := p.Hold(t.Context(), api.SessionHoldParams{SessionID: s.SessionID, Holder: "x" + odd})
		for field, err := range map[string]error{"name": name, "tags": tag, "label": label, "holder": holder} {
			if !api.IsCode(err, api.CodeInvalidParams) || api.AsError(err).Details["field"] != field {
				t.Errorf("%q as %s: %v", odd, field, err)
			}
		}
	}
}

// TestOwner: the owner is shown wherever the session is, and is persisted with it.
func TestOwner(t *testing.T) {
	store, err := ledger.New(holder.NewLocalKeeper())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	p := newPool(t, Config{Ledger: store})
	_, feed, err := p.Watch(t.Context(), api.SessionWatchParams{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Create(t.Context(), api.SessionCreateParams{Name: "new"}, "alice/claude-code")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{"created": s.Owner}
	ctx, cancel := context.WithCancel(t.Context())
	_ = feed(ctx, func(n notify.Notification) error { // ends when ctx is done
		e := n.(*api.SessionEvent)
		got["event "+string(e.Type)] = e.Owner
		if e.Type == api.EventDestroyed {
			cancel()
		}
		return nil
	})
	// A session of an earlier version has no owner, and may have any name.
	old := sessionState{
		number: 2, name: "evil\x1b[31m\nname", tags: []string{"\u202e"},
		created: time.Now(), terminated: &api.Terminated{Reason: api.ReasonDestroyed, At: api.Time{Time: time.Now()}},
	}
	if err := store.Put(endedPrefix+"s-old", old.encode()); err != nil {
		t.Fatal(err)
	}
	next := newPool(t, Config{Ledger: store})
	next.Adopt(nil)(func() {})
	list, err := next.List(t.Context(), api.SessionListParams{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Sessions {
		got["kept "+s.Name] = s.Owner
	}
	want := map[string]string{
		"created": "alice/claude-code", "event created": "alice/claude-code", "event destroyed": "alice/claude-code",
		"kept new": "alice/claude-code", "kept evil\x1b[31m\nname": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
