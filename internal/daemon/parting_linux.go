package daemon

import (
	"context"
	"os"
	"time"

	"github.com/terminal-runtime/trl/internal/holder"
)

// renew begins a restart with the program that is at this one's path now, if
// that can take over. Else nothing changes.
func (d *daemon) renew() {
	if d.held == nil {
		d.log.Warn("SIGHUP has no effect: without a holder the sessions would end")
		return
	}
	if !d.renewing.CompareAndSwap(false, true) {
		return // it is being looked at
	}
	d.tasks.start("check the program", func() {
		defer d.renewing.Store(false)
		version, err := d.checkNext()
		if err != nil {
			d.log.Error("nothing is changed", "event", "not_restarted", "error", err)
			return
		}
		d.log.Info("restarting; the sessions live on", "event", "restarting", "from", d.opts.Version, "to", version)
		d.part(holder.Again)
	})
}

// checkNext asks the program that is at this one's path now whether it can take
// over, and read all that is in the ledger.
func (d *daemon) checkNext() (version string, err error) {
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
	return checkProgram(context.Background(), d.opts.Args[0], d.opts.Args[2:], os.Environ(), dir, records, format)
}

// keep begins the end of this daemon without its sessions.
func (d *daemon) keep() {
	if d.held == nil {
		d.log.Warn("SIGUSR2 has no effect: without a holder the sessions would end")
		return
	}
	if d.listener.Inherited() {
		d.log.Warn("SIGUSR2 has no effect: the socket is the service manager's, and the next daemon would not find the sessions")
		return
	}
	d.log.Info("shutting down; the sessions live on in the holder", "event", "leaving", "holder", d.held.Hello().PID)
	d.part(holder.Keep)
}

func (d *daemon) part(how holder.Parting) {
	select {
	case d.parting <- how:
	default: // it is parting already
	}
}

// partingTime is what requests have that are being answered. An answer takes
// microseconds; one that takes longer waits for a command, for which no time
// would be enough. Its client asks the next daemon.
const partingTime = 100 * time.Millisecond

// leave ends this daemon as its death would, but for the requests that are being
// answered. Everything that lives on is noted already.
func (d *daemon) leave(how holder.Parting) error {
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
	case <-time.After(partingTime):
	}
	if how == holder.Keep {
		if err := d.stopListening(); err != nil {
			return err
		}
		card, err := d.card()
		if err != nil {
			return err
		}
		if err := d.listener.Leave(card.String()); err != nil {
			return err
		}
	}
	return d.held.Bye(0, how)
}
