package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

const (
	// pingTimeout is how long a daemon may take to answer the ping that every
	// command starts with: thousands of times what it needs, and as long as a
	// daemon may take to start. What a command does after that has no limit.
	pingTimeout = 10 * time.Second
	// exitPingTimeout is the limit once this program must exit: a person who
	// pressed ctrl-c, or a script that sent SIGTERM, waits for 2 s at most.
	exitPingTimeout = 1500 * time.Millisecond
	// exitPingInterval is the pause between two checks of the daemon while this
	// program must exit. Together with exitPingTimeout it stays within the same
	// 2 s.
	exitPingInterval = 500 * time.Millisecond
)

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

// daemonAnswers reports whether the daemon answers at all; an error counts as
// an answer.
func daemonAnswers(ctx context.Context, c *client.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, exitPingTimeout)
	defer cancel()
	_, err := c.Ping(ctx)
	_, refused := errors.AsType[*api.Error](err)
	return err == nil || refused
}

// exitIfDaemonSilent exits with the status of sig if the daemon does not
// answer. A daemon that is being stopped may answer once and never again, so it
// is pinged until ctx is done.
func (a *app) exitIfDaemonSilent(ctx context.Context, c *client.Client, sig os.Signal) {
	for daemonAnswers(ctx, c) {
		if !pause(ctx, exitPingInterval) {
			return
		}
	}
	if ctx.Err() == nil {
		a.exitDaemonSilent(sig)
	}
}

// exitDaemonSilent exits without the daemon.
func (a *app) exitDaemonSilent(sig os.Signal) {
	a.printError(localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon does not answer; running commands may continue").
		WithHint("run `trl session list` once the daemon answers")})
	a.exit(statusSignal + int(signalNumber(sig)))
}

// terminalReset undoes what a prompt or a program may have set on a terminal:
// mouse reports, bracketed paste, the alternate screen, colours, a hidden
// cursor.
const terminalReset = "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1047l\x1b[m\x1b[?25h\r\n"

// exitTerminalIfDaemonSilent exits this program, which has taken over a
// terminal, if the daemon does not answer when the user presses ctrl-c. The key
// may be meant for a command, so the daemon is pinged once per key: a later
// pause of the daemon must not end a prompt. After a signal that ends this
// program the daemon is pinged until ctx is done.
//
// It runs in its own goroutine, independent of what the rest of the program
// waits for.
func (a *app) exitTerminalIfDaemonSilent(ctx context.Context, c *client.Client, local *localTerminal, reset string) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	local.start(func() {
		defer signal.Stop(signals)
		for {
			var sig os.Signal = syscall.SIGINT
			select {
			case <-local.interrupts:
			case sig = <-signals:
			case <-ctx.Done():
				return
			}
			for daemonAnswers(ctx, c) {
				if sig == syscall.SIGINT || !pause(ctx, exitPingInterval) {
					sig = nil
					break
				}
			}
			if sig != nil && ctx.Err() == nil {
				if reset != "" {
					local.onClose(func() []byte { return []byte(reset) })
				}
				local.close()
				a.exitDaemonSilent(sig)
			}
		}
	})
}
