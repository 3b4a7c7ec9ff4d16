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
		Short: "Let a new binary take over from the daemon, with its sessions",
		Long: "Let the binary that is now at the path from which the daemon was started take its\n" +
			"place, and read the configuration again. Sessions, their commands and their output\n" +
			"live on; clients wait for a moment. The daemon asks the new binary first: if it\n" +
			"can't take over, if another user could have written to it, or if the configuration\n" +
			"is no good, nothing changes. SIGHUP to the daemon does the same.",
		Example: "  mv trl.new /usr/local/bin/trl && trl upgrade",
	}
	durationVar(cmd, &wait, "timeout", "give up waiting after so long (default 30s); the daemon goes on")
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
			WithHint("the daemon's log says why; `trl info` shows which one is there")}
	}
	took := time.Since(began)
	if a.json {
		return a.printValue(map[string]any{"from": before.Version, "to": after.Version, "sessions": sessions, "took_ms": took.Milliseconds()})
	}
	fmt.Fprintf(a.stdout, "trl: %s has taken over from %s in %s; %s\n", after.Version, before.Version, took.Round(time.Millisecond), keptSessionsText(sessions))
	return nil
}

// askUpgrade has the daemon check the new binary, and begin to be replaced by it.
func (a *app) requestUpgrade(ctx context.Context, path string) error {
	c, err := client.DialWith(ctx, path, client.Options{})
	if err != nil {
		return a.noDaemonError(path, err)
	}
	defer c.Close()
	_, err = c.Upgrade(ctx)
	switch {
	case errors.Is(err, client.ErrClosed):
		return nil // it may have left before its answer did; who answers next tells
	case !api.IsCode(err, api.CodeMethodNotFound):
		return err
	}
	// An older daemon checks the binary when it gets the signal, and says in its
	// log what it found.
	holder, err := daemon.FindHolder(path)
	switch {
	case errors.Is(err, daemon.ErrNoHolder):
		return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon on %s has no holder that could keep its sessions", path).
			WithHint("end it, which ends its sessions, and start the new one with `trl serve`")}
	case err != nil:
		return holderNotFoundError(err)
	}
	defer holder.Close()
	return holder.Renew()
}

// notSignalled is the error of a holder that could not be told from another
// process.
func holderNotFoundError(err error) error {
	if refusal, ok := errors.AsType[*trust.Refusal](err); ok {
		return refusalError(refusal)
	}
	return localError{api.Errorf(api.CodeRuntimeUnavailable, "nothing was signalled: %w", err).
		WithHint("`trl doctor` looks at the daemon; if none is there, remove the lock beside its socket")}
}

func keptSessionsText(sessions int) string {
	switch sessions {
	case 0:
		return "there were no sessions"
	case 1:
		return "1 session lives on"
	default:
		return fmt.Sprintf("%d sessions live on", sessions)
	}
}

// ownSocket is the socket of a daemon that this command can send signals to.
func (a *app) localSocket(command string) (string, error) {
	if a.address != "" {
		return "", usage("%s is for a daemon on this machine: it takes --socket, not --address", command)
	}
	return a.socketPath()
}

// lookAt asks which daemon serves on a socket, and how many sessions live there.
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

// lookAgain is how often a change is looked for: often enough that what is
// measured is the daemon's time.
const pollInterval = 5 * time.Millisecond

// awaitOther waits until a process other than pid answers.
func (a *app) awaitNewDaemon(ctx context.Context, path string, pid int) (*api.SystemInfo, int, error) {
	for {
		info, sessions, err := a.daemonStatus(ctx, path)
		if err == nil && info.PID != pid {
			return info, sessions, nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = errors.New("the old one still does")
			}
			return nil, 0, err
		case <-time.After(pollInterval):
		}
	}
}
