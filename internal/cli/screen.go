package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/drawing"
)

func (a *app) screenCommand() *cobra.Command {
	var ansi, picture, pixels bool
	var title string
	var scrollback int
	cmd := &cobra.Command{
		Use:   "screen SESSION",
		Short: "Print what is on a session's terminal",
		Long: "Print what is on the terminal of a session that was made with --tty, as text.\n" +
			"With --json it is rows of runs with their colors, with --svg or --png a picture\n" +
			"for documents and reports, which needs nothing besides it.",
		Example: "  trl screen $id\n" +
			"  trl screen --ansi $id                # with colors, for a terminal of the same size\n" +
			"  trl screen --svg $id > screen.svg    # as a picture",
		ValidArgsFunction: a.completeSessions,
	}
	cmd.Flags().BoolVar(&ansi, "ansi", false, "as bytes that make this terminal look the same")
	cmd.Flags().IntVar(&scrollback, "scrollback", 0, "with up to `LINES` that have scrolled away")
	cmd.Flags().BoolVar(&picture, "svg", false, "as a picture (SVG)")
	cmd.Flags().BoolVar(&pixels, "png", false, "as a picture (PNG)")
	cmd.Flags().StringVar(&title, "title", "", "with this `TEXT` in the bar of the picture; '' for no bar (default: the terminal's\ntitle, if it has one)")
	cmd.RunE = action(exactArgs("SESSION"), func(ctx context.Context, args []string) error {
		if pixels {
			if other := firstSetFlag(cmd, "json", "ansi", "scrollback", "svg", "title"); other != "" {
				return usage("--png and --%s exclude each other: it is a picture of what is on the screen now, without a bar", other)
			}
			return a.drawScreen(ctx, args[0], drawing.PNG)
		}
		if picture {
			if other := firstSetFlag(cmd, "json", "ansi", "scrollback"); other != "" {
				return usage("--svg and --%s exclude each other: a picture is of what is on the screen now", other)
			}
			return a.svg(ctx, args[0], func(r *api.SessionScreenResult) string {
				if cmd.Flags().Changed("title") {
					return title
				}
				return r.Title
			})
		}
		if cmd.Flags().Changed("title") {
			return usage("--title is of the picture that --svg makes")
		}
		params := api.SessionScreenParams{SessionID: args[0], Format: api.ScreenText, Scrollback: scrollback}
		switch {
		case a.json:
			params.Format = api.ScreenJSON
		case ansi:
			params.Format = api.ScreenANSI
		}
		return callAndShow(ctx, a, api.MethodSessionScreen, params, func(r *api.SessionScreenResult) error {
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

// svg prints a session's screen as SVG.
func (a *app) svg(ctx context.Context, session string, title func(*api.SessionScreenResult) string) error {
	return a.drawScreen(ctx, session, func(r *api.SessionScreenResult) ([]byte, error) { return drawing.SVG(r, title(r)), nil })
}

// picture prints a session's screen as it is drawn.
func (a *app) drawScreen(ctx context.Context, session string, draw func(*api.SessionScreenResult) ([]byte, error)) error {
	params := api.SessionScreenParams{SessionID: session, Format: api.ScreenJSON}
	return callAndShow(ctx, a, api.MethodSessionScreen, params, func(r *api.SessionScreenResult) error {
		drawn, err := draw(r)
		if err != nil {
			return err
		}
		_, err = stdoutWriter{a.stdout}.Write(drawn)
		return err
	})
}
