package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// shellOptions is what `trl shell` was told.
type shellOptions struct {
	shellFlags shellFlags
	detach     keyFlag
}

func (a *app) shellCommand() *cobra.Command {
	o := shellOptions{detach: defaultDetach}
	cmd := &cobra.Command{
		Use:   "shell [SESSION]",
		Short: "Work in a session from a prompt of one's own",
		Long: "Read command lines and run each in a session, beside whoever else runs commands\n" +
			"there: a line waits until the command before it has ended. Without SESSION it is a\n" +
			"session of its own, on a terminal, which is ended with the shell.\n\n" +
			"What you type while a command runs goes to it. `exit` or ctrl-d leaves, with the\n" +
			"status of the last command. The detach key leaves a command running (in a session\n" +
			"without a terminal it is always ctrl-\\).",
		Example:           "  trl shell --shell bash\n  trl shell $id",
		ValidArgsFunction: a.completeSessions,
	}
	cmd.DisableFlagsInUseLine = true
	o.shellFlags.register(cmd)
	cmd.Flags().Var(&o.detach, "detach-key", "the `KEY` that leaves while a command runs")
	cmd.RunE = action(func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 1:
			return usage("%q is one argument too many", args[1])
		case len(args) == 1 && (o.shellFlags.shell != "" || o.shellFlags.cwd != "" || len(o.shellFlags.env) > 0):
			return usage("--shell, --cwd and --env are for a new session, and %s is there already", args[0])
		}
		return nil
	}, func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			args = []string{""}
		}
		return a.shell(ctx, &o, args[0])
	})
	return cmd
}

// personShell is a person at a prompt. Its fields belong to the goroutine of
// shell.
type interactiveShell struct {
	app          *app
	options      *shellOptions
	client       *client.Client
	session      string
	ownSession   bool // the session was made for the shell
	tty          bool
	local        *localTerminal
	prompt       *prompt
	keys         *keyboard
	keyboardErrs chan error // of the keyboard

	cwd          string
	lastStatus   int           // of the last command
	lastDuration time.Duration // likewise
}

// shellTTL ends the session of a `trl shell` that was killed. A person may be
// away from the prompt for a night.
const shellTTL = 24 * time.Hour

