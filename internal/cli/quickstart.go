package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

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
	o := tour.Options{Program: program, Out: a.stdout, Styled: a.styled(), Next: func(ctx context.Context) (bool, error) { return true, ctx.Err() }}
	signals := make(chan os.Signal, 4)
	if yes {
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	} else {
		person, err := a.newLocalTerminal()
		if err != nil {
			return usage("the tour waits for keys, but %v; `trl quickstart --yes` does not ask", err)
		}
		defer person.close()
		defer person.restoreOnPanic()
		person.makeCooked()
		signals, o.Next = person.signals, person.awaitEnter
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		sig := <-signals
		cancel(exitStatus(statusSignal + int(sig.(syscall.Signal))))
	}()
	err = tour.Run(ctx, o)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// styled reports whether output may contain colours and styles.
func (a *app) styled() bool {
	return isTerminal(a.stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// awaitEnter waits for a key: Enter or space returns true; q, ctrl-c or ctrl-d
// returns false.
func (t *localTerminal) awaitEnter(ctx context.Context) (bool, error) {
	fmt.Fprint(t.out, "\n[Enter continues, q quits] ")
	defer fmt.Fprintln(t.out)
	defer t.makeCooked()
	if err := t.makeRaw(); err != nil {
		return false, err
	}
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case keys, ok := <-t.keys:
			if !ok {
				return false, nil
			}
			for _, key := range keys {
				switch key {
				case '\r', '\n', ' ':
					return true, nil
				case 'q', 'Q', 'C' - '@', 'D' - '@': // ctrl-c, ctrl-d
					return false, nil
				}
			}
		}
	}
}
