package session

import (
	"context"
	"slices"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
)

// Watch sends the events of one session, or of all, from now on. The watch of one
// session ends with it, and its snapshot is taken before Watch returns: what a client
// does after the answer follows as events. Snapshots of all sessions are taken while
// they are sent.
func (p *Pool) Watch(ctx context.Context, params api.SessionWatchParams) (*api.SessionWatchResult, notify.Feed, error) {
	w := &watcher{events: p.events.of(params.Execs), stream: newID("st-"), session: params.SessionID}
	w.at = w.events.now() // before the check: the end of a session is sent, or refused
	follow := func() (leave func()) { return func() {} }
	var snapshot func(send func(notify.Notification) error) error // sends it, if there is one
	switch {
	case params.SessionID != "":
		s, err := p.session(params.SessionID)
		if err != nil {
			return nil, nil, err
		}
		if err := s.errIfTerminated(); err != nil {
			return nil, nil, err
		}
		s.trackConnection(ctx)
		follow = s.addReader
		if params.Snapshot {
			described, next := s.describeToWatcher(w.events, params.Execs)
			snapshot = func(send func(notify.Notification) error) error {
				if params.Execs {
					s.lookNow()
					described, next = w.withWaiting(described, next)
				}
				return w.sendDescription(s.id, described, next, send)
			}
		}
	case params.Snapshot:
		// One that is added later has no event before this one, and one that is
		// forgotten later is known to have ended.
		p.mu.Lock()
		sessions := slices.Clone(p.order)
		w.at = w.events.now()
		p.mu.Unlock()
		snapshot = func(send func(notify.Notification) error) error {
			return w.sendSessions(sessions, params.Execs, send)
		}
	}
	feed := func(ctx context.Context, send func(notify.Notification) error) error {
		leave := follow()
		defer leave()
		if params.Execs {
			leave := p.prompts.watch()
			defer leave()
		}
		if params.Snapshot {
			if err := snapshot(send); err != nil {
				return err
			}
			snapshot = nil // so that sessions can be freed when they are forgotten
			if err := send(&api.SessionEvent{StreamID: w.stream, Type: api.EventSnapshotEnd, At: api.Time{Time: time.Now()}}); err != nil {
				return err
			}
		}
		return w.feed(ctx, send)
	}
	return &api.SessionWatchResult{StreamID: w.stream}, feed, nil
}

// ExecsWatched reports whether a watcher has ever asked for the events of commands:
// if not, none is kept.
func (p *Pool) ExecsWatched() bool { return p.events.execsWatched() }

// watcher is the position of a watch in the events.
type watcher struct {
	events  *events
	stream  string
	session string // "" means all
	at      int64  // the next event to send
	// known is, for sessions that had events since the watch began and before their
	// part of the snapshot was taken, the first event that this part does not
	// include. It is dropped after the last of them.
	known map[string]int64
}

// sendSessions sends the sessions as they are. Each is described while its events
// are stopped, not all at once.
func (w *watcher) sendSessions(sessions []*Session, execs bool, send func(notify.Notification) error) error {
	for _, s := range sessions {
		if execs {
			s.lookNow()
		}
		described, next := s.describeToWatcher(w.events, execs)
		if err := w.sendDescription(s.id, described, next, send); err != nil {
			return err
		}
	}
	return nil
}

// sendDescription sends a session as it was before event next. feed skips the events
// that this includes.
func (w *watcher) sendDescription(session string, described []api.SessionEvent, next int64, send func(notify.Notification) error) error {
	if next > w.at {
		if w.known == nil {
			w.known = map[string]int64{}
		}
		w.known[session] = next
	}
	for i := range described {
		described[i].StreamID = w.stream
		if err := send(&described[i]); err != nil {
			return err
		}
	}
	return nil
}

// withWaiting adds to the description of w's session that its command waits, if that
// is the first event that it does not include.
func (w *watcher) withWaiting(described []api.SessionEvent, next int64) ([]api.SessionEvent, int64) {
	for at := next; ; at++ {
		e, number, _ := w.events.from(at)
		switch {
		case number != at: // there is none, or it is no longer kept
			return described, next
		case e.SessionID != w.session:
		case e.Type != api.EventWaiting:
			return described, next
		default:
			return append(described, e), number + 1
		}
	}
}

