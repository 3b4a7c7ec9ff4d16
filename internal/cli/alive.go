package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/console"
)

// pingTimeout is how long a daemon may take to answer the ping that every
// command starts with: thousands of times what it needs, and as long as a daemon
// may take to start. What a command does after that has no limit.
const pingTimeout = 10 * time.Second

// pingDaemon waits for the daemon's first answer.
func pingDaemon(ctx context.Context, c *client.Client, where string) error {
	limited, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := c.Ping(limited)
	return explainTimeout(ctx, limited, where, err)
}

// explainTimeout returns err, or an error that says the daemon did not answer
// if limited has expired while its parent ctx has not.
func explainTimeout(ctx, limited context.Context, where string, err error) error {
	if err != nil && ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
		return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon on %s has not answered within %s", where, pingTimeout).
			WithHint("check its log; if the process is stopped, `kill -CONT PID` resumes it")}
	}
	return err
}

// exitIfDaemonSilent exits with the status of sig if the daemon stops answering
// before ctx is done.
func (a *app) exitIfDaemonSilent(ctx context.Context, c *client.Client, sig os.Signal) {
	if console.AwaitSilence(ctx, c) {
		a.exitDaemonSilent(sig)
	}
}

// exitDaemonSilent exits without the daemon.
func (a *app) exitDaemonSilent(sig os.Signal) {
	a.printError(localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon does not answer; running commands may continue").
		WithHint("run `trl session list` once the daemon answers")})
	a.exit(statusSignal + int(signalNumber(sig)))
}
