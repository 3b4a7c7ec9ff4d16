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
	// maxWait is the longest wait of a call. Clients time out after 60 s, and some
	// time is spent before and after the wait.
	maxWait = 50 * time.Second
	// defaultWait is how long run waits by default: most commands end sooner, and
	// a model has not lost much if one does not.
	defaultWait = 30 * time.Second
	// pollInterval is how often progress is reported, and the maximum delay until
	// a program that waits for input is noticed.
	pollInterval = time.Second
	// recheck is the delay until a program that was seen waiting is checked again:
	// one that has queried the terminal itself waits only for a moment.
	recheck = 50 * time.Millisecond
	// exitedPollInterval is how often the output of the processes that an ended
	// command left running is checked.
	exitedPollInterval = 50 * time.Millisecond
	// readAhead is how many bytes of output one poll reads while waiting for a
	// pattern.
	readAhead = 256 << 10
)

// secondsOr converts an argument in seconds. nil means the fallback.
func secondsOr(seconds *float64, fallback time.Duration) time.Duration {
	if seconds == nil {
		return fallback
	}
	return time.Duration(*seconds * float64(time.Second))
}

// goal is what a call waits for. The wait also ends when the command ends or waits
// for input.
type goal struct {
	pattern *regexp.Regexp // wait for a matching line; nil means none
	idle    time.Duration  // wait until there was no output for this long; 0 means never
	from    int64          // offset where the search for the pattern begins
	tty     bool           // the command is on a terminal, and may wait for input
}

// waitResult is why the wait ended.
type waitResult struct {
	matched  *line
	idle     bool
	timedOut bool
}

// follow waits until the goal is reached, the command has ended, or wait has
// passed. The error is that of the context or of the daemon. A place that is out of
// reach is an error only if it still is when wait has passed.
func (s *server) follow(ctx context.Context, c *call, exec string, g goal, wait time.Duration) (waitResult, error) {
	began := time.Now()
	deadline := began.Add(wait)
	output := s.watch(exec, g)
	lastOutput := began
	wasWaiting := false                      // the command waited for input at the last check
	lastProgress := began.Add(-pollInterval) // so that the first report is sent at once
	for {
		now := time.Now()
		left := deadline.Sub(now)
		pollTime := min(max(left, 0), pollInterval)
		if wasWaiting {
			pollTime = min(pollTime, recheck)
		}
		if g.idle > 0 {
			pollTime = min(pollTime, max(lastOutput.Add(g.idle).Sub(now), time.Millisecond))
		}
		got, err := output.poll(ctx, pollTime)
		if isOutOfReach(err) && time.Until(deadline) > 0 {
			if err := pause(ctx, min(time.Until(deadline), pollInterval)); err != nil {
				return waitResult{}, err
			}
			continue
		}
		if err != nil {
			return waitResult{}, err
		}
		if got.hasOutput {
			lastOutput, wasWaiting = time.Now(), false
		}
		switch {
		case got.matched != nil:
			return waitResult{matched: got.matched}, nil
		case got.hasOutput && got.more: // read the rest before concluding anything
			continue
		case got.state == api.ExecExited && (g.pattern == nil && g.idle == 0 || got.closed):
			return waitResult{}, nil
		case g.idle > 0 && time.Since(lastOutput) >= g.idle:
			return waitResult{idle: true}, nil
		case time.Until(deadline) <= 0:
			return waitResult{timedOut: true}, nil
		}
		if g.tty && got.state == api.ExecRunning {
			waits, err := s.isWaiting(ctx, exec)
			if err == nil && waits && wasWaiting { // it waited at the last check too, and has written nothing since
				return waitResult{}, nil
			}
			if err != nil && !isOutOfReach(err) { // the next poll deals with that
				return waitResult{}, err
			}
			wasWaiting = waits
		}
		if got.state == api.ExecExited && !got.hasOutput {
			// Once the command has ended, the daemon returns at once: it does not
			// wait for output of processes that the command left running.
			if err := pause(ctx, min(pollTime, exitedPollInterval)); err != nil {
				return waitResult{}, err
			}
		}
		if time.Since(lastProgress) >= pollInterval {
			lastProgress = time.Now()
			c.progress(ctx, lastProgress.Sub(began), output.at)
		}
	}
}

