package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/daemon"
)

func (a *app) stopCommand() *cobra.Command {
	// Grace is 5 s by default, some of it twice.
	wait := durationFlag{value: 30 * time.Second}
	var keep bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "End the daemon, and its sessions unless they are to be kept",
		Long: "End the daemon and all its sessions, as SIGTERM does, and wait until everything is\n" +
			"gone.\n\n" +
			"With --keep only the daemon ends. A small process stays and keeps the sessions with\n" +
			"their commands, which go on; nobody can reach them until `trl serve` on the same\n" +
			"socket gives them a daemon again. `trl stop` ends what is kept.",
		Example: "  trl stop --keep; …; trl serve &",
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the sessions for the next daemon")
	durationVar(cmd, &wait, "timeout", "give up waiting after so long (default 30s); it goes on ending")
	cmd.RunE = action(exactArgs(), func(ctx context.Context, _ []string) error {
		path, err := a.localSocket("stop")
		if err != nil {
			return err
		}
		holder, err := daemon.FindHolder(path)
		if err != nil && !errors.Is(err, daemon.ErrNoHolder) {
			return holderNotFoundError(err)
		}
		if err != nil {
			if _, _, err := a.daemonStatus(ctx, path); err != nil {
				return err
			}
			return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon on %s does not say who holds its sessions", path).
				WithHint("send SIGTERM to the process that `trl info` shows")}
		}
		defer holder.Close()
		if keep {
			return a.stopDaemon(ctx, holder, path, wait.value)
		}
		return a.stopAll(ctx, holder, path, wait.value)
	})
	return cmd
}

// stopAll ends a holder, and with it everything.
func (a *app) stopAll(ctx context.Context, holder *daemon.Holder, path string, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	ended := "what was kept is ended"
	if !holder.Waiting() {
		switch sessions, err := a.countSessions(ctx, path, wait); {
		case err != nil:
			ended = "its sessions are ended" // it could not be asked how many
		case sessions == 0:
			ended = "no session was left"
		case sessions == 1:
			ended = "1 session is ended"
		default:
			ended = fmt.Sprintf("%d sessions are ended", sessions)
		}
	}
	if err := holder.Stop(); err != nil {
		return err
	}
	if !holder.WaitExit(time.Until(deadline)) {
		return stopTimeoutError(wait, fmt.Sprintf("process %d is still ending its sessions", holder.PID()))
	}
	return a.printStopped(ended, 0)
}

// sessionsNow counts the sessions that live. A daemon that does not answer is
// ended all the same.
func (a *app) countSessions(ctx context.Context, path string, wait time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, min(wait, dialPatience))
	defer cancel()
	_, sessions, err := a.daemonStatus(ctx, path)
	return sessions, err
}

// stopDaemon ends the daemon of a holder, which keeps the sessions.
func (a *app) stopDaemon(ctx context.Context, holder *daemon.Holder, path string, wait time.Duration) error {
	if holder.Waiting() {
		return a.printStopped("the daemon has ended before", holder.PID())
	}
	sessions, err := a.countSessions(ctx, path, wait)
	if err != nil {
		return err
	}
	if err := holder.Detach(); err != nil {
		return err
	}
	for deadline := time.Now().Add(wait); !holder.Waiting(); {
		if holder.WaitExit(pollInterval) {
			return fmt.Errorf("process %d, which held the sessions, has ended", holder.PID())
		}
		if time.Now().After(deadline) {
			return stopTimeoutError(wait, "the daemon is still there")
		}
	}
	return a.printStopped(keptSessionsText(sessions), holder.PID())
}

func stopTimeoutError(wait time.Duration, what string) error {
	return localError{api.Errorf(api.CodeRuntimeUnavailable, "%s after %s", what, wait).
		WithHint("the daemon's log says why; --timeout waits longer")}
}

// stopped says what has become of the sessions, and who keeps them if anybody
// does.
func (a *app) printStopped(what string, keeper int) error {
	if a.json {
		return a.printValue(map[string]any{"message": what, "kept_by": keeper})
	}
	if keeper != 0 {
		what += fmt.Sprintf(", kept by process %d; `trl serve` goes on with them", keeper)
	}
	fmt.Fprintln(a.stdout, "trl: stopped; "+what)
	return nil
}
