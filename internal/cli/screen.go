package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
)

func (a *app) screenCommand() *cobra.Command {
	var ansi bool
	var scrollback int
	cmd := &cobra.Command{
		Use:   "screen SESSION",
		Short: "Print what is on a session's terminal",
		Long: "Print what is on the terminal of a session that was made with --tty, as text.\n" +
			"With --json it is rows of runs with their colors.",
		Example:           "  trl screen $id\n  trl screen --ansi $id    # with colors, for a terminal of the same size",
		ValidArgsFunction: a.completeSessions,
	}
	cmd.Flags().BoolVar(&ansi, "ansi", false, "as bytes that make this terminal look the same")
	cmd.Flags().IntVar(&scrollback, "scrollback", 0, "with up to `LINES` that have scrolled away")
	cmd.RunE = action(words("SESSION"), func(ctx context.Context, args []string) error {
		params := api.SessionScreenParams{SessionID: args[0], Format: api.ScreenText, Scrollback: scrollback}
		switch {
		case a.json:
			params.Format = api.ScreenJSON
		case ansi:
			params.Format = api.ScreenANSI
		}
		return ask(ctx, a, api.MethodSessionScreen, params, func(r *api.SessionScreenResult) error {
			if ansi {
				_, err := io.WriteString(a.stdout, r.Text)
				return err
			}
			_, err := fmt.Fprintln(a.stdout, r.Text)
			return err
		})
	})
	return cmd
}
