package daemon

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// catchSignals returns two contexts: stop is done when the daemon must shut down,
// because of a signal or because ctx is done; cut is done when it must do so without
// grace.
//
// The signals stay caught until the process exits: one that arrives after the
// shutdown must not turn it into a failure by killing the process.
func (d *daemon) catchSignals(ctx context.Context) (stop, cut context.Context) {
	stop, stopNow := context.WithCancelCause(ctx)
	cut, cutNow := context.WithCancel(context.Background())
	// Room for each kind: a burst must not lose the second SIGTERM.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR2, unix.SIGPIPE)
	d.tasks.start("signals", func() {
		defer cutNow()
		for {
			select {
			case received := <-signals:
				d.handle(stop, received, stopNow, cutNow)
			case <-d.closed:
				return
			}
		}
	})
	return stop, cut
}

func (d *daemon) handle(stop context.Context, received os.Signal, stopNow context.CancelCauseFunc, cutNow context.CancelFunc) {
	switch {
	case received == unix.SIGPIPE: // see the package comment
	case received == unix.SIGHUP:
		d.upgradeOnSignal()
	case received == unix.SIGUSR2:
		d.detach()
	case stop.Err() == nil:
		stopNow(fmt.Errorf("received %s", unix.SignalName(received.(unix.Signal))))
	default:
		d.log.Warn("received a second signal; killing commands without grace", "event", "cut_short")
		cutNow()
	}
}
