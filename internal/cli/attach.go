package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/console"
)

// attachOptions are the flags of `trl attach`.
type attachOptions struct {
	write, readOnly bool
	detach          console.Key
}

func (a *app) attachCommand() *cobra.Command {
	o := attachOptions{detach: console.DefaultDetachKey}
	cmd := &cobra.Command{
		Use:   "attach SESSION",
		Short: "Show a session's terminal and type on it",
		Long: "Show the terminal of a session that was created with --tty. You type on it until\n" +
			"you press the detach key; the session keeps running.\n\n" +
			"While you type, other clients can't, and they see your name. It is read-only when\n" +
			"the session is a shell (another client runs commands in it), or when someone else\n" +
			"is typing or typed within the last minute. Then q quits, and --write takes the\n" +
			"keyboard.",
		Example:           "  trl attach $id\n  trl attach --write $id        # take the keyboard from whoever has it",
		ValidArgsFunction: a.completeSessions,
	}
	cmd.Flags().BoolVarP(&o.write, "write", "w", false, "take the keyboard, from another client if necessary")
	cmd.Flags().BoolVarP(&o.readOnly, "read-only", "r", false, "never type")
	cmd.Flags().Var(&o.detach, "detach-key", "detach with `KEY`")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if o.write && o.readOnly {
			return usage("--write and --read-only exclude each other")
		}
		return exactArgs("SESSION")(cmd, args)
	}, func(ctx context.Context, args []string) error { return a.attach(ctx, &o, args[0]) })
	return cmd
}

func (a *app) attach(ctx context.Context, o *attachOptions, session string) error {
	in, out, ok := a.terminal()
	if !ok {
		return localError{api.Errorf(api.CodeInvalidRequest, "`trl attach` needs a terminal as its stdin and stdout").
			WithHint("`trl screen %s` prints the session's screen; `trl exec output --follow EXEC` prints a command's output", session)}
	}
	return a.withSession(ctx, session, func(c *client.Client, id string) error {
		return consoleError(console.Attach(ctx, console.AttachConfig{
			Config: a.consoleConfig(in, out, c, id, o.detach), Write: o.write, ReadOnly: o.readOnly,
		}))
	})
}
