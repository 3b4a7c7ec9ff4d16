package route

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/service"
)

// watcher is a watch of the sessions of a place. After a lost connection it begins
// a new watch; a gap says that events may be missing.
type watcher struct {
	call *outcall // session.watch
	id   string   // of the stream
	at   *attachment
}

// newWatcher begins a watch. params are copied.
func (r *Router) newWatcher(ctx context.Context, m *service.Method, p Place, params json.RawMessage, id string) (*watcher, json.RawMessage, error) {
	c, err := r.newCall(ctx, m, p, slices.Clone(params))
	if err != nil {
		return nil, nil, err
	}
	w := &watcher{call: c, id: id}
	result, err := c.persist(ctx, func() (json.RawMessage, error) { return w.open(ctx) })
	if err != nil {
		return nil, nil, err
	}
	return w, result, nil
}

func (w *watcher) open(ctx context.Context) (result json.RawMessage, err error) {
	conn, exclusive, release, err := w.call.place.OpenStream(ctx)
	if err != nil {
		return nil, &failedAttempt{unreachable, err}
	}
	w.at, result, err = w.call.attach(ctx, conn, exclusive, release, w.id, eventBuffer)
	return result, err
}

// follow passes the events on until the watch is lost, which is no error, or emit
// fails.
func (w *watcher) follow(ctx context.Context, emit func(notification) error) error {
	defer w.at.end()
	for {
		n, err := w.at.next(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return nil
		}
		if err := emit(n); err != nil {
			return err
		}
	}
}

// gap is the event for the events that a lost watch may have missed.
func gap(stream string) *api.SessionEvent {
	return &api.SessionEvent{StreamID: stream, Type: api.EventGap, Reason: api.ReasonDisconnected, At: api.Time{Time: time.Now()}}
}

// errWatchOver ends the watch of a session with the session.
var errWatchOver = errors.New("the watched session has ended")

// watchOne watches one session of a place.
func (r *Router) watchOne(ctx context.Context, m *service.Method, p Place, params json.RawMessage) (any, error) {
	w, result, err := r.newWatcher(ctx, m, p, params, newStreamID())
	if err != nil {
		return nil, err
	}
	unstarted := context.AfterFunc(ctx, w.at.end)
	return &service.OpenedStream{Result: result, StreamID: w.id, Feed: func(ctx context.Context, send func(notify.Notification) error) error {
		unstarted()
		err := w.feedOne(ctx, send)
		if errors.Is(err, errWatchOver) {
			return nil
		}
		return err
	}}, nil
}

// feedOne passes on the events of one session. If the place has forgotten the
// session in the meantime, the gap is the last event.
func (w *watcher) feedOne(ctx context.Context, send func(notify.Notification) error) error {
	pause := time.Duration(0)
	for {
		err := w.follow(ctx, func(n notification) error {
			pause = 0
			if err := send(&n.Passed); err != nil || n.kind != string(api.EventDestroyed) {
				return err
			}
			return errWatchOver
		})
		if err != nil {
			return err
		}
		if pause, err = w.reopen(ctx, pause); err != nil {
			return errors.Join(ctx.Err(), send(gap(w.id)))
		}
		if err := send(gap(w.id)); err != nil {
			w.at.end()
			return err
		}
	}
}

// reopen begins a new watch after a pause. It returns the pause before the next
// one, or the error of a place that refuses.
func (w *watcher) reopen(ctx context.Context, pause time.Duration) (time.Duration, error) {
	for sleep(ctx, pause) {
		pause = min(max(2*pause, firstPause), maxStreamPause)
		_, err := w.open(ctx)
		if err == nil || final(err) {
			return pause, err
		}
		pause = max(pause, min(retryAfter(err), maxStreamPause))
	}
	return pause, ctx.Err()
}
