package console

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
	// exitPingTimeout is the limit once this program must exit: a person who
	// pressed ctrl-c, or a script that sent SIGTERM, waits for 2 s at most.
	exitPingTimeout = 1500 * time.Millisecond
	// exitPingInterval is the pause between two checks of the daemon while this
	// program must exit. Together with exitPingTimeout it stays within the same
	// 2 s.
	exitPingInterval = 500 * time.Millisecond
)

// Pinger is the part of a client that finds out whether its daemon answers.
type Pinger interface {
	Ping(context.Context) (*api.PingResult, error)
}

// daemonAnswers reports whether the daemon answers at all; an error counts as
// an answer.
func daemonAnswers(ctx context.Context, c Pinger) bool {
	ctx, cancel := context.WithTimeout(ctx, exitPingTimeout)
	defer cancel()
	_, err := c.Ping(ctx)
	_, refused := errors.AsType[*api.Error](err)
	return err == nil || refused
}

// AwaitSilence returns true once the daemon does not answer, and false if ctx is
// done before. A daemon that is being stopped may answer once and never again,
// so it is pinged until then.
func AwaitSilence(ctx context.Context, c Pinger) bool {
	for daemonAnswers(ctx, c) {
		if !pause(ctx, exitPingInterval) {
			return false
		}
	}
	return ctx.Err() == nil
}

// terminalReset undoes what a prompt or a program may have set on a terminal:
// mouse reports, bracketed paste, the alternate screen, colours, a hidden
// cursor.
const terminalReset = "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1047l\x1b[m\x1b[?25h\r\n"

// exitIfDaemonSilent exits this program, which has taken over a terminal, if
// the daemon does not answer when the user presses ctrl-c. The key may be meant
// for a command, so the daemon is pinged once per key: a later pause of the
// daemon must not end a prompt. After a signal that ends this program the daemon
// is pinged until ctx is done.
//
// It runs in its own goroutine, independent of what the rest of the program
// waits for.
func exitIfDaemonSilent(ctx context.Context, config *Config, local *localTerminal, reset string) {
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
			var silent bool
			if sig == syscall.SIGINT {
				silent = !daemonAnswers(ctx, config.Client) && ctx.Err() == nil
			} else {
				silent = AwaitSilence(ctx, config.Client)
			}
			if silent {
				if reset != "" {
					local.onClose(func() []byte { return []byte(reset) })
				}
				local.close()
				config.ExitSilent(sig)
			}
		}
	})
}

// unreachable reports whether err means only that the daemon can't be reached
// now.
func unreachable(err error) bool {
	return errors.Is(err, client.ErrClosed) || errors.Is(err, client.ErrNoDaemon) || api.IsCode(err, api.CodeRuntimeUnavailable)
}

// pause waits for d, and returns false if ctx is done before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
