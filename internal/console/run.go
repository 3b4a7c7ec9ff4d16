package console

import (
	"context"

	"github.com/terminal-runtime/trl/api"
)

// Run runs one command in a session, with the local terminal as its own: its
// output is copied unchanged, and keys go to it. The session must have a
// terminal. Run returns the result of the command, or nil if the user left it
// running. If a signal ended Run, it returns a SignalError, and has cancelled the
// command.
func Run(ctx context.Context, config RunConfig) (*api.ExecResult, error) {
	s := newInteractiveShell(&ShellConfig{Config: config.Config, Create: config.Create, Destroy: config.Destroy})
	var result *api.ExecResult
	_, err := s.onTerminal(ctx, func(ctx context.Context) (err error) {
		result, err = s.newLine().execute(ctx, config.Command)
		return err
	})
	return result, err
}
