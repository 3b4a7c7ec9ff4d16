package daemon

import (
	"context"
	"os"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
)

// renew is upgrade for a caller that can't be answered: a signal. The log says
// what became of it.
func (d *daemon) upgradeOnSignal() {
	if d.holder == nil {
		d.log.Warn("SIGHUP has no effect: without a holder the sessions would end")
		return
	}
	d.tasks.start("check the program", func() { _, _ = d.upgrade(context.Background()) })
}

// upgrade begins a restart with the program that is now at the path that the
// holder was started by, if that program can take over, and returns its version.
// Else nothing changes. The path is what the holder passed to this process: it
// keeps it in its own memory, also when it becomes another program.
func (d *daemon) upgrade(ctx context.Context) (version string, err error) {
	if d.holder == nil {
		return "", api.Errorf(api.CodeRuntimeUnavailable, "this daemon has no holder that could keep its sessions").
			WithHint("end it, which ends its sessions, and start the new one")
	}
	if !d.upgrading.CompareAndSwap(false, true) {
		return "", api.Errorf(api.CodeRuntimeUnavailable, "another upgrade of this daemon is being checked").
			WithHint("call system.upgrade again in a moment")
	}
	defer d.upgrading.Store(false)
	version, err = d.checkNext(ctx)
	if err != nil {
		d.log.Error("nothing is changed", "event", "not_restarted", "error", err)
		return "", api.Errorf(api.CodeRuntimeUnavailable, "nothing has changed: %w", err).
			WithHint("repair that and call system.upgrade again")
	}
	d.log.Info("restarting; the sessions live on", "event", "restarting", "from", d.opts.Version, "to", version)
	d.requestExit(holder.Restart)
	return version, nil
}

// checkNext asks the program that is at this one's path now whether it can take
// over, and read all that is in the ledger.
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

// keep begins the end of this daemon without its sessions.
func (d *daemon) detach() {
	if d.holder == nil {
		d.log.Warn("SIGUSR2 has no effect: without a holder the sessions would end")
		return
	}
	if d.listener.Inherited() {
		d.log.Warn("SIGUSR2 has no effect: the socket is the service manager's, and the next daemon would not find the sessions")
		return
	}
	d.log.Info("shutting down; the sessions live on in the holder", "event", "leaving", "holder", d.holder.Hello().PID)
	d.requestExit(holder.Detach)
}

func (d *daemon) requestExit(how holder.ExitMode) {
	select {
	case d.exitRequests <- how:
	default: // it is parting already
	}
}

// partingTime is what requests have that are being answered. An answer takes
// microseconds; one that takes longer waits for a command, for which no time
// would be enough. Its client asks the next daemon.
const handOffGrace = 100 * time.Millisecond

// leave ends this daemon as its death would, but for the requests that are being
// answered. Everything that lives on is noted already.
func (d *daemon) handOff(how holder.ExitMode) error {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		web := make(chan struct{})
		go func() {
			defer close(web)
			_ = d.web.shutdown(context.Background())
		}()
		_ = d.server.Shutdown(context.Background())
		<-web
	}()
	select {
	case <-answered:
	case <-time.After(handOffGrace):
	}
	if how == holder.Detach {
		if err := d.stopListening(); err != nil {
			return err
		}
		card, err := d.lockInfo()
		if err != nil {
			return err
		}
		if err := d.listener.CloseKeepingLock(card.String()); err != nil {
			return err
		}
	}
	return d.holder.AnnounceExit(0, how)
}
