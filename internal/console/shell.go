package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/shellsyntax"
	"github.com/terminal-runtime/trl/internal/units"
)

// Shell reads command lines and runs each one in a session, until the user
// leaves. It returns the exit status of the last command, a SessionError if the
// session cannot be used, and a SignalError if a signal ended it.
func Shell(ctx context.Context, config ShellConfig) (status int, err error) {
	s := newInteractiveShell(&config)
	return s.onTerminal(ctx, s.loop)
}

func newInteractiveShell(config *ShellConfig) *interactiveShell {
	return &interactiveShell{
		config: config, client: config.Client, session: config.Session, ownSession: config.Session == "", keyboardErrs: make(chan error, 1),
	}
}

// onTerminal takes over the local terminal, creates the session if the shell has
// its own, calls fn, and finishes. When it returns, the terminal is restored and
// the keyboard released. A daemon that does not answer can't hold it up, not even
// at the end.
func (s *interactiveShell) onTerminal(ctx context.Context, fn func(context.Context) error) (status int, err error) {
	local, err := newLocalTerminal(s.config.Stdin, s.config.Stdout)
	if err != nil {
		return 0, err
	}
	defer local.close()
	defer local.restoreOnPanic()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	exitIfDaemonSilent(ctx, &s.config.Config, local, terminalReset)
	s.local = local
	if s.ownSession {
		err = s.create(ctx)
	} else {
		err = s.inspect(ctx)
	}
	if err != nil {
		return 0, err
	}
	s.prompt = newPrompt(local, &completer{client: s.client, session: s.session, dialect: shellsyntax.DialectOf(s.shell)})
	s.keys = newKeyboard(s.client, s.session)
	s.keys.answersQueries = s.tty
	s.keys.onError = func(err error) {
		select {
		case s.keyboardErrs <- err:
		default: // the first is enough
		}
	}
	s.keys.run(ctx, local.start)
	err = fn(ctx)
	s.keys.release()
	local.close()
	return s.finish(err)
}

// create creates the shell's own session.
func (s *interactiveShell) create(ctx context.Context) error {
	created, err := s.config.Create(ctx, s.local.size())
	if err != nil {
		return err
	}
	s.session, s.shell, s.cwd, s.tty = created.SessionID, created.Shell, created.Cwd, true
	return nil
}

// inspect checks that the named session can be used, and remembers where it is.
func (s *interactiveShell) inspect(ctx context.Context) error {
	info, err := s.client.SessionInfo(ctx, api.SessionParams{SessionID: s.session})
	if err != nil {
		return err
	}
	if info.State == api.StateTerminated {
		return &SessionError{api.Errorf(api.CodeSessionTerminated, "session %s %s", printable.Text(s.session), (&sessionEnded{info.Terminated}).Error()).
			WithHint("run `trl shell` for a new session")}
	}
	if len(info.Argv) > 0 {
		return &SessionError{api.Errorf(api.CodeInvalidRequest, "session %s runs a single command, not a shell", printable.Text(s.session)).
			WithHint("`trl attach %s` shows its terminal; `trl shell` creates a session with a shell", printable.Text(s.session))}
	}
	s.name, s.shell, s.cwd, s.tty = info.Name, info.Shell, info.Cwd, info.TTY != nil
	return nil
}

// loop runs lines until the user leaves.
func (s *interactiveShell) loop(ctx context.Context) error {
	for {
		s.refresh(ctx)
		line, err := s.prompt.line(ctx, s.promptText())
		if err != nil {
			s.printLine("")
			return err
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		err = s.run(ctx, line)
		if refused, ok := errors.AsType[*api.Error](err); ok && !fatal(refused) {
			s.printLine("%s", strings.TrimSuffix(s.config.Describe(refused), "\n"))
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

// refresh updates what the prompt shows of the session, which other clients may
// have changed.
func (s *interactiveShell) refresh(ctx context.Context) {
	info, err := s.client.SessionInfo(ctx, api.SessionParams{SessionID: s.session})
	if err != nil {
		return // the next command reports it
	}
	s.cwd = cmp.Or(info.Cwd, s.cwd)
	s.background = backgroundJobs(info)
}

// backgroundJobs counts the processes that earlier commands left running; the
// processes that they started count with them.
func backgroundJobs(info *api.SessionInfo) int {
	started := map[int]bool{}
	for _, p := range info.Processes {
		if p.Role == "" && (info.ExecID == "" || p.ExecID != info.ExecID) {
			started[p.PID] = true
		}
	}
	n := 0
	for _, p := range info.Processes {
		if started[p.PID] && !started[p.PPID] {
			n++
		}
	}
	return n
}

// showDurationAfter is the shortest duration that the prompt shows.
const showDurationAfter = time.Second

// promptText returns the prompt: the session's name and directory, and if they
// are of interest the last command's status and duration and what runs in the
// background.
func (s *interactiveShell) promptText() string {
	var notes []string
	if s.lastStatus != 0 {
		notes = append(notes, fmt.Sprint(s.lastStatus))
	}
	if s.lastDuration > showDurationAfter {
		notes = append(notes, units.Duration(s.lastDuration))
	}
	if s.background > 0 {
		notes = append(notes, fmt.Sprintf("%d in background", s.background))
	}
	text := shortPath(s.cwd) + " $ "
	if s.name != "" {
		text = printable.Text(s.name) + ": " + text
	}
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
	return printable.Text(dir)
}

// finish destroys the session if it was created for the shell, and reports what
// is left.
func (s *interactiveShell) finish(err error) (status int, _ error) {
	if left, ok := errors.AsType[errLeftRunning](err); ok {
		fmt.Fprintf(s.config.Stderr, "trl: %s keeps running in %s; ", left.exec, s.session)
		if s.tty {
			fmt.Fprintf(s.config.Stderr, "`trl attach --write %s` returns to it\n", s.session)
		} else {
			fmt.Fprintf(s.config.Stderr, "`trl exec output --follow %s` shows its output\n", left.exec)
		}
		return 0, nil
	}
	if s.ownSession && s.session != "" {
		s.config.Destroy(s.session)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return s.lastStatus, nil
}
