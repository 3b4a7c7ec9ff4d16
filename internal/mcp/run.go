package mcp

import (
	"context"
	"crypto/rand"
	"strings"
	"time"
	"unicode"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

type runArguments struct {
	Command   string            `json:"command" jsonschema:"shell command; may have many lines"`
	Session   string            `json:"session,omitempty" jsonschema:"name of the session, made when new; default main. Use several to work in parallel"`
	Cwd       string            `json:"cwd,omitempty" jsonschema:"directory for this command alone; use cd to stay there"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"variables for this command alone"`
	Secrets   []string          `json:"secrets,omitempty" jsonschema:"names of secrets to give to this command as variables of that name"`
	Stdin     *string           `json:"stdin,omitempty" jsonschema:"what it reads; default: end of input at once"`
	Split     bool              `json:"split,omitempty" jsonschema:"keep stdout and stderr apart, so that output can show one alone; default: one stream, in true order"`
	OpenStdin bool              `json:"open_stdin,omitempty" jsonschema:"keep stdin open for input; with tty it always is"`
	TTY       bool              `json:"tty,omitempty" jsonschema:"run on a terminal, for programs that ask or draw; default session is then terminal"`
	WaitS     *float64          `json:"wait_s,omitempty" jsonschema:"0..50: seconds to wait for its end, default 30; it goes on after that"`
	TimeoutS  *float64          `json:"timeout_s,omitempty" jsonschema:"stop it after so many seconds; default never"`
	Label     string            `json:"label,omitempty" jsonschema:"what to call it in sessions; default its first plain words"`
}

// maxLabel is how much of a command names it in lists: less than what the
// daemon takes.
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
	session, err := s.open(ctx, c, name, a.TTY)
	if err != nil {
		return nil, err
	}
	wait := clock(a.WaitS, defaultWait)
	none := int64(0)
	params := api.ExecRunParams{
		ExecCommand:    api.ExecCommand{SessionID: session.SessionID, Command: a.Command, Env: env, Cwd: a.Cwd, Stdin: a.Stdin, StdinOpen: a.OpenStdin && session.TTY == nil, Merge: !a.Split, Wait: true, Key: rand.Text(), Label: label(a)},
		MaxOutputBytes: &none,
		YieldOnInput:   session.TTY != nil,
		YieldMS:        max(min(wait, beat).Milliseconds(), 1),
	}
	if a.TimeoutS != nil {
		params.TimeoutMS = ptr(int64(*a.TimeoutS * 1000))
	}
	began := time.Now()
	result, err := s.start(ctx, params)
	if err != nil {
		return nil, err
	}
	if result.State != api.ExecExited {
		if err := s.await(ctx, c, result, session, wait-time.Since(began)); err != nil {
			return nil, err
		}
	}
	return s.reportOf(ctx, c, result.ExecID)
}

// start runs the command, and stops it if the client has cancelled the call
// meanwhile. The question is not abandoned with the call: which command to stop
// is in its answer, which comes within a beat.
func (s *server) start(ctx context.Context, params api.ExecRunParams) (*api.ExecResult, error) {
	asking, done := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer done()
	result, err := ask[api.ExecResult](asking, s, api.MethodExecRun, params)
	if err == nil && cancelled(ctx) {
		s.cancel(asking, result.ExecID)
		return nil, ctx.Err()
	}
	return result, err
}

// await waits for the end of a command that was just started, and stops it if
// the client cancels the call.
func (s *server) await(ctx context.Context, c *call, e *api.ExecResult, session *api.Session, wait time.Duration) error {
	g := goal{tty: session.TTY != nil}
	if g.tty {
		if waits, err := s.waits(ctx, e.ExecID); err != nil || waits {
			return err
		}
	}
	_, err := s.follow(ctx, c, e.ExecID, g, wait)
	if err != nil && cancelled(ctx) {
		s.cancel(context.WithoutCancel(ctx), e.ExecID)
	}
	return err
}

// cancel stops a command whose caller no longer wants it.
func (s *server) cancel(ctx context.Context, exec string) {
	if _, err := ask[api.ExecCancelResult](ctx, s, api.MethodExecCancel, api.ExecCancelParams{ExecID: exec}); err != nil && s.Log != nil {
		s.Log.WarnContext(ctx, "a cancelled command could not be stopped", "exec_id", exec, "error", err)
	}
}

// reportOf tells how a command stands, with head and tail of its output.
func (s *server) reportOf(ctx context.Context, c *call, exec string) (*report, error) {
	e, err := s.look(ctx, exec)
	if err != nil {
		return nil, err
	}
	r, err := s.standing(ctx, e)
	if err != nil {
		return nil, err
	}
	if full, err := s.drawn(ctx, r, e); full || err != nil {
		r.goOn()
		return r, err
	}
	o, err := s.excerpt(ctx, exec, "", r.Size, c.room)
	if err != nil {
		return nil, err
	}
	r.show(o)
	r.goOn()
	return r, nil
}

// drawn says whether a program has the whole screen. Its output is then how it
// drew that, which tells nobody anything: the screen does.
func (s *server) drawn(ctx context.Context, r *report, e *api.ExecResult) (bool, error) {
	if e.TTY == nil || e.State != api.ExecRunning {
		return false, nil
	}
	screen, err := ask[api.SessionScreenResult](ctx, s, api.MethodSessionScreen, api.SessionScreenParams{SessionID: e.SessionID})
	if err != nil || !screen.Alternate {
		return false, err
	}
	r.Next = r.Size
	r.LeftOut = []span{{0, r.Size}}
	r.note("a program has the whole screen: %s shows it", invoke(toolScreen, "session", r.Session))
	return true, nil
}

// label is what a command is called in lists: what its caller calls it, or else
// its first words, as far as they can't be secrets. Those stand in options, in
// assignments, in quotes, or are long.
func label(a runArguments) string {
	if a.Label != "" {
		given := strings.Join(strings.Fields(a.Label), " ")
		if !printable.Line(given) { // the daemon takes no other label
			given = printable.Text(given)
		}
		return clip(given, maxLabel)
	}
	var told []string
	words := strings.Fields(a.Command)
	for _, word := range words {
		bare := strings.TrimRight(word, ";&|)")
		if len(told) == maxWords || !isPlainWord(bare) {
			break
		}
		told = append(told, bare)
		if bare != word { // the command ends here
			break
		}
	}
	if len(told) < len(words) {
		told = append(told, "…")
	}
	return clip(strings.Join(told, " "), maxLabel)
}

const (
	// maxWords is how many words name a command.
	maxWords = 5
	// maxWord is how long one of them may be: names of files are shorter, keys
	// are longer.
	maxWord = 30
)

func isPlainWord(word string) bool {
	return word != "" && len(word) <= maxWord && word[0] != '-' &&
		strings.IndexFunc(word, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._/+,~%-[", r)
		}) < 0
}
