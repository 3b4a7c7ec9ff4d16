package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/daemon"
	"github.com/terminal-runtime/trl/internal/trust"
)

func (a *app) stopCommand() *cobra.Command {
	// The grace period is 5 s by default, and may apply twice.
	wait := durationFlag{value: 30 * time.Second}
	var keep bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the daemon and end its sessions, or keep them",
		Long: "Stop the daemon and end all its sessions, as SIGTERM does, and wait until they are\n" +
			"gone.\n\n" +
			"With --keep only the daemon stops. A small process keeps the sessions, and their\n" +
			"commands keep running. You can't reach them until `trl serve` on the same socket\n" +
			"takes them over. `trl stop` ends them.\n\n" +
			"Sessions in places (see `trl place`) continue in both cases.\n\n" +
			"If no daemon is running, it says so and exits with 0.",
		Example: "  trl stop\n  trl stop --keep && trl serve --detach    # keep the sessions",
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the sessions for the next daemon")
	durationVar(cmd, &wait, "timeout", "stop waiting after this time (default 30s); the daemon keeps stopping")
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
			return a.stopPlaceless(ctx, path, wait.value)
		}
		defer holder.Close()
		if keep {
			return a.stopDaemon(ctx, holder, path, wait.value)
		}
		return a.stopAll(ctx, holder, path, wait.value)
	})
	return cmd
}

// stopPlaceless stops a daemon without a holder: it has no sessions of its own.
func (a *app) stopPlaceless(ctx context.Context, path string, wait time.Duration) error {
	info, _, err := a.daemonStatus(ctx, path)
	if errors.Is(err, client.ErrNoDaemon) {
		return a.printNotRunning(path)
	}
	if err != nil {
		return err
	}
	if info.Process.Tracking != daemon.TracksNothing {
		return unknownProcessError("holder of the daemon", path, nil)
	}
	server, err := daemon.FindPlaceless(path, info.PID)
	if err != nil {
		return unknownProcessError("process of the daemon", path, err)
	}
	defer server.Close()
	if err := server.Stop(); err != nil {
		return err
	}
	if !server.WaitExit(wait) {
		return stopTimeoutError(wait, fmt.Sprintf("process %d is still running", server.PID()))
	}
	return a.printStopped("it had no sessions of its own, and those in places continue", 0)
}

// unknownProcessError reports that a process to signal could not be identified.
func unknownProcessError(what, path string, cause error) error {
	if refusal, ok := errors.AsType[*trust.Refusal](cause); ok {
		return refusalError(refusal)
	}
	message := fmt.Sprintf("cannot find the %s on %s", what, path)
	if cause != nil {
		message += ": " + cause.Error()
	}
	return localError{api.Errorf(api.CodeRuntimeUnavailable, "%s", message).
		WithHint("send SIGTERM to the process that `trl info` shows")}
}

// stopAll stops a holder, and with it everything.
func (a *app) stopAll(ctx context.Context, holder *daemon.Holder, path string, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	ended := "the kept sessions are ended"
	if !holder.Waiting() {
		switch sessions, err := a.countSessions(ctx, path, wait); {
		case err != nil:
			ended = "its sessions are ended" // their number is unknown
		case sessions == 0:
			ended = "there were no sessions"
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

// countSessions returns the number of sessions that have not ended. A daemon
// that does not answer is stopped all the same.
func (a *app) countSessions(ctx context.Context, path string, wait time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, min(wait, dialPatience))
	defer cancel()
	_, sessions, err := a.daemonStatus(ctx, path)
	return sessions, err
}

// stopDaemon stops the daemon of a holder, which keeps the sessions.
func (a *app) stopDaemon(ctx context.Context, holder *daemon.Holder, path string, wait time.Duration) error {
	if holder.Waiting() {
		return a.printStopped("the daemon had already stopped", holder.PID())
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
			return fmt.Errorf("the holder of the sessions (process %d) has exited", holder.PID())
		}
		if time.Now().After(deadline) {
			return stopTimeoutError(wait, "the daemon is still running")
		}
	}
	return a.printStopped(keptSessionsText(sessions), holder.PID())
}

func stopTimeoutError(wait time.Duration, what string) error {
	return localError{api.Errorf(api.CodeRuntimeUnavailable, "%s after %s", what, wait).
		WithHint("check the daemon's log, or wait longer with --timeout")}
}

// printNotRunning reports that there is nothing to stop. That is success: what the
// caller wants is so, as for `docker stop` and `systemctl stop`.
func (a *app) printNotRunning(path string) error {
	what := "no daemon is running on " + path
	if a.json {
		return a.printValue(map[string]any{"message": what, "kept_by": 0})
	}
	fmt.Fprintln(a.stdout, "trl: "+what+": nothing to stop")
	return nil
}

// printStopped reports what became of the sessions; keeper is the process that
// keeps them, or 0.
func (a *app) printStopped(what string, keeper int) error {
	if a.json {
		return a.printValue(map[string]any{"message": what, "kept_by": keeper})
	}
	if keeper != 0 {
		what += fmt.Sprintf(", kept by process %d; `trl serve` takes them over", keeper)
	}
	fmt.Fprintln(a.stdout, "trl: stopped; "+what)
	return nil
}
