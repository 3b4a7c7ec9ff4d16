package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/typing"
)

func (a *app) keysCommand() *cobra.Command {
	var to typingTarget
	cmd := &cobra.Command{
		Use:   "keys SESSION KEY...",
		Short: "Press keys on the terminal of a session",
		Long: "Press keys on the terminal of a session, for the command that runs there. EXEC\n" +
			"may stand in place of SESSION. `trl input` types text.\n\n" +
			"KEY is a character or a name as in tmux: Enter, Tab, BTab, Escape, Space, BSpace,\n" +
			"Insert, Delete, Up, Down, Left, Right, Home, End, PageUp, PageDown, F1 to F20,\n" +
			"with the prefixes C- (control), M- (alt) and S- (shift). Case matters only for\n" +
			"characters.",
		Example: "  trl keys build C-c\n" +
			"  trl keys editor Escape : w q Enter",
		ValidArgsFunction: a.completeSessions,
	}
	cmd.DisableFlagsInUseLine = true
	to.register(a, cmd)
	cmd.RunE = action(func(_ *cobra.Command, args []string) error {
		keys, err := to.args(args)
		if err == nil && len(keys) == 0 {
			return usage("KEY is missing; write a name such as Enter, Up or C-c")
		}
		return err
	}, func(ctx context.Context, args []string) error {
		keys, err := to.args(args)
		if err != nil {
			return err
		}
		return to.with(ctx, a, args, func(c *client.Client, e *api.ExecResult) error {
			params, err := typing.Input(e, nil, keys)
			if err != nil {
				return localError{api.AsError(err).WithHint("`trl input` types text")}
			}
			return callOn(ctx, a, c, api.MethodExecInput, params, func(*api.ExecInputResult) error { return nil })
		})
	})
	return cmd
}
