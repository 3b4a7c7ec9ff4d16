package cli

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/console"
)

// shellOptions are the flags of `trl shell`.
type shellOptions struct {
	shellFlags shellFlags
	detach     console.Key
}

func (a *app) shellCommand() *cobra.Command {
	o := shellOptions{detach: console.DefaultDetachKey}
	cmd := &cobra.Command{
		Use:   "shell [SESSION]",
		Short: "Open a prompt in a session",
		Long: "Read commands and run each one in a session. Other clients may run commands in\n" +
			"it too: yours waits until the one before it has ended. Without SESSION you get\n" +
			"a new session on a terminal, which ends with the shell.\n\n" +
			"TAB completes commands and files as the session sees them, ctrl-r searches the\n" +
			"history, which is never saved. An open quote, loop or here-document continues on\n" +
			"the next line; ctrl-c drops it. A paste is one command.\n\n" +
			"While a command runs, your keys go to it. `exit` or ctrl-d leaves with the status of\n" +
			"the last command. The detach key leaves while the command keeps running (in a\n" +
			"session without a terminal it is always ctrl-\\).",
		Example:           "  trl shell --shell bash\n  trl shell $id\n  trl shell --place ssh:build.example.com",
		ValidArgsFunction: a.completeSessions,
	}
	o.shellFlags.register(a, cmd)
	cmd.Flags().Var(&o.detach, "detach-key", "leave a running command with `KEY`")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usage("unexpected argument %q", args[1])
		}
		if flag := firstSetFlag(cmd, slices.Concat(confineFlagNames, []string{"place", "shell", "cwd", "env", "env-from-here"})...); len(args) == 1 && flag != "" {
			return usage("--%s is for a new session, but %s already exists", flag, args[0])
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

// shellTTL ends the session of a `trl shell` that was killed. A person may be
// away from the prompt for a night.
const shellTTL = 24 * time.Hour

func (a *app) shell(ctx context.Context, o *shellOptions, session string) error {
	in, out, ok := a.terminal()
	if !ok {
		return localError{api.Errorf(api.CodeInvalidRequest, "`trl shell` needs a terminal as its stdin and stdout").
			WithHint("`trl run -- COMMAND` runs a command in a new session, `trl run -s SESSION -- COMMAND` in an existing one")}
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ref := session
	if ref != "" {
		if session, err = findSession(ctx, c, ref); err != nil {
			return err
		}
	}
	var limits *api.LimitsInForce // nil: none, or unknown
	status, err := console.Shell(ctx, console.ShellConfig{
		Config: a.consoleConfig(in, out, c, session, o.detach),
		Create: func(ctx context.Context, size api.TTYSize) (*api.Session, error) {
			created, err := o.createSession(ctx, c, size)
			if err == nil {
				limits = created.Limits
			}
			return created, err
		},
		Destroy: func(session string) { a.endSession(c, session) },
		Status:  commandStatus,
		Remarks: func(e *api.ExecResult, cancelledByUser bool, tell func(string)) {
			remarks(e, remarkOptions{cancelledByUser: cancelledByUser, verbose: true, limits: limits}, tell)
		},
		Describe: func(e *api.Error) string { return describe(e, false) },
	})
	if err != nil {
		return repeatSession(ref, consoleError(err))
	}
	if status != 0 {
		return exitStatus(status)
	}
	return nil
}

// createSession creates the session of a shell, on a terminal of the given size.
func (o *shellOptions) createSession(ctx context.Context, c *client.Client, size api.TTYSize) (*api.Session, error) {
	env, err := o.shellFlags.environment(os.Environ())
	if err != nil {
		return nil, err
	}
	ttl := shellTTL.Milliseconds()
	params := newSession{SessionCreateParams: api.SessionCreateParams{Env: env, TTY: &size, Name: "trl shell", IdleTTLMS: &ttl}}
	if err := o.shellFlags.apply(&params); err != nil {
		return nil, err
	}
	var created api.Session
	err = create(ctx, c, params, &created)
	return &created, err
}

// endSession destroys a session that no one else uses, with the usual grace for
// its processes.
func (a *app) endSession(c *client.Client, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), oneShotTTL)
	defer cancel()
	_, err := c.DestroySession(ctx, api.SessionDestroyParams{SessionID: id})
	a.reportLeftover(id, err)
}
