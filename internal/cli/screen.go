package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/drawing"
)

func (a *app) screenCommand() *cobra.Command {
	var ansi, svg, png bool
	var title string
	var scrollback int
	cmd := &cobra.Command{
		Use:   "screen SESSION",
		Short: "Print a session's screen",
		Long: "Print the screen of a session that was created with --tty, as text. With --json you\n" +
			"get rows of text runs with their colors, with --svg or --png an image that needs no\n" +
			"other files.",
		Example: "  trl screen $id\n" +
			"  trl screen --ansi $id              # with colors, for a terminal of its size\n" +
			"  trl screen --svg $id > screen.svg  # as an image",
		ValidArgsFunction: a.completeSessions,
	}
	cmd.Flags().BoolVar(&ansi, "ansi", false, "print escape sequences that reproduce the screen")
	cmd.Flags().IntVar(&scrollback, "scrollback", 0, "include up to `LINES` that have scrolled off")
	cmd.Flags().BoolVar(&svg, "svg", false, "print an SVG image")
	cmd.Flags().BoolVar(&png, "png", false, "print a PNG image")
	cmd.Flags().StringVar(&title, "title", "", "show `TEXT` in the title bar of the SVG; '' for no bar (default: the terminal's title, if it has one)")
	cmd.RunE = action(exactArgs("SESSION"), func(ctx context.Context, args []string) error {
		if png {
			if other := firstSetFlag(cmd, "json", "format", "ansi", "scrollback", "svg", "title"); other != "" {
				return usage("--png and --%s exclude each other: the image shows the current screen, without a title bar", other)
			}
			return a.drawScreen(ctx, args[0], drawing.PNG)
		}
		if svg {
			if other := firstSetFlag(cmd, "json", "format", "ansi", "scrollback"); other != "" {
				return usage("--svg and --%s exclude each other: the image shows the current screen", other)
			}
			return a.svg(ctx, args[0], func(r *api.SessionScreenResult) string {
				if cmd.Flags().Changed("title") {
					return title
				}
				return r.Title
			})
		}
		if cmd.Flags().Changed("title") {
			return usage("--title needs --svg")
		}
		params := api.SessionScreenParams{Format: api.ScreenText, Scrollback: scrollback}
		switch {
		case a.json:
			params.Format = api.ScreenJSON
		case ansi:
			params.Format = api.ScreenANSI
		}
		return a.showScreen(ctx, args[0], params, func(r *api.SessionScreenResult) error {
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

// showScreen calls show with the screen of the session that ref names.
func (a *app) showScreen(ctx context.Context, ref string, params api.SessionScreenParams, show func(*api.SessionScreenResult) error) error {
	return a.withSession(ctx, ref, func(c *client.Client, id string) error {
		params.SessionID = id
		return callOn(ctx, a, c, api.MethodSessionScreen, params, show)
	})
}

// svg prints a session's screen as SVG.
func (a *app) svg(ctx context.Context, session string, title func(*api.SessionScreenResult) string) error {
	return a.drawScreen(ctx, session, func(r *api.SessionScreenResult) ([]byte, error) { return drawing.SVG(r, title(r)), nil })
}

// drawScreen prints a session's screen as rendered by draw.
func (a *app) drawScreen(ctx context.Context, session string, draw func(*api.SessionScreenResult) ([]byte, error)) error {
	return a.showScreen(ctx, session, api.SessionScreenParams{Format: api.ScreenJSON}, func(r *api.SessionScreenResult) error {
		drawn, err := draw(r)
		if err != nil {
			return err
		}
		_, err = stdoutWriter{a.stdout}.Write(drawn)
		return err
	})
}
