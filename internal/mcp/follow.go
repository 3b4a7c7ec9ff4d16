package mcp

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/terminal-runtime/trl/api"
)

const (
	// maxWait is how long a call may wait. Clients give up after 60 s, and some
	// time is spent before and after.
	maxWait = 50 * time.Second
	// defaultWait is how long run waits if it is not told: most commands are
	// over, and a model has not lost much if it is not.
	defaultWait = 30 * time.Second
	// beat is how often progress is told, and how late it may be seen that a
	// program waits for input.
	beat = time.Second
	// recheck is how long after a program was seen to wait it is looked at again:
	// one that has asked the terminal itself something waits for a moment only.
	recheck = 50 * time.Millisecond
	// lookAgain is how often the output of what was left running is looked at.
	lookAgain = 50 * time.Millisecond
	// readAhead is how much output one look takes while a pattern is waited for.
	readAhead = 256 << 10
)

// clock is how long a call waits.
func clock(seconds *float64, otherwise time.Duration) time.Duration {
	if seconds == nil {
		return otherwise
	}
	return time.Duration(*seconds * float64(time.Second))
}

// goal is what a call waits for, besides the end of the command and input that it
// waits for itself.
type goal struct {
	pattern *regexp.Regexp // a line like this
	idle    time.Duration  // no output for so long
	from    int64          // where to look for the pattern
	tty     bool           // it may wait for input
}

// reached is why the waiting ended.
type reached struct {
	matched *line
	idle    bool
	late    bool // the time was over
}

// follow waits for a goal, or until the command has ended, or for so long. The
// error is that of the context or of the daemon.
func (s *server) follow(ctx context.Context, c *call, exec string, g goal, wait time.Duration) (reached, error) {
	began := time.Now()
	deadline := began.Add(wait)
	seen := s.watch(exec, g)
	quiet := began
	calm := false            // it was seen to wait for input
	told := began.Add(-beat) // a client that asks for it hears of it at once
	for {
		now := time.Now()
		left := deadline.Sub(now)
		look := min(max(left, 0), beat)
		if calm {
			look = min(look, recheck)
		}
		if g.idle > 0 {
			look = min(look, max(quiet.Add(g.idle).Sub(now), time.Millisecond))
		}
		got, err := seen.look(ctx, look)
		if err != nil {
			return reached{}, err
		}
		if got.moved {
			quiet, calm = time.Now(), false
		}
		switch {
		case got.matched != nil:
			return reached{matched: got.matched}, nil
		case got.moved && got.more: // there is more to look at before anything is concluded
			continue
		case got.state == api.ExecExited && (g.pattern == nil && g.idle == 0 || got.closed):
			return reached{}, nil
		case g.idle > 0 && time.Since(quiet) >= g.idle:
			return reached{idle: true}, nil
		case time.Until(deadline) <= 0:
			return reached{late: true}, nil
		}
		if g.tty && got.state == api.ExecRunning {
			waits, err := s.waits(ctx, exec)
			if err == nil && waits && calm { // it did already a moment ago, and has written nothing since
				return reached{}, nil
			}
			if err != nil {
				return reached{}, err
			}
			calm = waits
		}
		if got.state == api.ExecExited && !got.moved {
			// Of a command that has ended the daemon does not wait for what others
			// may still write.
			select {
			case <-ctx.Done():
				return reached{}, ctx.Err()
			case <-time.After(min(look, lookAgain)):
			}
		}
		if time.Since(told) >= beat {
			told = time.Now()
			c.progress(ctx, told.Sub(began), seen.at)
		}
	}
}

// waits says whether a command on a terminal waits for input.
func (s *server) waits(ctx context.Context, exec string) (bool, error) {
	e, err := s.look(ctx, exec)
	if err != nil {
		return false, err
	}
	session, err := ask[api.SessionInfo](ctx, s, api.MethodSessionInfo, api.SessionParams{SessionID: e.SessionID})
	if err != nil {
		return false, err
	}
	return session.Waiting != nil && session.ExecID == exec, nil
}

// progress tells a client that asked for it that the call goes on.
func (c *call) progress(ctx context.Context, passed time.Duration, bytes int64) {
	token := c.request.Params.GetProgressToken()
	if token == nil {
		return
	}
	// Who does not hear it gets the result.
	_ = c.request.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
		ProgressToken: token, Progress: passed.Seconds(),
		Message: fmt.Sprintf("running for %s, %s of output", passed.Round(time.Second), bytesOf(bytes)),
	})
}

// cancelled says whether the client has cancelled the call, and not gone away:
// who is gone may come back for its command.
func cancelled(ctx context.Context) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled)
}

// watcher looks at an output as it comes.
type watcher struct {
	server  *server
	exec    string
	pattern *regexp.Regexp
	at      int64
	held    []byte // of the pattern's line that has no end yet
	heldAt  int64
}

func (s *server) watch(exec string, g goal) *watcher {
	return &watcher{server: s, exec: exec, pattern: g.pattern, at: g.from, heldAt: g.from}
}

// glance is what one look has shown.
type glance struct {
	matched *line
	moved   bool // there was output
	more    bool // there may be more at once
	closed  bool // there can't be more
	state   api.ExecState
}

// look waits for output, for so long, and looks at it.
func (w *watcher) look(ctx context.Context, wait time.Duration) (glance, error) {
	most := int64(readAhead)
	got, err := ask[api.ExecOutputResult](ctx, w.server, api.MethodExecOutput, api.ExecOutputParams{
		ExecID: w.exec, From: w.at, MaxBytes: &most, WaitMS: max(wait.Milliseconds(), 0),
	})
	if err != nil {
		return glance{}, err
	}
	out := glance{moved: got.Next > w.at, more: got.Next-w.at >= most/2, closed: got.Closed, state: got.State}
	if w.pattern != nil && out.moved {
		part := stretch{span: span{w.at, got.Next}}
		if err := part.add(got); err != nil {
			return glance{}, err
		}
		out.matched = w.match(&part)
	}
	w.at = got.Next
	return out, nil
}

// match looks for the pattern in the lines that have come, and in the one that
// has no end yet: prompts have none.
func (w *watcher) match(part *stretch) *line {
	for _, g := range part.segments {
		for i, c := range g.data {
			if len(w.held) == 0 {
				w.heldAt = g.offset + int64(i)
			}
			if c != '\n' && len(w.held) < maxLine {
				w.held = append(w.held, c)
				continue
			}
			if found := w.matchLine(); found != nil {
				return found
			}
			w.held = w.held[:0]
		}
	}
	return w.matchLine()
}

func (w *watcher) matchLine() *line {
	if len(w.held) == 0 {
		return nil
	}
	if text := plain(w.held); w.pattern.MatchString(text) {
		return &line{w.heldAt, clip(text, lineBytes)}
	}
	return nil
}
