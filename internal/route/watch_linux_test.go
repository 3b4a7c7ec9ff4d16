package route

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// watchedTable is a table whose session.watch sends the given events, and no more.
type watchedTable struct {
	Table
	events []api.SessionEvent
}

func (w watchedTable) Serve(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if method != api.MethodSessionWatch {
		return w.Table.Serve(ctx, method, params)
	}
	return &service.OpenedStream{Result: &api.SessionWatchResult{StreamID: "st-local"}, StreamID: "st-local", Feed: func(ctx context.Context, send func(notify.Notification) error) error {
		for _, e := range w.events {
			e.StreamID = "st-local"
			if err := send(&e); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}}, nil
}

// follow starts a feed, and returns its events. The test ends it.
func follow(t *testing.T, o *service.OpenedStream) <-chan api.SessionEvent {
	t.Helper()
	events := make(chan api.SessionEvent, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(events)
		_ = o.Feed(ctx, func(n notify.Notification) error {
			raw, err := n.AppendJSON(nil)
			if err != nil {
				return err
			}
			var e api.SessionEvent
			if err := json.Unmarshal(raw, &e); err != nil {
				return err
			}
			if e.StreamID != o.StreamID {
				t.Errorf("an event of %s in %s", e.StreamID, o.StreamID)
			}
			events <- e
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return events
}

// await returns the next event of a type, and those before it.
func await(t *testing.T, events <-chan api.SessionEvent, kind api.SessionEventType) (before []api.SessionEvent, e api.SessionEvent) {
	t.Helper()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatalf("the feed ended before %s: %+v", kind, before)
			}
			if e.Type == kind {
				return before, e
			}
			before = append(before, e)
		case <-time.After(trltest.Patience):
			t.Fatalf("no event %s; %+v", kind, before)
		}
	}
}

func TestWatchOfAllPlaces(t *testing.T) {
	k7, m2 := start(t, "k7"), start(t, "m2")
	local := watchedTable{Table: newRecorder(), events: []api.SessionEvent{
		{Type: api.EventSnapshot, SessionID: "s-here"}, {Type: api.EventSnapshotEnd},
	}}
	r := New(Config{Local: local, Places: testPlaces{k7, m2}})
	u := newUser(t, r)
	id := u.session("cmd:k7")
	events := follow(t, u.open(api.MethodSessionWatch, api.SessionWatchParams{Snapshot: true}))
	before, _ := await(t, events, api.EventSnapshotEnd)
	found := map[string]bool{}
	for _, e := range before {
		found[e.SessionID] = e.Type == api.EventSnapshot
	}
	if len(before) != 2 || !found["s-here"] || !found[id] {
		t.Errorf("the snapshot is %+v", before)
	}
	other := u.session("cmd:m2") // connects
	for e := range events {      // created, or in the snapshot of the place
		if e.SessionID == other {
			break
		}
	}
	k7.cut()
	u.call(api.MethodSessionInfo, api.SessionParams{SessionID: id}, nil) // connects again
	if _, e := await(t, events, api.EventGap); e.Reason != api.ReasonDisconnected {
		t.Errorf("the gap is %+v", e)
	}
	if _, e := await(t, events, api.EventSnapshot); e.SessionID != id {
		t.Errorf("after the gap: %+v", e)
	}
	u.call(api.MethodSessionDestroy, api.SessionDestroyParams{SessionID: id}, nil)
	if _, e := await(t, events, api.EventDestroyed); e.SessionID != id {
		t.Errorf("destroyed: %+v", e)
	}
}

func TestWatchOfOneSession(t *testing.T) {
	k7 := start(t, "k7")
	r := New(Config{System: system{}, Places: testPlaces{k7}})
	u := newUser(t, r)
	id, other := u.session("cmd:k7"), u.session("cmd:k7")
	events := follow(t, u.open(api.MethodSessionWatch, api.SessionWatchParams{SessionID: id}))
	k7.cut()
	await(t, events, api.EventGap)
	u.call(api.MethodSessionDestroy, api.SessionDestroyParams{SessionID: other}, nil)
	u.call(api.MethodSessionDestroy, api.SessionDestroyParams{SessionID: id}, nil)
	if _, e := await(t, events, api.EventDestroyed); e.SessionID != id {
		t.Errorf("destroyed: %+v", e)
	}
	for e := range events {
		t.Errorf("after the end: %+v", e)
	}
	if err := u.try(api.MethodSessionWatch, api.SessionWatchParams{SessionID: id}, nil); !api.IsCode(err, api.CodeSessionTerminated) {
		t.Errorf("a session that has ended: %v", err)
	}
}
