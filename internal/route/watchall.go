package route

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/service"
)

// watch watches the sessions of this machine and of all places that are connected,
// now or later.
func (r *Router) watch(ctx context.Context, m *service.Method, params json.RawMessage) (any, error) {
	all := &joinedWatch{router: r, method: m, params: slices.Clone(params), following: map[Place]bool{}, seen: map[Place]bool{}, ended: make(chan struct{}, 1)}
	if len(params) > 0 {
		session, err := member(params, "session_id")
		if id, ok := stringOf(session); err != nil || session != nil && (!ok || id != "") {
			return r.local.Call(ctx, m.Name, params) // one of this machine
		}
		snapshot, _ := member(params, "snapshot")
		all.snapshot = string(snapshot) == "true"
	}
	return r.local.Forward(ctx, m.Name, func(request context.Context) (any, error) {
		result, err := r.local.Serve(request, m.Name, params)
		opened, ok := result.(*service.OpenedStream)
		switch {
		case ok:
			all.id, all.local = opened.StreamID, opened.Feed
		case api.IsCode(err, api.CodeRuntimeUnavailable): // no sessions run on this machine
			all.id = newStreamID()
			opened = &service.OpenedStream{Result: &api.SessionWatchResult{StreamID: all.id}, StreamID: all.id}
		default:
			return nil, err
		}
		return &service.OpenedStream{Result: opened.Result, StreamID: all.id, Feed: func(ctx context.Context, send func(notify.Notification) error) error {
			return all.feed(ctx, request, send)
		}}, nil
	})
}

// joinedWatch is a watch of this machine and of all places.
type joinedWatch struct {
	router   *Router
	method   *service.Method
	params   json.RawMessage
	id       string
	local    notify.Feed // nil: no sessions run on this machine
	snapshot bool        // the watch begins with the sessions that there are

	snapshots sync.WaitGroup // that the watch begins with

	sending sync.Mutex // held while an event is sent
	send    func(notify.Notification) error

	mu        sync.Mutex
	following map[Place]bool // places that are watched now, or will be
	seen      map[Place]bool // places that were watched before
	ended     chan struct{}  // buffered: a watch of a place has ended
}

// feed passes on the events of this machine and of the places until ctx is done or
// one can't be sent. The values of request say who watches.
func (j *joinedWatch) feed(ctx, request context.Context, send func(notify.Notification) error) error {
	watching, cancel := context.WithCancelCause(context.WithoutCancel(request))
	stop := context.AfterFunc(ctx, func() { cancel(ctx.Err()) })
	var running sync.WaitGroup
	defer func() {
		stop()
		cancel(nil)
		running.Wait()
	}()
	j.send = send
	spawn := func(first bool, follow func(over func()) error) {
		over := func() {}
		if first && j.snapshot {
			j.snapshots.Add(1)
			over = sync.OnceFunc(j.snapshots.Done)
		}
		running.Go(func() {
			defer over()
			if err := follow(over); err != nil {
				cancel(err)
			}
		})
	}
	if j.local != nil {
		spawn(true, func(over func()) error { return j.followLocal(watching, over) })
	}
	for first := true; ; first = false {
		changed := j.router.places.Changed() // before All: a change in between is not missed
		for p, again := range j.startable() {
			spawn(first, func(over func()) error { return j.follow(watching, p, again, over) })
		}
		if first && j.snapshot {
			running.Go(func() {
				if err := j.endSnapshot(watching); err != nil {
					cancel(err)
				}
			})
		}
		select {
		case <-changed:
		case <-j.ended:
		case <-watching.Done():
			return context.Cause(watching)
		}
	}
}

// startable returns the connected places that are not followed, and whether they
// were before. From now on they are.
func (j *joinedWatch) startable() map[Place]bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	start := map[Place]bool{}
	for _, p := range j.router.places.All() {
		if !j.following[p] && p.Connected() {
			start[p] = j.seen[p]
			j.following[p] = true
		}
	}
	return start
}

// emit sends one event: several goroutines have some.
func (j *joinedWatch) emit(n notify.Notification) error {
	j.sending.Lock()
	defer j.sending.Unlock()
	return j.send(n)
}

// endSnapshot reports the end of the snapshot when that of every place has ended.
func (j *joinedWatch) endSnapshot(ctx context.Context) error {
	j.snapshots.Wait() // each ends with ctx, at the latest
	if ctx.Err() != nil {
		return nil
	}
	return j.emit(&api.SessionEvent{StreamID: j.id, Type: api.EventSnapshotEnd, At: api.Time{Time: time.Now()}})
}

// followLocal passes on the events of this machine.
func (j *joinedWatch) followLocal(ctx context.Context, over func()) error {
	return j.local(ctx, func(n notify.Notification) error {
		if e, ok := n.(*api.SessionEvent); ok && e.Type == api.EventSnapshotEnd {
			over()
			return nil
		}
		return j.emit(n)
	})
}

// refusedPause is how long to wait for a place that refuses to be watched: it may
// be of a version that can't, until it is upgraded.
const refusedPause = 30 * time.Second

// follow passes on the events of a place until its watch is lost, which is no
// error. again means that the place was watched before.
func (j *joinedWatch) follow(ctx context.Context, p Place, again bool, over func()) error {
	pause := firstPause
	w, _, err := j.router.newWatcher(ctx, j.method, p, j.params, j.id)
	switch {
	case err == nil:
		err = j.pass(ctx, w, again, over)
		j.mu.Lock()
		j.seen[p] = true
		j.mu.Unlock()
		if err != nil {
			return err
		}
	case final(err):
		pause = refusedPause
	default:
		pause = max(maxPause, retryAfter(err))
	}
	over()
	if !sleep(ctx, pause) {
		return nil
	}
	j.mu.Lock()
	delete(j.following, p)
	j.mu.Unlock()
	select {
	case j.ended <- struct{}{}:
	default:
	}
	return nil
}

// pass passes on the events of one watch.
func (j *joinedWatch) pass(ctx context.Context, w *watcher, again bool, over func()) error {
	if again {
		if err := j.emit(gap(j.id)); err != nil {
			w.at.end()
			return err
		}
	}
	return w.follow(ctx, func(n notification) error {
		if n.kind == string(api.EventSnapshotEnd) {
			over()
			return nil
		}
		return j.emit(&n.Passed)
	})
}
