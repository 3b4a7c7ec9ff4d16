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
	// firstAnswer is how long a daemon may take to answer the ping that every
	// command begins with: thousands of times what it takes, and as long as a
	// daemon may take to start. What a command does after that takes as long as
	// it takes.
	pingTimeout = 10 * time.Second
	// lastAnswer is how long it may take once this program is to end: a person
	// who pressed ctrl-c, or a script that sent SIGTERM, waits for 2 s at most.
	exitPingTimeout = 1500 * time.Millisecond
	// checkEvery is the pause between two checks of a daemon by a program that is
	// to end. With lastAnswer it stays within the same 2 s.
	exitPingInterval = 500 * time.Millisecond
)

// greet waits for the daemon's first sign of life.
func pingDaemon(ctx context.Context, c *client.Client, where string) error {
	limited, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := c.Ping(limited)
	return explainTimeout(ctx, limited, where, err)
}

// inTime is err, or that the daemon did not answer if that is what it means: the
// limit has passed and ctx, from which limited comes, has not ended.
func explainTimeout(ctx, limited context.Context, where string, err error) error {
	if err != nil && ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
		return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon on %s has not answered within %s", where, pingTimeout).
			WithHint("its log may say why; one that was stopped goes on after `kill -CONT PID`")}
	}
	return err
}

// answers reports whether the daemon says anything at all.
func daemonAnswers(ctx context.Context, c *client.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, exitPingTimeout)
	defer cancel()
	_, err := c.Ping(ctx)
	_, refused := errors.AsType[*api.Error](err)
	return err == nil || refused
}

// endIfSilent ends this program, which got a signal, when the daemon does not
// answer. One that is being stopped may answer once and never again, so it asks
// until ctx is done.
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

// endSilent ends this program without the daemon.
func (a *app) exitDaemonSilent(sig os.Signal) {
	a.printError(localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon does not answer: what was running may go on").
		WithHint("`trl session list` shows what is left, once the daemon answers")})
	a.exit(statusSignal + int(signalNumber(sig)))
}

// plainTerminal undoes what a prompt or a program may have done to a terminal:
// mouse reports, pasting, the other screen, colours, a hidden cursor.
const terminalReset = "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1047l\x1b[m\x1b[?25h\r\n"

// endPersonIfSilent ends this program, which has taken over a terminal, if the
// daemon does not answer when a person presses ctrl-c. That may be for a
// command, so the daemon is asked once for each: that it pauses later must not
// end a prompt. After a signal that ends this program the daemon is asked until
// ctx is done.
//
// It does not depend on what the rest of the program is waiting for.
func (a *app) exitTerminalIfDaemonSilent(ctx context.Context, c *client.Client, local *localTerminal, farewell string) {
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
				if farewell != "" {
					local.onClose(func() []byte { return []byte(farewell) })
				}
				local.close()
				a.exitDaemonSilent(sig)
			}
		}
	})
}
