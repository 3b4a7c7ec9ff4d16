package daemon

import (
	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/cell"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/session"
)

// receive finds out what this daemon was passed: sockets by a service manager, and in
// a cell what the daemon outside tells it.
func (d *daemon) receive() (err error) {
	if d.inside, err = d.opts.Environment.inside(); err != nil || d.holder == nil {
		return err
	}
	var sockets []int
	sockets, d.files = d.inside.Split(filesFrom(d.opts.Environment, firstDaemonFD))
	d.passed, err = sortSockets(sockets)
	return err
}

// openPool makes the pool, without the sessions of an earlier daemon.
func (d *daemon) openPool(keep holder.Keeper, enforced api.Limits) {
	cfg := session.Config{
		Node:             d.cfg.Node,
		MaxSessions:      int(d.cfg.MaxSessions),
		DefaultTimeout:   milliseconds(d.cfg.DefaultTimeoutMS),
		IdleTTL:          milliseconds(d.cfg.IdleTTLMS),
		Grace:            milliseconds(d.cfg.GraceMS),
		SessionRetention: milliseconds(d.cfg.SessionRetention),
		ExecRetention:    milliseconds(d.cfg.ExecRetention),
		MaxTerminated:    int(d.cfg.MaxTerminated),
		MaxExecs:         int(d.cfg.MaxExecs),
		MaxOutputBytes:   d.cfg.MaxOutputBytes,
		NoLabels:         d.cfg.Labels == LabelsOff,
		InputBuffer:      d.cfg.InputBuffer,
		Log:              d.log,
		Observer:         d.sessionObserver(),
		Keeper:           keep,
		Ledger:           d.ledger,
		EndUnreadable:    d.cfg.Unreadable == UnreadableEnd,
		Forgotten:        d.forgotten,
		Isolation:        d.inside.Isolation,
		Limits:           d.inside.Limits,
		Enforced:         enforced,
	}
	if denials := cell.OpenDenials(d.files); denials != nil {
		cfg.Denials = denials
	}
	d.pool = session.NewPool(cfg, d.host, d.driver, d.store)
}

// sessionObserver returns the metrics' observer; nil without HTTP, where nothing
// could read them.
func (d *daemon) sessionObserver() session.Observer {
	if d.http == nil {
		return nil
	}
	return d.http.Metrics()
}
