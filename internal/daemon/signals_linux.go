package daemon

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// catchSignals returns two contexts: stop is done when the daemon is to shut
// down, by a signal or with ctx, and cut when that is to be at once.
//
// The signals stay caught for good: one that comes after the shutdown must not
// make a failure of it by killing the process.
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
		d.log.Warn("received a second signal: commands are killed without grace", "event", "cut_short")
		cutNow()
	}
}
