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

func (a *app) upgradeCommand() *cobra.Command {
	wait := durationFlag{value: 30 * time.Second}
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace the daemon's binary and keep its sessions",
		Long: "Replace the daemon with the binary that is now at the path it was started from, and\n" +
			"read the configuration again. Sessions, commands and output are kept; clients wait\n" +
			"for a moment. The daemon checks the new binary first. Nothing changes if the binary\n" +
			"can't take over, if another user could have written to it, or if the configuration\n" +
			"is invalid. SIGHUP to the daemon does the same.",
		Example: "  mv trl.new /usr/local/bin/trl && trl upgrade",
	}
	durationVar(cmd, &wait, "timeout", "stop waiting after this time (default 30s); the upgrade continues")
	cmd.RunE = action(exactArgs(), func(ctx context.Context, _ []string) error {
		ctx, cancel := context.WithTimeout(ctx, wait.value)
		defer cancel()
		return a.upgrade(ctx)
	})
	return cmd
}

func (a *app) upgrade(ctx context.Context) error {
	path, err := a.localSocket("upgrade")
	if err != nil {
		return err
	}
	before, _, err := a.daemonStatus(ctx, path)
	if err != nil {
		return err
	}
	if err := a.requestUpgrade(ctx, path); err != nil {
		return err
	}
	began := time.Now()
	after, sessions, err := a.awaitNewDaemon(ctx, path, before.PID)
	if err != nil {
		return localError{api.Errorf(api.CodeRuntimeUnavailable, "no new daemon has answered yet: %w", err).
			WithHint("check the daemon's log; `trl info` shows which daemon is running")}
	}
	took := time.Since(began)
	if a.json {
		return a.printValue(map[string]any{"from": before.Version, "to": after.Version, "sessions": sessions, "took_ms": took.Milliseconds()})
	}
	fmt.Fprintf(a.stdout, "trl: %s has taken over from %s in %s; %s\n", after.Version, before.Version, took.Round(time.Millisecond), keptSessionsText(sessions))
	return nil
}

// requestUpgrade has the daemon check the new binary and start the handover.
func (a *app) requestUpgrade(ctx context.Context, path string) error {
	c, err := client.DialWith(ctx, path, client.Options{})
	if err != nil {
		return a.noDaemonError(path, err)
	}
	defer c.Close()
	_, err = c.Upgrade(ctx)
	switch {
	case errors.Is(err, client.ErrClosed):
		return nil // it may have exited before its answer was sent; the next daemon tells
	case !api.IsCode(err, api.CodeMethodNotFound):
		return err
	}
	// An older daemon checks the binary when it gets the signal, and logs the
	// result.
	holder, err := daemon.FindHolder(path)
	switch {
	case errors.Is(err, daemon.ErrNoHolder):
		return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon on %s has no holder to keep its sessions", path).
			WithHint("stop it, which ends its sessions, and start the new one with `trl serve`")}
	case err != nil:
		return holderNotFoundError(err)
	}
	defer holder.Close()
	return holder.Renew()
}

// holderNotFoundError reports that the holder process could not be identified.
func holderNotFoundError(err error) error {
	if refusal, ok := errors.AsType[*trust.Refusal](err); ok {
		return refusalError(refusal)
	}
	return localError{api.Errorf(api.CodeRuntimeUnavailable, "no process was signalled: %w", err).
		WithHint("run `trl doctor`; if no daemon is running, remove the lock file next to its socket")}
}

func keptSessionsText(sessions int) string {
	switch sessions {
	case 0:
		return "there were no sessions"
	case 1:
		return "1 session continues"
	default:
		return fmt.Sprintf("%d sessions continue", sessions)
	}
}

// localSocket returns the socket of a daemon that this command can signal.
func (a *app) localSocket(command string) (string, error) {
	if a.address != "" {
		return "", usage("%s works on a daemon on this machine: use --socket, not --address", command)
	}
	return a.socketPath()
}

// daemonStatus returns the info of the daemon on path and the number of its
// sessions that have not ended.
func (a *app) daemonStatus(ctx context.Context, path string) (info *api.SystemInfo, sessions int, err error) {
	c, err := client.DialWith(ctx, path, client.Options{})
	if err != nil {
		return nil, 0, a.noDaemonError(path, err)
	}
	defer c.Close()
	limited, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if info, err = c.SystemInfo(limited); err != nil {
		return nil, 0, explainTimeout(ctx, limited, path, err)
	}
	stats, err := c.Stats(limited)
	if err != nil {
		return nil, 0, explainTimeout(ctx, limited, path, err)
	}
	for state, n := range stats.Sessions {
		if state != api.StateTerminated {
			sessions += n
		}
	}
	return info, sessions, nil
}

// pollInterval is short, so that measured times are the daemon's.
const pollInterval = 5 * time.Millisecond

// awaitNewDaemon waits until a process other than pid answers.
func (a *app) awaitNewDaemon(ctx context.Context, path string, pid int) (*api.SystemInfo, int, error) {
	for {
		info, sessions, err := a.daemonStatus(ctx, path)
		if err == nil && info.PID != pid {
			return info, sessions, nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = errors.New("the old one still answers")
			}
			return nil, 0, err
		case <-time.After(pollInterval):
		}
	}
}
