package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/transport"
)

// wake gives a holder that waits a daemon again, and stands before it until it
// ends: what asks this process to end is passed on.
func (h *Holder) reattach(args []string, log *slog.Logger) (code int, err error) {
	signals := make(chan os.Signal, 8) // a burst must not lose the second SIGTERM
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	defer signal.Stop(signals)
	started, err := h.arguments()
	if err != nil {
		return 1, err
	}
	if given := settingsIn(args); len(given) > 0 && !slices.Equal(given, settingsIn(started)) {
		return 1, &OtherSettingsError{PID: h.PID(), Flags: settingsIn(started)}
	}
	if err := h.check(context.Background()); err != nil {
		return 1, fmt.Errorf("sessions are kept by process %d, and nothing has changed: %w", h.PID(), err)
	}
	if err := h.startDaemon(); err != nil {
		return 1, err
	}
	log.Info("the sessions that were kept have a daemon again; it writes its log where it did", "holder", h.PID())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		h.WaitExit(forever)
	}()
	for {
		select {
		case sig := <-signals:
			if err := h.Signal(sig.(unix.Signal)); err != nil && !errors.Is(err, unix.ESRCH) {
				log.Error("a signal could not be passed on", "error", err)
			}
		case <-gone:
			// Its status is its parent's to know. One that shut down has removed
			// the lock.
			if _, _, err := transport.ReadLock(h.socket); errors.Is(err, fs.ErrNotExist) {
				return 0, nil
			}
			return 1, fmt.Errorf("process %d, which held the sessions, has died", h.PID())
		}
	}
}

// settingsIn are the flags of `trl serve` but for the socket, by which it is found.
func settingsIn(args []string) []string {
	var flags []string
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "serve" || strings.HasPrefix(arg, "--socket="):
		case arg == "--socket":
			i++
		default:
			flags = append(flags, arg)
		}
	}
	return flags
}

const (
	// forEver is what fits the call that waits.
	forever = 24 * 24 * time.Hour
	// wakeTime is what a daemon has to take over sessions: a thousand of them
	// take less than a second.
	startDaemonTimeout = 30 * time.Second
	// wakeAgain is how often the signal is sent: a holder that has just been left
	// by its daemon may not wait for it yet.
	startDaemonRetry = 50 * time.Millisecond
)

// wakeUp asks for a daemon until there is one.
func (h *Holder) startDaemon() error {
	for deadline := time.Now().Add(startDaemonTimeout); h.Waiting(); {
		if err := h.Signal(unix.SIGUSR1); err != nil {
			return err
		}
		if h.WaitExit(startDaemonRetry) {
			return fmt.Errorf("process %d, which held the sessions, has died", h.PID())
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d holds sessions and has not started a daemon for them within %s; its log says why", h.PID(), startDaemonTimeout)
		}
	}
	return nil
}
