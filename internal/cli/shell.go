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

// shellOptions are the flags of `trl shell`.
type shellOptions struct {
	shellFlags shellFlags
	detach     keyFlag
}

func (a *app) shellCommand() *cobra.Command {
	o := shellOptions{detach: defaultDetach}
	cmd := &cobra.Command{
		Use:   "shell [SESSION]",
		Short: "Open a prompt in a session",
		Long: "Read command lines and run each one in a session. Other clients may run commands in\n" +
			"it too: a line waits until the command before it has ended. Without SESSION you get\n" +
			"a new session on a terminal, which ends with the shell.\n\n" +
			"While a command runs, your keys go to it. `exit` or ctrl-d leaves with the status of\n" +
			"the last command. The detach key leaves while the command keeps running (in a\n" +
			"session without a terminal it is always ctrl-\\).",
		Example:           "  trl shell --shell bash\n  trl shell $id",
		ValidArgsFunction: a.completeSessions,
	}
	cmd.DisableFlagsInUseLine = true
	o.shellFlags.register(cmd)
	cmd.Flags().Var(&o.detach, "detach-key", "leave a running command with `KEY`")
	cmd.RunE = action(func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 1:
			return usage("unexpected argument %q", args[1])
		case len(args) == 1 && (o.shellFlags.shell != "" || o.shellFlags.cwd != "" || len(o.shellFlags.env) > 0):
			return usage("--shell, --cwd and --env are for a new session, but %s already exists", args[0])
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

// interactiveShell is a user at the prompt of `trl shell`. Its fields belong to
// the goroutine that runs shell.
type interactiveShell struct {
	app          *app
	options      *shellOptions
	client       *client.Client
	session      string
	ownSession   bool // the session was created for the shell
	tty          bool
	local        *localTerminal
	prompt       *prompt
	keys         *keyboard
	keyboardErrs chan error // errors of the keyboard

	cwd          string
	lastStatus   int           // exit status of the last command
	lastDuration time.Duration // how long it took
}

// shellTTL ends the session of a `trl shell` that was killed. A person may be
// away from the prompt for a night.
const shellTTL = 24 * time.Hour

func (a *app) shell(ctx context.Context, o *shellOptions, session string) (err error) {
	if !isTerminal(a.stdin) || !isTerminal(a.stdout) {
		return localError{api.Errorf(api.CodeInvalidRequest, "`trl shell` needs a terminal as its stdin and stdout").
			WithHint("`trl run -- COMMAND` runs a command in a new session, `trl run -s SESSION -- COMMAND` in an existing one")}
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

// create creates the shell's own session.
func (s *interactiveShell) create(ctx context.Context) error {
	where := s.options.shellFlags
	env, err := where.environment(os.LookupEnv)
	if err != nil {
		return err
	}
	size, ttl := s.local.size(), shellTTL.Milliseconds()
	var created api.Session
	err = create(ctx, s.client, api.SessionCreateParams{
		Shell: where.shell, Cwd: where.cwd, Env: env, TTY: &size, Name: "trl shell", IdleTTLMS: &ttl,
	}, &created)
	s.session, s.cwd, s.tty = created.SessionID, created.Cwd, true
	return err
}

// inspect checks that the named session can be used, and remembers where it is.
func (s *interactiveShell) inspect(ctx context.Context) error {
	info, err := s.client.SessionInfo(ctx, api.SessionParams{SessionID: s.session})
	if err != nil {
		return err
	}
	if info.State == api.StateTerminated {
		return localError{api.Errorf(api.CodeSessionTerminated, "session %s %s", visible(s.session), (&sessionEnded{info.Terminated}).Error()).
			WithHint("run `trl shell` for a new session")}
	}
	if len(info.Argv) > 0 {
		return localError{api.Errorf(api.CodeInvalidRequest, "session %s runs a single command, not a shell", visible(s.session)).
			WithHint("`trl attach %s` shows its terminal; `trl shell` creates a session with a shell", visible(s.session))}
	}
	s.cwd, s.tty = info.Cwd, info.TTY != nil
	return nil
}

// loop runs lines until the user leaves.
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

// fatal reports whether nothing more can be done in the session.
func fatal(err *api.Error) bool {
	switch err.Code {
	case api.CodeSessionTerminated, api.CodeSessionNotFound, api.CodeShuttingDown, api.CodeUnauthorized:
		return true
	}
	return false
}

// refreshCwd updates the session's directory, which other clients may have
// changed.
func (s *interactiveShell) refreshCwd(ctx context.Context) {
	if info, err := s.client.SessionInfo(ctx, api.SessionParams{SessionID: s.session}); err == nil && info.Cwd != "" {
		s.cwd = info.Cwd // the next command reports errors
	}
}

// showDurationAfter is the shortest duration that the prompt shows.
const showDurationAfter = time.Second

// promptText returns the prompt: the session's directory, and the last
// command's status and duration if they are of interest.
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

// shortPath abbreviates a directory for the prompt.
func shortPath(dir string) string {
	if home, err := os.UserHomeDir(); err == nil && home != "/" && home != "" {
		if rest, ok := strings.CutPrefix(dir, home); ok && (rest == "" || rest[0] == '/') {
			dir = "~" + rest
		}
	}
	return visible(dir)
}

// printLine writes messages of this program.
func (s *interactiveShell) printLine(format string, args ...any) {
	text := fmt.Sprintf(format, args...) + "\n"
	if !s.local.cooked.Load() {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	_ = s.local.write([]byte(text)) // if the terminal is gone, reading it fails too
}

// errLeftRunning reports that the user left a command running.
type errLeftRunning struct{ exec string }

func (e errLeftRunning) Error() string { return "left " + e.exec + " running" }

// finish destroys the session if it was created for the shell, and reports what
// is left.
func (s *interactiveShell) finish(err error) error {
	if left, ok := errors.AsType[errLeftRunning](err); ok {
		fmt.Fprintf(s.app.stderr, "trl: %s keeps running in %s; ", left.exec, s.session)
		if s.tty {
			fmt.Fprintf(s.app.stderr, "`trl attach --write %s` returns to it\n", s.session)
		} else {
			fmt.Fprintf(s.app.stderr, "`trl exec output --follow %s` shows its output\n", left.exec)
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

// endSession destroys a session that no one else uses, with the usual grace for
// its processes.
func endSession(a *app, c *client.Client, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), oneShotTTL)
	defer cancel()
	_, err := c.DestroySession(ctx, api.SessionDestroyParams{SessionID: id})
	a.reportLeftover(id, err)
}
