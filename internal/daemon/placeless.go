package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/front"
	"github.com/terminal-runtime/trl/internal/place"
	"github.com/terminal-runtime/trl/internal/route"
	"github.com/terminal-runtime/trl/internal/transport"
)

// This file is the daemon of a machine without a local place for sessions: a front
// and a router, no holder and nothing to keep. Serve uses it where sessions cannot
// run, and where host_runtime is off. It builds everywhere, so that it is tested everywhere.

// noLocalPlace is how such a daemon announces itself.
const noLocalPlace = "no local place"

// TracksNothing is the process tracking of such a daemon, in system.info.
const TracksNothing = "none"

// whyPlaceless returns why no session runs on this machine itself.
func whyPlaceless() string {
	if HasLocalPlace {
		return "host_runtime is off"
	}
	return "sessions need Linux"
}

// placeless is the state of such a daemon. servePlaceless owns it.
type placeless struct {
	identity
	cfg  Config
	opts Options
	log  *slog.Logger

	tasks       tasks
	socket      *transport.UnixListener // nil on stdio
	http        *front.HTTP             // nil unless HTTP is configured
	webListener net.Listener            // nil unless HTTP is served
	front       *front.Front
	places      *place.Registry
	closed      chan struct{} // closed when everything else is
}

// servePlaceless runs such a daemon until ctx is done, a signal ends it, or, on
// stdio, its one connection ends. It returns nil after a clean shutdown.
func servePlaceless(ctx context.Context, cfg Config, opts Options) error {
	terminal := term.IsTerminal(int(opts.Stderr.Fd()))
	log := newLogger(newBoundedLog(opts.Stderr, opts.Environment.LogFile(cfg.Socket)), cfg, terminal)
	p := &placeless{identity: newIdentity(opts.Version), cfg: cfg, opts: opts, log: log, closed: make(chan struct{})}
	opts.Environment.warnUnknownVariables(p.log)
	if !logsText(cfg, terminal) {
		p.log.Info("starting", "event", "starting", "version", opts.Version, "pid", os.Getpid())
	}
	signals := make(chan os.Signal, 8)
	// SIGPIPE is caught so that the daemon survives the reader of its log.
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	defer signal.Stop(signals)
	if err := p.open(); err != nil {
		return errors.Join(err, p.close())
	}
	p.announce(terminal)
	p.front.Serve(ctx)
	reason, failed := p.wait(ctx, signals)
	p.log.Info("shutting down", "event", "stopping", "reason", reason)
	err := errors.Join(failed, p.close())
	if err == nil {
		p.log.Info("stopped", "event", "stopped")
	}
	return err
}

// open listens, and makes the front. After an error, close closes what it has
// opened.
func (p *placeless) open() error {
	var err error
	if !p.opts.Stdio {
		if p.socket, err = listenUnix(p.cfg, p.opts); err != nil {
			return err
		}
	}
	if servesHTTP(&p.cfg, p.opts.Stdio, p.log) {
		if p.http, err = front.PrepareHTTP(p.cfg.httpConfig(), p.log); err != nil {
			return err
		}
		l, err := p.http.Listen()
		if err != nil {
			return fmt.Errorf("http: %w", err)
		}
		p.webListener = l
		p.cfg.HTTP = p.http.Use(l) // as system.info shows it
	}
	p.places = openPlaces(p.cfg, p.opts, p.log, nil, nil)
	p.front = front.New(front.Config{
		Handler: route.New(route.Config{
			System: p, Manage: p.places, Log: p.log, Observe: requestObserver(p.http),
			Places: routedPlaces{p.places}, Node: p.cfg.Node, DefaultRuntime: p.cfg.DefaultRuntime, Isolation: p.places.Isolation,
		}), Version: p.opts.Version, Log: p.log,
		Socket: p.socket, Path: p.cfg.Socket, Stdin: p.opts.Stdin, Stdout: p.opts.Stdout,
		HTTP: p.http, MaxRequestBytes: p.cfg.MaxRequestBytes, Go: p.tasks.start,
	})
	return nil
}

// announce reports where the daemon serves and that it has no sessions: as a line of
// text if the log is text, otherwise as log records.
func (p *placeless) announce(terminal bool) {
	if logsText(p.cfg, terminal) {
		fmt.Fprintf(p.opts.Stderr, "trl: serving on %s; %s: %s\n", p.front.Where(), noLocalPlace, whyPlaceless())
		return
	}
	p.log.Warn(noLocalPlace+": "+whyPlaceless(), "event", "no_local_place", "os", runtime.GOOS)
	p.log.Info("serving", "event", "ready", "on", p.front.Where(), "pid", os.Getpid(),
		"version", p.opts.Version, "config_file", p.cfg.File)
}

// wait returns why the daemon must shut down.
func (p *placeless) wait(ctx context.Context, signals <-chan os.Signal) (reason string, err error) {
	noSessions := func() int { return 0 }
	idle := whenIdle(milliseconds(p.cfg.DaemonTTLMS), noSessions, p.front.Clients, &p.tasks, p.closed)
	for {
		select {
		case <-idle:
			logIdleExit(p.log, p.cfg.DaemonTTLMS)
			return "idle", nil
		case <-ctx.Done():
			return context.Cause(ctx).Error(), nil
		case received := <-signals:
			if received != unix.SIGPIPE {
				return "received " + unix.SignalName(received.(unix.Signal)), nil
			}
		case err := <-p.front.Ended():
			return "serving has ended", err
		}
	}
}

// close shuts down in the order of the package comment, as far as it applies.
func (p *placeless) close() error {
	close(p.closed)
	front.StopAccepting(p.socket, p.webListener)
	closePlaces(p.places, p.opts.Stdio)
	answers, cancel := context.WithTimeout(context.Background(), answerGrace)
	defer cancel()
	if p.front != nil {
		p.front.Drain()
		if err := p.front.Shutdown(answers); err != nil {
			p.log.Warn("clients did not read their last answers", "error", err)
		}
	}
	var err error
	if p.socket != nil {
		err = p.socket.Close()
	}
	if err := p.tasks.wait(answers); err != nil {
		p.log.Warn("tasks still running after shutdown", "error", err)
	}
	return err
}

// answerGrace is how long clients have to read their last answers. No request waits
// any more by then, so only a client that does not read uses it up.
const answerGrace = 2 * time.Second

// SystemInfo answers system.info.
func (p *placeless) SystemInfo(context.Context) *api.SystemInfo {
	info := p.describe(p.cfg, p.opts.Stdio)
	info.Runtimes, info.Shells = []string{}, []string{}
	info.Process = api.ProcessSupport{Tracking: TracksNothing}
	return info
}

// Stats answers system.stats.
func (p *placeless) Stats(context.Context) *api.SystemStats {
	stats := p.measure()
	stats.Sessions = map[api.State]int{api.StateCreating: 0, api.StateIdle: 0, api.StateRunning: 0, api.StateTerminated: 0}
	return stats
}

// Upgrade is never called: the router refuses the method.
func (p *placeless) Upgrade(context.Context) (*api.UpgradeResult, error) {
	return nil, errors.New(noLocalPlace)
}
