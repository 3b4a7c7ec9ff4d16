package console

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// interactiveShell is a user at the prompt of `trl shell`. Its fields belong to
// the goroutine that runs Shell.
type interactiveShell struct {
	config       *ShellConfig
	client       *client.Client
	session      string
	ownSession   bool // the session was created for the shell
	tty          bool
	local        *localTerminal
	prompt       *prompt
	keys         *keyboard
	keyboardErrs chan error // errors of the keyboard

	name         string // of the session, if another client named it
	shell        string // path of the session's shell
	cwd          string
	background   int           // processes that earlier commands left running
	lastStatus   int           // exit status of the last command
	lastDuration time.Duration // how long it took
}

// errLeftRunning reports that the user left a command running.
type errLeftRunning struct{ exec string }

func (e errLeftRunning) Error() string { return "left " + e.exec + " running" }

// printLine writes messages of this program.
func (s *interactiveShell) printLine(format string, args ...any) {
	text := fmt.Sprintf(format, args...) + "\n"
	if !s.local.cooked.Load() {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	_ = s.local.write([]byte(text)) // if the terminal is gone, reading it fails too
}

// asksToExit matches a line that asks its shell to exit. Without being asked, dash
// and mksh exit at a syntax error, and every shell with `set -e`; the session then
// goes on in a copy of the shell, and so does the prompt.
var asksToExit = regexp.MustCompile(`(^|[^\w./-])(exit|logout|exec)($|[^\w./-])`)

// recordResult records how a command ended and prints remarks. It returns
// io.EOF if the command was to exit the shell, and did.
func (s *interactiveShell) recordResult(command string, e *api.ExecResult, asked bool) error {
	s.lastStatus, s.lastDuration = s.config.Status(e), time.Duration(e.DurationMS)*time.Millisecond
	s.config.Remarks(e, asked, func(text string) { s.printLine("trl: %s", text) })
	if e.Outcome == api.OutcomeShellExited && asksToExit.MatchString(command) {
		return io.EOF
	}
	return nil
}
