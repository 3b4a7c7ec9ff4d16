package mcp

import (
	"context"
	"regexp"
	"time"

	"github.com/terminal-runtime/trl/api"
)

type outputArguments struct {
	Exec    string   `json:"exec,omitempty" jsonschema:"id of the command"`
	Session string   `json:"session,omitempty" jsonschema:"instead of exec: the running or last command of this session; default main"`
	From    *int64   `json:"from,omitempty" jsonschema:"show from this byte offset on; negative: this many bytes before the end; default: head and tail"`
	Stream  string   `json:"stream,omitempty" jsonschema:"stdout|stderr: only this stream of a command that was run with split; default all output"`
	Until   string   `json:"until,omitempty" jsonschema:"exit|pattern|idle: first wait until it ends, until a line matches pattern, or until there was no output for idle_s"`
	Pattern string   `json:"pattern,omitempty" jsonschema:"regular expression (RE2) for one line, searched from offset 'from' on, default 0"`
	IdleS   *float64 `json:"idle_s,omitempty" jsonschema:"0..50: seconds without output, default 2"`
	WaitS   *float64 `json:"wait_s,omitempty" jsonschema:"0..50: maximum seconds to wait, default 50 with until, else 0"`
	Search  string   `json:"search,omitempty" jsonschema:"show only the lines that match this regular expression (RE2), with offsets"`
	Context int      `json:"context,omitempty" jsonschema:"0..5: with search, lines to show before and after each match"`
}

// Values of the argument until.
const (
	untilExit    = "exit"
	untilPattern = "pattern"
	untilIdle    = "idle"
)

// defaultIdle is how long an output must be quiet to be considered complete for now.
const defaultIdle = 2 * time.Second

func (s *server) output(ctx context.Context, c *call, a outputArguments) (*report, error) {
	g, err := a.goal()
	if err != nil {
		return nil, err
	}
	e, err := s.target(ctx, a.Exec, a.Session)
	if err != nil {
		return nil, err
	}
	exec := e.ExecID
	from, err := a.begin(e.StdoutBytes + e.StderrBytes)
	if err != nil {
		return nil, err
	}
	g.from, g.tty = from, e.TTY != nil
	var waited waitResult
	if g.enabled {
		if waited, err = s.follow(ctx, c, exec, g.goal, secondsOr(a.WaitS, maxWait)); err != nil {
			return nil, err
		}
		if e, err = s.execInfo(ctx, exec); err != nil {
			return nil, err
		}
	}
	r, err := s.newReport(ctx, e)
	if err != nil {
		return nil, err
	}
	r.Stream, r.Matched = a.Stream, waited.matched
	switch {
	case waited.timedOut && g.pattern != nil:
		r.note("nothing has matched the pattern yet")
	case g.pattern != nil && waited.matched == nil && e.State == api.ExecExited:
		r.note("it has ended, and nothing matched the pattern")
	case waited.idle:
		r.note("it has been quiet for %s", g.idle)
	}
	if a.Search != "" {
		err := s.search(ctx, c, r, a, from)
		r.addNextCalls()
		return r, err
	}
	stream := api.ChunkType(a.Stream)
	var o *shownOutput
	if a.From == nil {
		o, err = s.excerpt(ctx, exec, stream, r.Size, c.room)
	} else {
		o, err = s.page(ctx, exec, stream, from, r.Size, c.room)
	}
	if err != nil {
		return nil, err
	}
	r.show(o)
	r.addNextCalls()
	return r, nil
}

// begin returns the offset where the shown or searched output begins.
func (a *outputArguments) begin(size int64) (int64, error) {
	switch {
	case a.From == nil:
		return 0, nil
	case *a.From < 0:
		return max(size+*a.From, 0), nil
	case *a.From > size:
		return 0, api.Errorf(api.CodeInvalidParams, "output: from is past the end: the output has %s so far", formatBytes(size))
	}
	return *a.From, nil
}

// waitGoal is what a call waits for. enabled is false if it does not wait.
type waitGoal struct {
	goal
	enabled bool
}

// goal returns what the arguments ask to wait for.
func (a *outputArguments) goal() (g waitGoal, err error) {
	until := a.Until
	if until == "" {
		switch { // infer it from the other arguments
		case a.Pattern != "":
			until = untilPattern
		case a.IdleS != nil:
			until = untilIdle
		case a.WaitS != nil && *a.WaitS > 0:
			until = untilExit
		}
	}
	g.enabled = until != ""
	switch until {
	case untilPattern:
		if a.Pattern == "" {
			return g, api.Errorf(api.CodeInvalidParams, "output: until pattern needs a pattern")
		}
		g.pattern, err = compile("pattern", a.Pattern)
	case untilIdle:
		g.idle = max(secondsOr(a.IdleS, defaultIdle), time.Millisecond)
	}
	return g, err
}

func compile(argument, text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidParams, "output: %s is not a valid regular expression: %w", argument, err).
			WithHint("use RE2 syntax, without lookarounds and backreferences; (?i) ignores case")
	}
	return re, nil
}
