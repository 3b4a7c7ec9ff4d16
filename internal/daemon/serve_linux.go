package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"golang.org/x/term"

	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/session"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/transport"
)

// Prepare rids this process of what its sessions must not inherit. It comes
// first, before any goroutine, and may re-execute the program.
func Prepare() error { return process.CleanSelf() }

// daemon is everything that runs. It is owned by Serve.
type daemon struct {
	cfg   Config
	opts  Options
	log   *slog.Logger
	tasks tasks

	listener *transport.UnixListener // nil on stdio
	host     *process.Host
	hub      *shell.Hub
	store    *journal.Store
	pool     *session.Pool
	server   *transport.Server
	web      web // HTTP, if it is asked for

	ended  chan error    // how serving ended, when it did so by itself; room for each carrier
	closed chan struct{} // closed when everything else is
}

// Serve runs a daemon until ctx is done, a signal ends it, or on stdio its one
// connection does. It returns nil after a shutdown in which nothing went wrong.
func Serve(ctx context.Context, cfg Config, opts Options) error {
	terminal := term.IsTerminal(int(opts.Stderr.Fd()))
	d := &daemon{
		cfg: cfg, opts: opts, log: newLogger(opts.Stderr, cfg, terminal),
		ended: make(chan error, 2), closed: make(chan struct{}),
	}
	for _, name := range opts.Environment.unknownVariables() {
		d.log.Warn("a variable in the environment looks like a setting and is none", "variable", name)
	}
	leaveProcessors()
	stop, cut := d.catchSignals(ctx)
	if err := d.open(); err != nil {
		return errors.Join(err, d.close(cut))
	}
	d.announce(terminal)
	d.serve(ctx)

	var failed error
	select {
	case <-stop.Done():
		d.log.Info("shutting down", "reason", context.Cause(stop).Error())
	case failed = <-d.ended:
		d.log.Info("shutting down", "reason", "serving has ended")
	}
	err := errors.Join(failed, d.close(cut))
	if err == nil {
		d.log.Info("stopped")
	}
	return err
}

// leaveProcessors leaves half of the machine to the commands. The daemon's own
// part of a short command is less than the shell's, and a processor that it has
// and does not need costs time: each time a goroutine becomes ready Go wakes a
// thread to look for more of them, and a command would wait for that thread in
// three places. GOMAXPROCS in the environment has the last word.
func leaveProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
}