// describeToWatcher returns the session as events of a snapshot, none if it is
// being created or has ended, and the number of the first event that they do not
// include.
func (s *Session) describeToWatcher(ev *events, execs bool) (described []api.SessionEvent, next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = ev.now()
	if s.state == api.StateCreating || s.state == api.StateTerminated {
		return nil, next
	}
	e := api.SessionEvent{Type: api.EventSnapshot, State: s.state, TTY: s.params.TTY}
	if s.lease != nil {
		e.Holder = s.lease.holder
	}
	if s.remote != nil {
		e.ExecID, e.ExecLabel = s.described.ExecID, s.described.ExecLabel
	}
	if s.running == nil || s.unreadable != "" {
		return []api.SessionEvent{s.event(e)}, next
	}
	e.ExecID, e.ExecLabel = s.running.ID(), s.running.Label()
	described = []api.SessionEvent{s.event(e)}
	if !execs {
		return described, next
	}
	started := api.SessionEvent{Type: api.EventExecStarted, ExecID: e.ExecID, ExecLabel: e.ExecLabel}
	if at, ok := s.running.StartedAt(); ok {
		started.At = api.Time{Time: at}
	}
	described = append(described, s.event(started))
	if waiting := s.shared.prompts.reportedWaiting(s.running); waiting != nil {
		described = append(described, s.event(api.SessionEvent{
			Type: api.EventWaiting, ExecID: e.ExecID, ExecLabel: e.ExecLabel, Waiting: waiting,
		}))
	}
	return described, next
}

// eventPause is how long the first event after a pause waits for others. A short
// command has four within a tenth of a millisecond: sent one by one they would wake
// this process and each watcher that often, while the command runs and while its
// result is on its way.
const eventPause = 2 * time.Millisecond

// feed sends the events.
func (w *watcher) feed(ctx context.Context, send func(notify.Notification) error) error {
	pause := time.NewTimer(0)
	<-pause.C
	defer pause.Stop()
	for {
		e, number, wake := w.events.from(w.at)
		if number < 0 {
			w.known = nil // they are all sent or skipped
			if wake == nil {
				return nil
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return ctx.Err()
			}
			pause.Reset(eventPause)
			select {
			case <-pause.C:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		if number > w.at {
			gap := &api.SessionEvent{StreamID: w.stream, Type: api.EventGap, At: e.At, Missed: number - w.at}
			if err := send(gap); err != nil {
				return err
			}
		}
		w.at = number + 1
		ends := w.session != "" && e.Type == api.EventDestroyed && e.SessionID == w.session
		if w.session != "" && e.SessionID != w.session || number < w.known[e.SessionID] && !ends {
			continue
		}
		e.StreamID = w.stream
		if err := send(&e); err != nil {
			return err
		}
		if ends {
			return nil
		}
	}
}

// lookNow checks a command of the session at once, unless watchers know already
// that it waits.
func (s *Session) lookNow() {
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if running == nil || s.term == nil {
		return
	}
	p := &s.shared.prompts
	p.mu.Lock()
	c := p.commands[running]
	if c == nil || c.reported != nil {
		p.mu.Unlock()
		return
	}
	inputs := c.inputs
	p.mu.Unlock()
	if w := s.waitingFor(running); w != nil {
		s.reportWaiting(c, w, inputs)
	}
}

// reportWaiting tells watchers that a command has begun to wait after so many
// inputs, or that it no longer waits (nil), unless they know.
func (s *Session) reportWaiting(c *prompt, w *api.Waiting, inputs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != c.exec {
		return // it has ended
	}
	p := &s.shared.prompts
	p.mu.Lock()
	before, same := c.reported, c.reportedAt == inputs
	c.reported, c.reportedAt = w, inputs
	p.mu.Unlock()
	e := api.SessionEvent{Type: api.EventWaiting, ExecID: c.exec.ID(), ExecLabel: c.exec.Label(), Waiting: w}
	switch {
	case w == nil && before == nil, w != nil && before != nil && same && w.PID == before.PID && w.For == before.For:
		return
	case w == nil:
		e.Type = api.EventWaitingEnded
	}
	s.emit(e)
}
