package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// follower keeps a display true to a session, through the end of a command and
// the beginning of the next, changes of size, gaps, and lost connections.
type follower struct {
	client  *client.Client
	session string
	display *display
	// happened is told how the session is, first by an info and then by events.
	// It is called by one goroutine.
	notify func(*api.SessionInfo, *api.SessionEvent)
}

// sessionEnded is how following a session ends if nobody ends it before.
type sessionEnded struct{ terminated *api.Terminated }

func (e *sessionEnded) Error() string {
	w := e.terminated
	switch {
	case w == nil:
		return "has ended"
	case w.Signal != "":
		return "has ended: its command was killed by " + visible(w.Signal)
	case w.ExitCode != nil:
		return fmt.Sprintf("has ended: its command exited with status %d", *w.ExitCode)
	case w.Reason == api.ReasonIdle:
		return "has ended: it was idle for too long"
	case w.Reason == api.ReasonShutdown:
		return "has ended: the daemon was stopped"
	}
	return "has ended"
}

// What is shown has fallen behind, and is to be fetched anew.
var (
	errStale    = errors.New("the screen must be fetched anew")
	errNextExec = errors.New("another command has started")
)

const (
	// awayTime is how long a daemon that can't be reached is looked for: a
	// laptop that changes its network, a daemon behind a tunnel that is made anew.
	reconnectTimeout  = time.Minute
	reconnectInterval = 500 * time.Millisecond
)

// run follows the session until it ends, or ctx does.
func (f *follower) run(ctx context.Context) error {
	var since time.Time // of a connection that is lost
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
		f.display.notice("the connection to the daemon is lost; trying again")
		if !pause(ctx, reconnectInterval) {
			return ctx.Err()
		}
	}
}

// unreachable reports whether an error says nothing but that the daemon can't
// be reached now.
func unreachable(err error) bool {
	return errors.Is(err, client.ErrClosed) || errors.Is(err, client.ErrNoDaemon) || api.IsCode(err, api.CodeRuntimeUnavailable)
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch follows the session for as long as it is told what happens to it.
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
	past := "" // the command whose output is over, for another has started
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
	// A command is known to run a moment before the terminal is its own.
	execStartTimeout  = time.Second
	execStartInterval = 5 * time.Millisecond
)

// fetch gets the screen, of a later command than the one that is past.
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

// inform tells how the session is now.
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

// until shows what is written after a screen, until that is not the way any
// more: errStale or errNext.
func (f *follower) streamUntilStale(ctx context.Context, at *api.SessionScreenResult, events <-chan *api.SessionEvent, lost <-chan error) error {
	ctx, cancel := context.WithCancel(ctx)
	written := make(chan error, 1)
	f.display.terminal.start(func() { written <- f.followOutput(ctx, at) })
	// Nothing old may be shown after the screen that is fetched next.
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

// written shows what is written after a screen.
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

// lookTime is how often a screen is fetched whose next output is not known.
const refetchInterval = 500 * time.Millisecond

// look has the screen fetched after a while, if nothing happens before.
func (f *follower) waitForRefetch(ctx context.Context) error {
	if !pause(ctx, refetchInterval) {
		return ctx.Err()
	}
	return errStale
}

// errFlood says that more is written than a person can see.
var errFlood = errors.New("output comes faster than it can be seen")

const (
	// More than floodBytes within floodTime are not fetched to be scrolled away:
	// whole screens are, a few dozen times a second. It is ten times what a
	// large screen that is redrawn all the time takes.
	floodBytes     = 512 << 10
	floodWindow    = 200 * time.Millisecond
	sampleInterval = 33 * time.Millisecond
)

// stream shows output byte by byte: that of the command, and then what the
// processes that it left write.
func (f *follower) stream(ctx context.Context, at *api.SessionScreenResult) error {
	st, err := f.client.Attach(ctx, api.ExecAttachParams{ExecID: at.ExecID, From: at.Offset})
	if err != nil {
		if api.IsCode(err, api.CodeOutputGone) {
			return errStale
		}
		if api.IsCode(err, api.CodeExecNotFound) { // it was long ago, and is forgotten
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

// chunk shows a piece of output.
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

// rest shows what is written after the end of a command.
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

// sample shows whole screens until the output pauses. Then the screen is not
// likely to be in the middle of an escape sequence, and streaming can go on.
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