// open wires the floors, the lowest first. What it opened before an error is
// closed by close.
func (d *daemon) open() error {
	var err error
	// First of all: of two daemons for one socket the second must not touch
	// anything.
	if !d.opts.Stdio {
		if d.listener, err = transport.ListenUnix(d.cfg.Socket); err != nil {
			return err
		}
	}
	if err := d.openWeb(); err != nil {
		return err
	}
	d.host, err = process.NewHost(process.Config{NoCgroup: d.cfg.Cgroup == CgroupOff, Log: d.log})
	if err != nil {
		return err
	}
	if d.hub, err = shell.NewHub(d.log); err != nil {
		return err
	}
	d.store = journal.NewStore(journal.Config{
		Dir:         d.cfg.SpillDir,
		ExecMemory:  d.cfg.ExecMemory,
		TotalMemory: d.cfg.TotalMemory,
		ExecQuota:   d.cfg.ExecQuota,
		TotalQuota:  d.cfg.TotalQuota,
	})
	d.pool = session.NewPool(session.Config{
		MaxSessions:      int(d.cfg.MaxSessions),
		DefaultTimeout:   milliseconds(d.cfg.DefaultTimeoutMS),
		IdleTTL:          milliseconds(d.cfg.IdleTTLMS),
		Grace:            milliseconds(d.cfg.GraceMS),
		SessionRetention: milliseconds(d.cfg.SessionRetention),
		ExecRetention:    milliseconds(d.cfg.ExecRetention),
		MaxTerminated:    int(d.cfg.MaxTerminated),
		MaxExecs:         int(d.cfg.MaxExecs),
		MaxOutputBytes:   d.cfg.MaxOutputBytes,
		Log:              d.log,
		Observer:         d.web.observer(),
	}, d.host, d.hub, d.store)
	table := service.New(service.Config{Sessions: d.pool, System: newSystem(d), Log: d.log, Observe: d.web.observe()})
	d.server = transport.NewServer(transport.Config{Handler: table, MaxRequestBytes: int(d.cfg.MaxRequestBytes), Log: d.log})
	d.connectWeb()
	return nil
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// heldListener stops accepting when it is closed, and keeps the path and the
// lock of the socket, which are given up last.
type heldListener struct{ *transport.UnixListener }

func (l heldListener) Close() error { return l.UnixListener.UnixListener.Close() }

// serve starts serving. Its end, if it comes before the shutdown, is sent to
// ended.
func (d *daemon) serve(ctx context.Context) {
	// Requests are ended by the shutdown, in its order, not by this context.
	ctx = context.WithoutCancel(ctx)
	d.tasks.start("serve", func() {
		if d.opts.Stdio {
			d.ended <- d.serveStdio(ctx)
			return
		}
		d.ended <- unlessClosed(d.server.Serve(ctx, heldListener{d.listener}))
	})
	if d.web.server != nil {
		d.tasks.start("serve HTTP", func() {
			d.ended <- unlessClosed(d.web.server.Serve(ctx, d.web.listener))
		})
	}
}

// announce says where the daemon is and how it will know its processes: in a
// line for a person, or as a record where the log is for programs.
func (d *daemon) announce(terminal bool) {
	where := "stdin and stdout"
	if !d.opts.Stdio {
		where = d.cfg.Socket
	}
	if d.web.listener != nil {
		where += " and " + d.web.url()
	}
	support := d.host.Support()
	if !logsText(d.cfg, terminal) {
		d.log.Info("serving", "on", where, "cgroup", support.Cgroup, "no_cgroup_because", support.Reason,
			"version", d.opts.Version, "config_file", d.cfg.File)
		return
	}
	tracking := "cgroup " + support.Cgroup
	if support.Cgroup == "" {
		tracking = "tags (no cgroup: " + support.Reason + ")"
	}
	fmt.Fprintf(d.opts.Stderr, "trl: serving on %s; processes are tracked by %s\n", where, tracking)
}

// answerGrace is how long clients have to take their last answers. Nothing is
// waited for any more by then, so only one that does not read needs it.
const answerGrace = 2 * time.Second

// close is the order of shutdown; see the package comment. cut ends the grace
// of commands. It also closes a daemon that was opened in part.
func (d *daemon) close(cut context.Context) error {
	var errs []error
	if d.listener != nil {
		_ = heldListener{d.listener}.Close() // it may be closed already
	}
	if d.web.listener != nil {
		_ = d.web.listener.Close()
	}
	if d.pool != nil {
		errs = append(errs, d.pool.Shutdown(cut))
	}
	answers, cancel := context.WithTimeout(context.Background(), answerGrace)
	defer cancel()
	if d.server != nil {
		// At once: WebSockets belong to both.
		web := make(chan error, 1)
		go func() { web <- d.web.shutdown(answers) }()
		if err := errors.Join(d.server.Shutdown(answers), <-web); err != nil {
			d.log.Warn("clients did not take their last answers", "error", err)
		}
	}
	if d.pool != nil {
		d.pool.Close()
	}
	if d.hub != nil {
		errs = append(errs, d.hub.Close())
	}
	if d.host != nil {
		errs = append(errs, d.host.Close())
	}
	if d.listener != nil {
		errs = append(errs, d.listener.Close())
	}
	close(d.closed)
	// The last answers had their time; a task has nothing left to wait for.
	if err := d.tasks.wait(answers); err != nil {
		d.log.Warn("tasks outlive the shutdown", "error", err)
	}
	return errors.Join(errs...)
}
