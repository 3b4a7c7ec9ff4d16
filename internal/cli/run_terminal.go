package cli

import (
	"context"
	"os"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/console"
)

// runOnTerminal runs the command with the user's terminal as its own.
func (a *app) runOnTerminal(ctx context.Context, o *runOptions, command string) error {
	in, out, ok := a.terminal()
	if !ok {
		return localError{api.Errorf(api.CodeInvalidRequest, "`trl run -t` needs a terminal as its stdin and stdout").
			WithHint("use `trl run -tn` to run the command on a terminal and only print its output, or leave out -t")}
	}
	env, err := o.shellFlags.environment(os.Environ())
	if err != nil {
		return err
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var limits *api.LimitsInForce // nil: none, or unknown
	config := console.RunConfig{
		Config:  a.consoleConfig(in, out, c, "", 0), // its own session ends with it, so there is no detaching
		Command: o.command(command),
		Create: func(ctx context.Context, size api.TTYSize) (*api.Session, error) {
			created, err := o.createSession(ctx, c, env, &size, oneShotTTL)
			if err == nil {
				limits = created.Limits
			}
			return created, err
		},
		Destroy: func(session string) { a.endSession(c, session) },
	}
	if o.session != "" {
		if config.Session, err = o.findSession(ctx, c); err != nil {
			return err
		}
		config.DetachKey = o.detachKey
		config.Command.Env, config.Command.Cwd = env, o.shellFlags.cwd
	}
	result, err := console.Run(ctx, config)
	if err != nil {
		return repeatSession(o.session, consoleError(err))
	}
	if result == nil {
		return nil // left running
	}
	remarks(result, remarkOptions{ownSession: o.session == "", verbose: true, limits: limits}, a.remark)
	if status := commandStatus(result); status != 0 {
		return exitStatus(status)
	}
	return nil
}

// ttySize returns the size of the terminal that a command gets with -t: that of
// our stdout, if it is one. nil means no terminal.
func (a *app) ttySize(o *runOptions) *api.TTYSize {
	if !o.tty {
		return nil
	}
	size := api.TTYSize{Rows: 24, Cols: 80}
	if out, ok := a.stdout.(*os.File); ok {
		size = console.Size(out)
	}
	return &size
}
