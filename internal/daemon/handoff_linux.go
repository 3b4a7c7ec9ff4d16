package daemon

import (
	"context"
	"os"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
)

// upgradeOnSignal runs upgrade in response to a signal. The result goes to the
// log only.
func (d *daemon) upgradeOnSignal() {
	if d.holder == nil {
		d.log.Warn("ignored SIGHUP: without a holder the sessions would end")
		return
	}
	d.tasks.start("check the program", func() { _, _ = d.upgrade(context.Background()) })
}

// upgrade begins a restart with the program that is now at the path by which the
// holder was started, if that program can take over, and returns its version.
// Otherwise nothing changes. The holder passed the path to this process, and keeps
// it in its own memory even when it executes another program.
func (d *daemon) upgrade(ctx context.Context) (version string, err error) {
	if d.holder == nil {
		return "", api.Errorf(api.CodeRuntimeUnavailable, "this daemon has no holder to keep its sessions").
			WithHint("stop it, which ends its sessions, and start the new version")
	}
	if !d.upgrading.CompareAndSwap(false, true) {
		return "", api.Errorf(api.CodeRuntimeUnavailable, "another upgrade of this daemon is in progress").
			WithHint("call system.upgrade again in a moment")
	}
	defer d.upgrading.Store(false)
	version, err = d.checkNext(ctx)
	if err != nil {
		d.log.Error("upgrade refused, nothing has changed", "event", "not_restarted", "error", err)
		return "", api.Errorf(api.CodeRuntimeUnavailable, "nothing has changed: %w", err).
			WithHint("repair that and call system.upgrade again")
	}
	d.log.Info("restarting and keeping the sessions", "event", "restarting", "from", d.opts.Version, "to", version)
	d.requestExit(holder.Restart)
	return version, nil
}

// checkNext asks the program that is now at this daemon's path whether it can take
// over and read the whole ledger.
func (d *daemon) checkNext(ctx context.Context) (version string, err error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	fd, err := d.ledger.Copy()
	if err != nil {
		return "", err
	}
	records := os.NewFile(uintptr(fd), "ledger")
	defer records.Close()
	return checkProgram(ctx, d.opts.Args[0], d.opts.Args[2:], os.Environ(), dir, records, format)
}

// detach makes this daemon exit without ending its sessions.
func (d *daemon) detach() {
	if d.holder == nil {
		d.log.Warn("ignored SIGUSR2: without a holder the sessions would end")
		return
	}
	if d.listener.Inherited() {
		d.log.Warn("ignored SIGUSR2: the socket belongs to the service manager, and the next daemon would not find the sessions")
		return
	}
	d.log.Info("shutting down; the holder keeps the sessions", "event", "leaving", "holder", d.holder.Hello().PID)
	d.requestExit(holder.Detach)
}

func (d *daemon) requestExit(mode holder.ExitMode) {
	select {
	case d.exitRequests <- mode:
	default: // already exiting
	}
}

// handOffGrace is how long pending requests have to be answered. An answer takes
// microseconds; a slower one waits for a command, for which no time would be
// enough. Its client asks the next daemon.
const handOffGrace = 100 * time.Millisecond

// handOff ends this daemon as its death would, except that pending requests are
// answered. The state of the sessions is persisted already.
func (d *daemon) handOff(mode holder.ExitMode) error {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_ = d.front.Shutdown(context.Background())
	}()
	select {
	case <-answered:
	case <-time.After(handOffGrace):
	}
	if mode == holder.Detach {
		if err := d.stopListening(); err != nil {
			return err
		}
		info, err := d.lockInfo()
		if err != nil {
			return err
		}
		if err := d.listener.CloseKeepingLock(info.String()); err != nil {
			return err
		}
	}
	return d.holder.AnnounceExit(0, mode)
}
