package console

import (
	"context"
	"errors"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// follower keeps a display up to date with a session, across commands, changes
// of size, gaps, and lost connections.
type follower struct {
	client  *client.Client
	session string
	display *display
	// notify receives the session's state: first an info, then events. It is
	// called from one goroutine.
	notify func(*api.SessionInfo, *api.SessionEvent)
}

// The display is out of date and must be fetched again.
var (
	errStale    = errors.New("the screen must be fetched again")
	errNextExec = errors.New("another command has started")
)

const (
	// reconnectTimeout is how long to look for a daemon that can't be reached:
	// a laptop changes its network, or a tunnel to the daemon is reestablished.
	reconnectTimeout  = time.Minute
	reconnectInterval = 500 * time.Millisecond
)

// run follows the session until it ends, or ctx does.
func (f *follower) run(ctx context.Context) error {
	var since time.Time // when the connection was lost; zero if it is not
	for {
		err := f.watch(ctx, func() { since = time.Time{} })
		if ctx.Err() != nil || !unreachable(err) {
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) > reconnectTimeout {
			return err
		}
		f.display.notice("lost the connection to the daemon; reconnecting")
		if !pause(ctx, reconnectInterval) {
			return ctx.Err()
		}
	}
}

// watch follows the session while its event stream lasts. It calls works each
// time the screen has been fetched.
func (f *follower) watch(ctx context.Context, works func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched, err := f.client.Watch(ctx, api.SessionWatchParams{SessionID: f.session})
	if err != nil {
		return err
	}
	defer watched.Close()
	if err := f.notifyInfo(ctx); err != nil {
		return err
	}
	events, lost := make(chan *api.SessionEvent), make(chan error, 1)
	f.display.terminal.start(func() {
		for event, err := range watched.All() {
			if err != nil {
				lost <- err
				return
			}
			select {
			case events <- event:
			case <-ctx.Done():
				return
			}
		}
	})
	past := "" // the previous command, if another one has started
	for {
		at, err := f.fetchScreen(ctx, past)
		if err != nil {
			return err
		}
		f.display.setScreen(at)
		works()
		past = ""
		switch err := f.streamUntilStale(ctx, at, events, lost); {
		case errors.Is(err, errNextExec):
			past = at.ExecID
		case !errors.Is(err, errStale):
			return err
		}
	}
}

const (
	// A command counts as running a moment before its output is the terminal's.
	execStartTimeout  = time.Second
	execStartInterval = 5 * time.Millisecond
)

// fetchScreen returns the screen. If past is not empty it waits a moment for
// the screen of a later command.
func (f *follower) fetchScreen(ctx context.Context, past string) (*api.SessionScreenResult, error) {
	for began := time.Now(); ; {
		at, err := f.client.Screen(ctx, api.SessionScreenParams{SessionID: f.session, Format: api.ScreenANSI})
		if err != nil || past == "" || at.ExecID != past || time.Since(began) > execStartTimeout {
			return at, err
		}
		if !pause(ctx, execStartInterval) {
			return nil, ctx.Err()
		}
	}
}

// notifyInfo reports the session's current state.
func (f *follower) notifyInfo(ctx context.Context) error {
	info, err := f.client.SessionInfo(ctx, api.SessionParams{SessionID: f.session})
	if err != nil {
		return err
	}
	if info.State == api.StateTerminated {
		return &sessionEnded{info.Terminated}
	}
	f.notify(info, nil)
	return nil
}

// streamUntilStale shows the output that follows the screen at, until the
// screen must be fetched again: errStale or errNextExec.
func (f *follower) streamUntilStale(ctx context.Context, at *api.SessionScreenResult, events <-chan *api.SessionEvent, lost <-chan error) error {
	ctx, cancel := context.WithCancel(ctx)
	written := make(chan error, 1)
	f.display.terminal.start(func() { written <- f.followOutput(ctx, at) })
	// Output from before must not be shown after the next screen.
	defer func() {
		cancel()
		<-written
	}()
	for {
		select {
		case err := <-written:
			written <- nil
			return err
		case err := <-lost:
			return err
		case event := <-events:
			var stale error
			switch event.Type {
			case api.EventDestroyed:
				return f.ended(ctx, event)
			case api.EventGap:
				if err := f.notifyInfo(ctx); err != nil {
					return err
				}
				stale = errStale
			case api.EventResized:
				stale = errStale
			case api.EventState:
				if event.State == api.StateRunning && event.ExecID != at.ExecID {
					stale = errNextExec
				}
			}
			f.notify(nil, event)
			if stale != nil {
				return stale
			}
		}
	}
}

func (f *follower) ended(ctx context.Context, event *api.SessionEvent) error {
	if info, err := f.client.SessionInfo(ctx, api.SessionParams{SessionID: f.session}); err == nil && info.Terminated != nil {
		return &sessionEnded{info.Terminated}
	}
	return &sessionEnded{&api.Terminated{Reason: event.Reason}}
}

// followOutput shows what is written after the screen at.
func (f *follower) followOutput(ctx context.Context, at *api.SessionScreenResult) error {
	for {
		if at.ExecID == "" { // no command has run yet
			return f.waitForRefetch(ctx)
		}
		err := f.stream(ctx, at)
		if errors.Is(err, errFlood) {
			at, err = f.sampleScreens(ctx, at)
		}
		if err != nil {
			return err
		}
	}
}

// pollWait is how long one request for more output waits at the daemon. Longer
// gains nothing: an empty answer is a few hundred bytes.
const pollWait = 30_000 // ms

// refetchInterval is how often the screen is fetched when its next output can't
// be streamed.
const refetchInterval = 500 * time.Millisecond

// waitForRefetch waits for refetchInterval and returns errStale.
func (f *follower) waitForRefetch(ctx context.Context) error {
	if !pause(ctx, refetchInterval) {
		return ctx.Err()
	}
	return errStale
}

// errFlood reports that output arrives faster than a person can read.
var errFlood = errors.New("output arrives faster than it can be shown")

const (
	// More than floodBytes within floodWindow are not streamed just to be
	// scrolled away: whole screens are fetched instead, a few dozen times a
	// second. The limit is ten times what a large screen that redraws
	// constantly needs.
	floodBytes     = 512 << 10
	floodWindow    = 200 * time.Millisecond
	sampleInterval = 33 * time.Millisecond
)

// stream shows output byte by byte: that of the command, then that of processes
// it left running.
func (f *follower) stream(ctx context.Context, at *api.SessionScreenResult) error {
	st, err := f.client.Attach(ctx, api.ExecAttachParams{ExecID: at.ExecID, From: at.Offset})
	if err != nil {
		if api.IsCode(err, api.CodeOutputGone) {
			return errStale
		}
		if api.IsCode(err, api.CodeExecNotFound) { // it has expired
			return f.waitForRefetch(ctx)
		}
		return err
	}
	defer st.Close()
	began, bytes := time.Now(), 0
	for chunk, err := range st.Chunks() {
		if err != nil {
			return err
		}
		n, err := f.showChunk(*chunk)
		if err != nil {
			return err
		}
		if time.Since(began) > floodWindow {
			began, bytes = time.Now(), 0
		}
		if bytes += n; bytes > floodBytes {
			return errFlood
		}
	}
	return f.followAfterExit(ctx, st.ExecID(), st.Next())
}

// showChunk shows a piece of output and returns its length.
func (f *follower) showChunk(chunk api.Chunk) (int, error) {
	switch chunk.Type {
	case api.ChunkExit:
		return 0, nil
	case api.ChunkGap:
		return 0, errStale
	}
	data, err := api.DecodeBytes(chunk.Data, chunk.Encoding)
	if err != nil {
		return 0, err
	}
	f.display.feed(data)
	return len(data), nil
}

// followAfterExit shows what is written after the command's exit.
func (f *follower) followAfterExit(ctx context.Context, exec string, from int64) error {
	for {
		got, err := f.client.Output(ctx, api.ExecOutputParams{ExecID: exec, From: from, WaitMS: pollWait})
		switch {
		case api.IsCode(err, api.CodeOutputGone):
			return errStale
		case api.IsCode(err, api.CodeExecNotFound):
			return f.waitForRefetch(ctx)
		case err != nil:
			return err
		}
		for _, chunk := range got.Chunks {
			if _, err := f.showChunk(chunk); err != nil {
				return err
			}
		}
		if got.Closed && got.Next == from {
			return f.waitForRefetch(ctx)
		}
		from = got.Next
	}
}

// sampleScreens shows whole screens until the output pauses. The screen is then
// unlikely to be in the middle of an escape sequence, and streaming can resume.
func (f *follower) sampleScreens(ctx context.Context, at *api.SessionScreenResult) (*api.SessionScreenResult, error) {
	for {
		if !pause(ctx, sampleInterval) {
			return nil, ctx.Err()
		}
		now, err := f.client.Screen(ctx, api.SessionScreenParams{SessionID: f.session, Format: api.ScreenANSI})
		if err != nil {
			return nil, err
		}
		f.display.setScreen(now)
		if now.ExecID == at.ExecID && now.Offset == at.Offset {
			return now, nil
		}
		at = now
	}
}
