package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/internal/console"
	"github.com/terminal-runtime/trl/internal/tour"
)

func (a *app) quickstartCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "Take a one-minute tour that runs real commands",
		Long: "Show what TRL does, with real commands and their output. The tour runs its own\n" +
			"daemon in a temporary directory and leaves nothing behind.\n" +
			"Press Enter to continue, q to quit.",
		Example: "  trl quickstart\n  trl quickstart --yes    # without asking",
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask before each step")
	cmd.RunE = action(exactArgs(), func(ctx context.Context, _ []string) error {
		return a.quickstart(ctx, yes)
	})
	return cmd
}

func (a *app) quickstart(ctx context.Context, yes bool) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	o := tour.Options{Program: program, Out: a.stdout, Styled: mayColour(a.stdout), Next: func(ctx context.Context) (bool, error) { return true, ctx.Err() }}
	var asked <-chan os.Signal // to exit
	if yes {
		signals := make(chan os.Signal, 4)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		asked = signals
	} else {
		steps, err := a.steps()
		if err != nil {
			return usage("the tour waits for keys, but %v; `trl quickstart --yes` does not ask", err)
		}
		defer steps.Close()
		asked, o.Next = steps.Signals(), steps.AwaitEnter
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		sig := <-asked
		cancel(exitStatus(statusSignal + int(sig.(syscall.Signal))))
	}()
	err = tour.Run(ctx, o)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// steps takes over the user's terminal.
func (a *app) steps() (*console.Steps, error) {
	in, out, ok := a.terminal()
	if !ok {
		return nil, errors.New("stdin and stdout are not a terminal")
	}
	return console.NewSteps(in, out)
}
