package mcp

import (
	"context"
	"crypto/rand"
	"regexp"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

type runArguments struct {
	Command   string            `json:"command" jsonschema:"shell command; may have several lines"`
	Session   string            `json:"session,omitempty" jsonschema:"name of the session, created if new; default main. Use several to work in parallel"`
	Place     string            `json:"place,omitempty" jsonschema:"where a new session runs: host, docker:NAME, ssh:HOST or another place that sessions lists; later calls need only the session"`
	Sandbox   string            `json:"sandbox,omitempty" jsonschema:"confine a new session: workspace (writes only its directory, reaches package registries), offline or readonly"`
	Cwd       string            `json:"cwd,omitempty" jsonschema:"directory for this command only; use cd to stay there"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"variables for this command only"`
	Secrets   []string          `json:"secrets,omitempty" jsonschema:"names of secrets to pass to this command as variables of the same name"`
	Stdin     *string           `json:"stdin,omitempty" jsonschema:"text for its standard input; default: none, it reads end of file"`
	Split     bool              `json:"split,omitempty" jsonschema:"keep stdout and stderr apart, so that output can show one of them; default: one stream, in the order written"`
	OpenStdin bool              `json:"open_stdin,omitempty" jsonschema:"keep stdin open for input; with tty it always is"`
	TTY       bool              `json:"tty,omitempty" jsonschema:"run on a terminal, for programs that prompt or draw; the default session is then terminal"`
	WaitS     *float64          `json:"wait_s,omitempty" jsonschema:"0..50: seconds to wait for its end, default 30; it keeps running after that"`
	TimeoutS  *float64          `json:"timeout_s,omitempty" jsonschema:"stop it after this many seconds; default never"`
	Label     string            `json:"label,omitempty" jsonschema:"what sessions calls it; default its program and subcommand"`
}

// maxLabel is the maximum length of a label in bytes: less than the daemon accepts.
const maxLabel = 100

func (s *server) run(ctx context.Context, c *call, a runArguments) (*report, error) {
	env, err := s.environment(a.Env, a.Secrets)
	if err != nil {
		return nil, err
	}
	name := a.Session
	if name == "" {
		name = mainSession
		if a.TTY {
			name = terminalSession
		}
	}
	session, err := s.findOrCreate(ctx, c, name, wish{place: a.Place, sandbox: a.Sandbox, tty: a.TTY})
	if err != nil {
		return nil, err
	}
	wait := secondsOr(a.WaitS, defaultWait)
	none := int64(0)
	params := api.ExecRunParams{
		ExecCommand:    api.ExecCommand{SessionID: session.SessionID, Command: a.Command, Env: env, Cwd: a.Cwd, Stdin: a.Stdin, StdinOpen: a.OpenStdin && session.TTY == nil, Merge: !a.Split, Wait: true, Key: rand.Text(), Label: oneLine(a.Label)},
		MaxOutputBytes: &none,
		YieldOnInput:   session.TTY != nil,
		YieldMS:        max(min(wait, pollInterval).Milliseconds(), 1),
	}
	if a.TimeoutS != nil {
		params.TimeoutMS = ptr(int64(*a.TimeoutS * 1000))
	}
	began := time.Now()
	result, err := s.start(ctx, params, began.Add(wait))
	if err != nil {
		return nil, err
	}
	if result.State != api.ExecExited {
		if err := s.await(ctx, c, result, session, wait-time.Since(began)); err != nil {
			return nil, asDone(err, "the command was started", result.ExecID)
		}
	}
	r, err := s.execReport(ctx, result.ExecID, func(size int64) (*shownOutput, error) {
		return s.excerpt(ctx, result.ExecID, "", size, c.room)
	})
	if err == nil && a.Stdin == nil && !a.OpenStdin && session.TTY == nil && r.State == string(api.ExecExited) && seeksInput(a.Command, r.Output) {
		r.note("its stdin was empty: give stdin, or tty: true if it asks questions")
	}
	return r, asDone(err, "the command was started", result.ExecID)
}

var (
	// readCommand matches the builtin read, unless it reads from a pipe or a file.
	readCommand = regexp.MustCompile(`(?m)(?:^|;|&&|\|\|)[ \t]*(?:IFS=\S*[ \t]+)?read(?:[ \t][^<|;&\n]*)?(?:$|;|&&|\|\|)`)
	// missingInput matches what programs print that find no input or no terminal.
	missingInput = regexp.MustCompile(`(?i)EOF when reading|(?:is|are) not a (?:tty|terminal)|no tty present|terminal is required`)
)

// seeksInput reports whether a command without stdin probably wanted some.
func seeksInput(command, output string) bool {
	return readCommand.MatchString(command) || missingInput.MatchString(output)
}

// start runs the command, and stops it if the client has cancelled the call
// meanwhile. The request to the daemon is not cancelled with the call: its answer
// names the command to stop. If the place of the session goes out of reach before it
// has answered, start repeats the request until the deadline: the key of the command
// makes sure that it runs only once.
func (s *server) start(ctx context.Context, params api.ExecRunParams, deadline time.Time) (*api.ExecResult, error) {
	requestCtx, done := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer done()
	for possible := false; ; { // possible: a request may have started it
		result, err := callMethod[api.ExecResult](requestCtx, s, api.MethodExecRun, params)
		if err == nil && cancelled(ctx) {
			s.cancel(requestCtx, result.ExecID)
			return nil, ctx.Err()
		}
		possible = possible || isOutOfReach(err) && api.AsError(err).Details["sent"] == "maybe"
		if !isOutOfReach(err) || !possible {
			return result, err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil, asPossible(err)
		}
		if err := pause(requestCtx, min(left, pollInterval)); err != nil {
			return nil, err
		}
	}
}

// await waits for the end of a command that was just started, and stops it if
// the client cancels the call.
func (s *server) await(ctx context.Context, c *call, e *api.ExecResult, session *api.Session, wait time.Duration) error {
	g := goal{tty: session.TTY != nil}
	if g.tty {
		waits, err := s.isWaiting(ctx, e.ExecID)
		if waits || err != nil && !isOutOfReach(err) {
			return err
		}
	}
	_, err := s.follow(ctx, c, e.ExecID, g, wait)
	if err != nil && cancelled(ctx) {
		s.cancel(context.WithoutCancel(ctx), e.ExecID)
	}
	return err
}

// cancel stops the command of a cancelled call.
func (s *server) cancel(ctx context.Context, exec string) {
	if _, err := callMethod[api.ExecCancelResult](ctx, s, api.MethodExecCancel, api.ExecCancelParams{ExecID: exec}); err != nil && s.Log != nil {
		s.Log.WarnContext(ctx, "cannot stop the command of a cancelled call", "exec_id", exec, "error", err)
	}
}

// execReport reports the state of a command, with the output that read returns for
// an output of that size. It does not call read while a program uses the whole
// screen.
func (s *server) execReport(ctx context.Context, exec string, read func(size int64) (*shownOutput, error)) (*report, error) {
	e, err := s.execInfo(ctx, exec)
	if err != nil {
		return nil, err
	}
	r, err := s.newReport(ctx, e)
	if err != nil {
		return nil, err
	}
	if full, err := s.isFullScreen(ctx, r, e); full || err != nil {
		r.addNextCalls()
		return r, err
	}
	o, err := read(r.Size)
	if err != nil {
		return nil, err
	}
	r.show(o)
	r.addNextCalls()
	return r, nil
}

// isFullScreen reports whether a program uses the whole screen. Its output is then
// made of drawing instructions; the report refers to the tool screen instead.
func (s *server) isFullScreen(ctx context.Context, r *report, e *api.ExecResult) (bool, error) {
	if e.TTY == nil || e.State != api.ExecRunning {
		return false, nil
	}
	screen, err := callMethod[api.SessionScreenResult](ctx, s, api.MethodSessionScreen, api.SessionScreenParams{SessionID: e.SessionID})
	if err != nil || !screen.Alternate {
		return false, err
	}
	r.Next = r.Size
	r.LeftOut = []span{{0, r.Size}}
	r.note("a program uses the whole screen: %s shows it", invoke(toolScreen, "session", r.Session))
	return true, nil
}

// oneLine returns a label as the daemon accepts it: on one line, without invisible
// characters. For a command without one the daemon makes a label itself.
func oneLine(label string) string {
	label = strings.Join(strings.Fields(label), " ")
	if !printable.Line(label) {
		label = printable.Text(label)
	}
	return clip(label, maxLabel)
}
