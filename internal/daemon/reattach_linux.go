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

// reattach makes a waiting holder start a daemon, and returns when the holder has
// ended. It forwards the signals that ask this process to end.
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
		return 1, fmt.Errorf("process %d keeps the sessions, and nothing has changed: %w", h.PID(), err)
	}
	if err := h.startDaemon(); err != nil {
		return 1, err
	}
	log.Info("the holder has started a daemon for its sessions, which logs where the last one did", "holder", h.PID())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		h.WaitExit(forever)
	}()
	for {
		select {
		case sig := <-signals:
			if err := h.Signal(sig.(unix.Signal)); err != nil && !errors.Is(err, unix.ESRCH) {
				log.Error("cannot forward a signal to the holder", "error", err)
			}
		case <-gone:
			// Only its parent can read the holder's exit status. A holder that shut
			// down has removed the lock.
			if _, _, err := transport.ReadLock(h.socket); errors.Is(err, fs.ErrNotExist) {
				return 0, nil
			}
			return 1, fmt.Errorf("process %d, which held the sessions, has died", h.PID())
		}
	}
}

// settingsIn returns the flags of `trl serve` without the socket, which identifies
// the holder.
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
	// forever is close to the longest timeout that poll(2) takes.
	forever = 24 * 24 * time.Hour
	// startDaemonTimeout is how long a daemon may take to take over the sessions:
	// a thousand of them take less than a second.
	startDaemonTimeout = 30 * time.Second
	// startDaemonRetry is the interval between signals: a holder whose daemon has
	// just exited may not be waiting for one yet.
	startDaemonRetry = 50 * time.Millisecond
)

// startDaemon signals the holder until it has started a daemon.
func (h *Holder) startDaemon() error {
	for deadline := time.Now().Add(startDaemonTimeout); h.Waiting(); {
		if err := h.Signal(unix.SIGUSR1); err != nil {
			return err
		}
		if h.WaitExit(startDaemonRetry) {
			return fmt.Errorf("process %d, which held the sessions, has died", h.PID())
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d keeps the sessions and did not start a daemon within %s; its log says why", h.PID(), startDaemonTimeout)
		}
	}
	return nil
}
