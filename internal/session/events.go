package session

import (
	"sync"

	"github.com/terminal-runtime/trl/api"
)

// maxEvents is how many events are kept for slow watchers: each of ten thousand
// sessions can come or go while a watcher handles one event. They take about two
// megabytes.
const maxEvents = 8192

// eventLogs are the recent events of sessions for the two kinds of watchers. Those
// that do not ask for the events of commands miss none because of them.
type eventLogs struct {
	sessions events // without the events of commands
	all      events // since a watcher first asked for the events of commands
}

// of returns the events for a watcher.
func (l *eventLogs) of(execs bool) *events {
	if execs {
		return &l.all
	}
	return &l.sessions
}

// add adds an event. It may be called with any lock of the package held.
func (l *eventLogs) add(e api.SessionEvent) {
	switch e.Type {
	case api.EventExecStarted, api.EventExecEnded, api.EventWaiting, api.EventWaitingEnded:
	default:
		l.sessions.add(e)
	}
	l.all.add(e)
}

// execsWatched reports whether a watcher has ever asked for the events of commands.
func (l *eventLogs) execsWatched() bool {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	return l.all.wanted
}

// close ends all watches, after the events there are.
func (l *eventLogs) close() {
	l.sessions.close()
	l.all.close()
}

// events are the recent events of sessions. Watchers pull, as readers of output do:
// one that does not take its events delays nothing, and gets the number of those it
// missed.
type events struct {
	mu     sync.Mutex
	wanted bool               // a watcher has asked for them: none is kept before
	ring   []api.SessionEvent // event n is at n % maxEvents
	next   int64              // number of the next event
	wake   chan struct{}      // closed by the next event; nil if no watcher waits
	closed bool
}

func (ev *events) add(e api.SessionEvent) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if !ev.wanted {
		return
	}
	if len(ev.ring) < maxEvents {
		ev.ring = append(ev.ring, e)
	} else {
		ev.ring[ev.next%maxEvents] = e
	}
	ev.next++
	ev.broadcast()
}

func (ev *events) close() {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	ev.closed = true
	ev.broadcast()
}

func (ev *events) broadcast() {
	if ev.wake != nil {
		close(ev.wake)
		ev.wake = nil
	}
}

// now returns the number of the next event. From now on events are kept.
func (ev *events) now() int64 {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	ev.wanted = true
	return ev.next
}

// from returns event n, or the first after it that is still kept, and its number.
// If there is none yet it returns a channel that is closed by the next one; nil
// means that there will be none.
func (ev *events) from(n int64) (e api.SessionEvent, number int64, wake <-chan struct{}) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if n < ev.next {
		number = max(n, ev.next-maxEvents)
		return ev.ring[number%maxEvents], number, nil
	}
	if ev.closed {
		return e, -1, nil
	}
	if ev.wake == nil {
		ev.wake = make(chan struct{})
	}
	return e, -1, ev.wake
}
