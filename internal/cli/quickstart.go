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
		Short: "Take a tour of a minute, by commands that are run",
		Long: "Show what TRL does by commands that are run, each with what it prints. The tour\n" +
			"has a daemon of its own in a temporary directory, and leaves nothing behind.\n" +
			"Enter goes on, q ends it.",
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
			return usage("the tour waits for a key, and %v; `trl quickstart --yes` does not ask", err)
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

// styled says whether what is written may be more than text.
func (a *app) styled() bool {
	return isTerminal(a.stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// goOn waits for a key: Enter or space for yes, q or what else ends a program
// for no.
func (t *localTerminal) awaitEnter(ctx context.Context) (bool, error) {
	fmt.Fprint(t.out, "\n[Enter goes on, q ends] ")
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
