package mcp

import (
	"context"
	"regexp"
	"time"

	"github.com/terminal-runtime/trl/api"
)

type outputArguments struct {
	Exec    string   `json:"exec,omitempty" jsonschema:"id of the command"`
	Session string   `json:"session,omitempty" jsonschema:"instead: the running or last command of this session; default main"`
	From    *int64   `json:"from,omitempty" jsonschema:"show from this byte offset on; negative: so many bytes before the end; default: head and tail"`
	Stream  string   `json:"stream,omitempty" jsonschema:"stdout|stderr: only this stream of a command that was run with split; default all there is"`
	Until   string   `json:"until,omitempty" jsonschema:"exit|pattern|idle: wait first, until it ends, until a line matches pattern, or until there was no output for idle_s"`
	Pattern string   `json:"pattern,omitempty" jsonschema:"regular expression (RE2) for one line; is looked for from offset 'from' on, default 0"`
	IdleS   *float64 `json:"idle_s,omitempty" jsonschema:"0..50: seconds without output, default 2"`
	WaitS   *float64 `json:"wait_s,omitempty" jsonschema:"0..50: seconds to wait at most, default 50 with until, else 0"`
	Search  string   `json:"search,omitempty" jsonschema:"instead of showing output: the lines that match this regular expression (RE2), with offsets"`
	Context int      `json:"context,omitempty" jsonschema:"0..5: lines shown before and after each that was searched for"`
}

// The ways to wait.
const (
	untilExit    = "exit"
	untilPattern = "pattern"
	untilIdle    = "idle"
)

// defaultIdle is for how long an output is quiet when a program has said what it
// had to say.
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
	var why reached
	if g.waits {
		if why, err = s.follow(ctx, c, exec, g.goal, clock(a.WaitS, maxWait)); err != nil {
			return nil, err
		}
		if e, err = s.look(ctx, exec); err != nil {
			return nil, err
		}
	}
	r, err := s.standing(ctx, e)
	if err != nil {
		return nil, err
	}
	r.Stream, r.Matched = a.Stream, why.matched
	switch {
	case why.late && g.pattern != nil:
		r.note("nothing has matched the pattern yet")
	case g.pattern != nil && why.matched == nil && e.State == api.ExecExited:
		r.note("it has ended, and nothing matched the pattern")
	case why.idle:
		r.note("it has been quiet for %s", g.idle)
	}
	if a.Search != "" {
		err := s.search(ctx, c, r, a, from)
		r.goOn()
		return r, err
	}
	stream := api.ChunkType(a.Stream)
	var o *shown
	if a.From == nil {
		o, err = s.excerpt(ctx, exec, stream, r.Size, c.room)
	} else {
		o, err = s.page(ctx, exec, stream, from, r.Size, c.room)
	}
	if err != nil {
		return nil, err
	}
	r.show(o)
	r.goOn()
	return r, nil
}

// begin is the offset that a call begins at.
func (a *outputArguments) begin(size int64) (int64, error) {
	switch {
	case a.From == nil:
		return 0, nil
	case *a.From < 0:
		return max(size+*a.From, 0), nil
	case *a.From > size:
		return 0, api.Errorf(api.CodeInvalidParams, "output: from is past the end: there are %s so far", bytesOf(size))
	}
	return *a.From, nil
}

// waitGoal is what a call waits for, if it waits.
type waitGoal struct {
	goal
	waits bool
}

// goal is what the arguments ask to wait for.
func (a *outputArguments) goal() (g waitGoal, err error) {
	until := a.Until
	if until == "" {
		switch { // what else can be meant
		case a.Pattern != "":
			until = untilPattern
		case a.IdleS != nil:
			until = untilIdle
		case a.WaitS != nil && *a.WaitS > 0:
			until = untilExit
		}
	}
	g.waits = until != ""
	switch until {
	case untilPattern:
		if a.Pattern == "" {
			return g, api.Errorf(api.CodeInvalidParams, "output: until pattern needs a pattern")
		}
		g.pattern, err = compile("pattern", a.Pattern)
	case untilIdle:
		g.idle = max(clock(a.IdleS, defaultIdle), time.Millisecond)
	}
	return g, err
}

func compile(argument, text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidParams, "output: %s is no regular expression: %w", argument, err).
			WithHint("it is RE2 syntax, without lookarounds and backreferences; (?i) ignores case")
	}
	return re, nil
}