func (a *app) shell(ctx context.Context, o *shellOptions, session string) (err error) {
	if !isTerminal(a.stdin) || !isTerminal(a.stdout) {
		return localError{api.Errorf(api.CodeInvalidRequest, "`trl shell` needs a terminal as its stdin and stdout").
			WithHint("`trl run -- COMMAND` runs a command in a session of its own, `trl run -s SESSION -- COMMAND` in another")}
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	s := &interactiveShell{app: a, options: o, client: c, session: session, ownSession: session == "", keyboardErrs: make(chan error, 1)}
	local, err := a.newLocalTerminal()
	if err != nil {
		return err
	}
	defer local.close()
	defer local.restoreOnPanic()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.exitTerminalIfDaemonSilent(ctx, c, local, terminalReset)
	s.local, s.prompt = local, newPrompt(local)
	if s.ownSession {
		err = s.create(ctx)
	} else {
		err = s.inspect(ctx)
	}
	if err != nil {
		return err
	}
	s.keys = newKeyboard(c, s.session)
	s.keys.answersQueries = s.tty
	s.keys.onError = func(err error) {
		select {
		case s.keyboardErrs <- err:
		default: // the first is enough
		}
	}
	s.keys.run(ctx, local.start)
	err = s.loop(ctx)
	s.keys.release()
	local.close()
	return s.finish(err)
}

// create makes the session of a shell of one's own.
func (s *interactiveShell) create(ctx context.Context) error {
	where := s.options.shellFlags
	env, err := where.environment(os.LookupEnv)
	if err != nil {
		return err
	}
	size, ttl := s.local.size(), shellTTL.Milliseconds()
	var made api.Session
	err = create(ctx, s.client, api.SessionCreateParams{
		Shell: where.shell, Cwd: where.cwd, Env: env, TTY: &size, Name: "trl shell", IdleTTLMS: &ttl,
	}, &made)
	s.session, s.cwd, s.tty = made.SessionID, made.Cwd, true
	return err
}

// find looks at the session that was named.
func (s *interactiveShell) inspect(ctx context.Context) error {
	info, err := s.client.SessionInfo(ctx, api.SessionParams{SessionID: s.session})
	if err != nil {
		return err
	}
	if info.State == api.StateTerminated {
		return localError{api.Errorf(api.CodeSessionTerminated, "session %s %s", visible(s.session), (&sessionEnded{info.Terminated}).Error()).
			WithHint("`trl shell` alone makes another")}
	}
	if len(info.Argv) > 0 {
		return localError{api.Errorf(api.CodeInvalidRequest, "session %s is one command and no shell", visible(s.session)).
			WithHint("`trl attach %s` shows its terminal; `trl shell` alone makes a session with a shell", visible(s.session))}
	}
	s.cwd, s.tty = info.Cwd, info.TTY != nil
	return nil
}

// loop runs lines until the person leaves.
func (s *interactiveShell) loop(ctx context.Context) error {
	for {
		s.refreshCwd(ctx)
		line, err := s.prompt.line(s.promptText())
		if err != nil {
			s.printLine("")
			return err
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		err = s.run(ctx, line)
		if refused, ok := errors.AsType[*api.Error](err); ok && !fatal(refused) {
			s.printLine("%s", strings.TrimSuffix(describe(refused, false), "\n"))
			continue
		}
		if err != nil {
			return err
		}
	}
}

// fatal reports whether there is nothing more to be done in the session.
func fatal(err *api.Error) bool {
	switch err.Code {
	case api.CodeSessionTerminated, api.CodeSessionNotFound, api.CodeShuttingDown, api.CodeUnauthorized:
		return true
	}
	return false
}

// look notes where the session is: others run commands in it too.
func (s *interactiveShell) refreshCwd(ctx context.Context) {
	if info, err := s.client.SessionInfo(ctx, api.SessionParams{SessionID: s.session}); err == nil && info.Cwd != "" {
		s.cwd = info.Cwd // what went wrong is told by the next command
	}
}

// longCommand is from when on a person wonders how long it took.
const showDurationAfter = time.Second

// text is the prompt: where the session is, and what there is to say of the
// last command.
func (s *interactiveShell) promptText() string {
	var notes []string
	if s.lastStatus != 0 {
		notes = append(notes, fmt.Sprint(s.lastStatus))
	}
	if s.lastDuration > showDurationAfter {
		notes = append(notes, formatDuration(s.lastDuration))
	}
	text := shortPath(s.cwd) + " $ "
	if len(notes) > 0 {
		text = "[" + strings.Join(notes, ", ") + "] " + text
	}
	return text
}

// shortPath is a directory as prompts show it.
func shortPath(dir string) string {
	if home, err := os.UserHomeDir(); err == nil && home != "/" && home != "" {
		if rest, ok := strings.CutPrefix(dir, home); ok && (rest == "" || rest[0] == '/') {
			dir = "~" + rest
		}
	}
	return visible(dir)
}

// say writes lines of this program's own.
func (s *interactiveShell) printLine(format string, args ...any) {
	text := fmt.Sprintf(format, args...) + "\n"
	if !s.local.cooked.Load() {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	_ = s.local.write([]byte(text)) // who can't be told finds out by the next key
}

// errLeft says that the person left a command running.
type errLeftRunning struct{ exec string }

func (e errLeftRunning) Error() string { return "left " + e.exec + " running" }

// leave ends the session if it is the shell's own, and says what is left.
func (s *interactiveShell) finish(err error) error {
	if left, ok := errors.AsType[errLeftRunning](err); ok {
		fmt.Fprintf(s.app.stderr, "trl: %s runs on in %s; ", left.exec, s.session)
		if s.tty {
			fmt.Fprintf(s.app.stderr, "`trl attach --write %s` comes back to it\n", s.session)
		} else {
			fmt.Fprintf(s.app.stderr, "`trl exec output --follow %s` shows it\n", left.exec)
		}
		return nil
	}
	if s.ownSession {
		endSession(s.app, s.client, s.session)
	}
	if sig, ok := errors.AsType[errSignalled](err); ok {
		return exitStatus(statusSignal + int(signalNumber(sig.signal)))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if s.lastStatus != 0 {
		return exitStatus(s.lastStatus)
	}
	return nil
}

// endSession ends a session that nobody else has. What is in it is given the
// usual grace.
func endSession(a *app, c *client.Client, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), oneShotTTL)
	defer cancel()
	_, err := c.DestroySession(ctx, api.SessionDestroyParams{SessionID: id})
	a.reportLeftover(id, err)
}