// pause waits for a time. The error is that of the context.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// isWaiting reports whether a command on a terminal waits for input.
func (s *server) isWaiting(ctx context.Context, exec string) (bool, error) {
	e, err := s.execInfo(ctx, exec)
	if err != nil {
		return false, err
	}
	session, err := callMethod[api.SessionInfo](ctx, s, api.MethodSessionInfo, api.SessionParams{SessionID: e.SessionID})
	if err != nil {
		return false, err
	}
	return session.Waiting != nil && session.ExecID == exec, nil
}

// progress sends a progress notification, if the client asked for them.
func (c *call) progress(ctx context.Context, passed time.Duration, bytes int64) {
	token := c.request.Params.GetProgressToken()
	if token == nil {
		return
	}
	// A lost notification does no harm: the result follows.
	_ = c.request.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
		ProgressToken: token, Progress: passed.Seconds(),
		Message: fmt.Sprintf("running for %s, %s of output", passed.Round(time.Second), formatBytes(bytes)),
	})
}

// cancelled reports whether the client has cancelled the call, as opposed to being
// disconnected: a disconnected client may come back for its command.
func cancelled(ctx context.Context) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled)
}

// watcher reads output as it arrives, and looks for a pattern in it.
type watcher struct {
	server    *server
	exec      string
	pattern   *regexp.Regexp // nil means none
	at        int64          // offset of the next read
	partial   []byte         // start of a line whose end has not arrived
	partialAt int64
}

func (s *server) watch(exec string, g goal) *watcher {
	return &watcher{server: s, exec: exec, pattern: g.pattern, at: g.from, partialAt: g.from}
}

// pollResult is the result of one poll.
type pollResult struct {
	matched   *line
	hasOutput bool
	more      bool // there may be more output already
	closed    bool // there will be no more output
	state     api.ExecState
}

// poll waits up to wait for output, and looks for the pattern in it.
func (w *watcher) poll(ctx context.Context, wait time.Duration) (pollResult, error) {
	most := int64(readAhead)
	got, err := callMethod[api.ExecOutputResult](ctx, w.server, api.MethodExecOutput, api.ExecOutputParams{
		ExecID: w.exec, From: w.at, MaxBytes: &most, WaitMS: max(wait.Milliseconds(), 0),
	})
	if err != nil {
		return pollResult{}, err
	}
	out := pollResult{hasOutput: got.Next > w.at, more: got.Next-w.at >= most/2, closed: got.Closed, state: got.State}
	if w.pattern != nil && out.hasOutput {
		part := outputRange{span: span{w.at, got.Next}}
		if err := part.add(got); err != nil {
			return pollResult{}, err
		}
		out.matched = w.match(&part)
	}
	w.at = got.Next
	return out, nil
}

// match looks for the pattern in complete lines, and in the last line even if it
// is incomplete: prompts have no newline.
func (w *watcher) match(part *outputRange) *line {
	for _, g := range part.chunks {
		for i, c := range g.data {
			if len(w.partial) == 0 {
				w.partialAt = g.offset + int64(i)
			}
			if c != '\n' && len(w.partial) < maxLine {
				w.partial = append(w.partial, c)
				continue
			}
			if found := w.matchLine(); found != nil {
				return found
			}
			w.partial = w.partial[:0]
		}
	}
	return w.matchLine()
}

func (w *watcher) matchLine() *line {
	if len(w.partial) == 0 {
		return nil
	}
	if text := plain(w.partial); w.pattern.MatchString(text) {
		return &line{w.partialAt, clip(text, lineBytes)}
	}
	return nil
}
