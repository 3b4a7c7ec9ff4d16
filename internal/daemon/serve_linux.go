package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/cell"
	"github.com/terminal-runtime/trl/internal/front"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/place"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/session"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/transport"
)

// HasLocalPlace says whether sessions run on this system.
const HasLocalPlace = true

// Prepare removes from this process what its sessions must not inherit. Call it
// first, before any goroutine starts; it may re-execute the program.
func Prepare(env Environment) error { return process.CleanSelf(passedFiles(env, os.Getpid())...) }

// daemon is the state of a running daemon. Serve owns it.
type daemon struct {
	cfg   Config
	opts  Options
	log   *slog.Logger
	tasks tasks

	listener    *transport.UnixListener // nil on stdio
	holder      *holder.Client          // nil without a holder
	host        *process.Host
	ledger      *ledger.Ledger
	listenSlots [2]holder.Slot // of the socket and of its lock; 0: none
	driver      *shell.Driver
	store       *journal.Store
	pool        *session.Pool
	places      *place.Registry // nil in a cell
	cells       *cell.Cells     // nil in a cell
	table       *service.Table
	http        *front.HTTP  // nil unless HTTP is configured
	webListener net.Listener // nil unless HTTP is served
	front       *front.Front
	manager     *front.Manager
	inside      *cell.Inside
	files       map[string]int // from the daemon outside this cell
	passed      sockets        // from the service manager, not yet used
	// inheritedWeb is the HTTP listener that was passed to this daemon, as opposed
	// to an earlier one.
	inheritedWeb net.Listener

	upgrading    atomic.Bool          // checking the program at our path
	exitRequests chan holder.ExitMode // exits that keep the sessions; buffered for one

	cleaner *holder.DaemonCleaner // on stdio

	closed chan struct{} // closed when everything else is
}

// Serve runs a daemon until ctx is done, a signal ends it, or, on stdio, its one
// connection ends. It returns nil after a clean shutdown.
func Serve(ctx context.Context, cfg Config, opts Options) error {
	if cfg.HostRuntime == HostRuntimeOff && !opts.HasHolder {
		return servePlaceless(ctx, cfg, opts)
	}
	terminal := term.IsTerminal(int(opts.Stderr.Fd()))
	d := &daemon{
		cfg: cfg, opts: opts, log: newLogger(newBoundedLog(opts.Stderr, opts.Environment.LogFile(cfg.Socket)), cfg, terminal),
		exitRequests: make(chan holder.ExitMode, 1), passed: sockets{-1, -1},
		closed: make(chan struct{}),
	}
	opts.Environment.warnUnknownVariables(d.log)
	halveGOMAXPROCS()
	if opts.HasHolder {
		client, err := holder.Connect(holder.FD)
		if err != nil {
			return err
		}
		d.holder = client
		client.OnRefusal(func(slot holder.Slot, err error) {
			d.log.Error("slot refused", "event", "slot_refused", "slot", slot.String(), "error", err)
		})
		if err := process.HideSelf(); err != nil {
			return err
		}
	}
	if cfg.HostRuntime == HostRuntimeOff {
		d.log.Warn("host_runtime is off: no new session is created on this machine, and those that are there go on",
			"event", "host_runtime_off")
	}
	d.manager = newManager(opts.Environment, d.holderPID(), d.log)
	stop, cut := d.catchSignals(ctx)
	if err := d.open(); err != nil {
		if d.isRestart() {
			if errors.Is(err, ledger.ErrLost) {
				return d.abandon(err)
			}
			return err // the holder keeps the sessions and starts another daemon
		}
		err = errors.Join(err, d.close(cut))
		d.reportExit(err)
		return err
	}
	d.announce(terminal)
	d.front.Serve(ctx)
	d.front.Notify(d.manager, stop.Done())

	idle := whenIdle(milliseconds(d.cfg.DaemonTTLMS), d.liveSessions, d.front.Clients, &d.tasks, d.closed)
	var failed error
	select {
	case <-idle:
		logIdleExit(d.log, d.cfg.DaemonTTLMS)
	case <-stop.Done():
		d.log.Info("shutting down", "event", "stopping", "reason", context.Cause(stop).Error())
	case mode := <-d.exitRequests:
		return d.handOff(mode)
	case <-d.holderGone():
		failed = d.onHolderDeath(stop)
	case failed = <-d.front.Ended():
		d.log.Info("shutting down", "event", "stopping", "reason", "serving has ended")
	}
	if d.opts.Stdio {
		var done context.CancelFunc
		cut, done = context.WithTimeout(cut, stdioGrace)
		defer done()
	}
	d.manager.Stopping()
	err := errors.Join(failed, d.close(cut))
	if err == nil {
		d.log.Info("stopped", "event", "stopped")
	}
	d.reportExit(err)
	return err
}

// reportExit tells the holder that this daemon exits on purpose.
func (d *daemon) reportExit(err error) {
	if d.holder == nil {
		return
	}
	code := 0
	if err != nil {
		code = 1
	}
	_ = d.holder.AnnounceExit(code, holder.Stop) // it only fails if the holder is gone
}

// halveGOMAXPROCS leaves half of the processors to the commands. The daemon's own
// share of a short command is smaller than the shell's, and a processor it does
// not need costs time: each time a goroutine becomes ready, Go wakes a thread to
// look for more work, and a command would wait for that thread in three places.
// GOMAXPROCS in the environment takes precedence.
func halveGOMAXPROCS() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
}

// open wires the layers, the lowest first. After an error, close closes what it
// has opened.
func (d *daemon) open() error {
	if d.holder != nil {
		if err := d.openLedger(); err != nil {
			return err
		}
	}
	err := d.receive()
	if err != nil {
		return err
	}
	// Listen first: of two daemons for one socket, the second must not touch
	// anything.
	if !d.opts.Stdio {
		if err := d.listen(); err != nil {
			return err
		}
	}
	// Not before: a daemon that finds another one on its socket only says so.
	if !logsText(d.cfg, term.IsTerminal(int(d.opts.Stderr.Fd()))) {
		d.log.Info("starting", "event", "starting", "version", d.opts.Version, "pid", os.Getpid(), "holder", d.holderPID(), "again", d.isRestart())
	}
	if err := d.inheritWeb(); err != nil {
		return err
	}
	var webFailed error
	if servesHTTP(&d.cfg, d.opts.Stdio, d.log) {
		if d.http, webFailed = front.PrepareHTTP(d.cfg.httpConfig(), d.log); webFailed != nil && !d.isRestart() {
			return webFailed
		}
	}
	container, err := d.openHost()
	if err != nil {
		return err
	}
	if err := d.cleanUpAfterPredecessor(); err != nil {
		return err
	}
	if d.opts.Stdio {
		argv, env := cleanerCommand(d.host.Name(), "", d.cfg.LogFormat)
		if d.cleaner, err = holder.StartDaemonCleaner(argv, env, int(d.opts.Stderr.Fd())); err != nil {
			return err
		}
	}
	if inMemory(d.cfg.SpillDir) {
		d.log.Warn("spill_dir is in memory: spilled output uses memory that the system cannot reclaim",
			"hint", "set spill_dir to a directory on a disk, or lower total_quota_bytes to the memory you can spare")
	}
	keep := holder.NewLocalKeeper()
	if d.holder != nil {
		keep = d.holder
	}
	if err := d.openDriver(keep); err != nil {
		return err
	}
	d.store = journal.NewStore(journal.Config{
		Keeper:      keep,
		Dir:         d.cfg.SpillDir,
		ExecMemory:  d.cfg.ExecMemory,
		TotalMemory: d.cfg.TotalMemory,
		ExecQuota:   d.cfg.ExecQuota,
		TotalQuota:  d.cfg.TotalQuota,
		Inexact: func(err error) {
			d.log.Warn("output in transit will be lost if the daemon is killed", "error", err)
		},
		Stopped: func(err error) {
			d.log.Warn("cannot keep all output for now; gaps mark the missing parts", "error", err)
		},
	})
	d.openPool(keep, container.Asked)
	if !d.opts.Environment.inCell() {
		d.places = openPlaces(d.cfg, d.opts, d.log, d.loadPlaces(), d.savePlaces())
	}
	if err := d.openCells(keep); err != nil {
		return err
	}
	if d.isRestart() {
		d.adopt()
	}
	if err := errors.Join(webFailed, d.listenWeb()); err != nil {
		if !d.isRestart() {
			return err
		}
		// Keeping the sessions is more important than HTTP.
		d.log.Error("HTTP is not served until the next restart", "error", err)
	}
	d.openTable()
	d.front = front.New(front.Config{
		Handler: d.newRouter(), Version: d.opts.Version, Log: d.log, RefusesPeer: d.refusesPeer,
		Socket: d.listener, Path: d.cfg.Socket, Stdin: d.opts.Stdin, Stdout: d.opts.Stdout,
		HTTP: d.http, State: d.state, MaxRequestBytes: d.cfg.MaxRequestBytes, Go: d.tasks.start,
	})
	return d.writeLockInfo()
}

// state returns what the metrics show of the sessions.
func (d *daemon) state() front.State {
	store := d.store.Stats()
	return front.State{
		Sessions:      d.pool.Stats().SessionsByState,
		CapturedBytes: store.CapturedBytes, MemoryBytes: store.MemoryBytes, SpilledBytes: store.SpilledBytes,
	}
}

// holderPID returns the process id of the holder; 0 without a holder.
func (d *daemon) holderPID() int {
	if d.holder == nil {
		return 0
	}
	return d.holder.Hello().PID
}

// writeLockInfo writes to the lock which process holds the sessions.
func (d *daemon) writeLockInfo() error {
	if d.holder == nil || d.listener == nil || d.listener.Inherited() {
		return nil
	}
	info, err := d.lockInfo()
	if err == nil {
		info.daemon = os.Getpid()
		info.daemonStarted, err = process.StartTime(info.daemon)
	}
	if err != nil {
		return err
	}
	return d.listener.WriteLock(info.String())
}

// adopt takes over the sessions of an earlier daemon.
func (d *daemon) adopt() {
	began := time.Now()
	d.manager.Starting()
	claims := []holder.Claim{{Owner: "driver", Slots: d.driver.Slots()}, {Owner: "listener", Slots: d.listenSlots[:]}}
	if d.cells != nil {
		d.cells.Adopt()
		claims = append(claims, holder.Claim{Owner: "cells", Slots: d.cells.Slots()})
	}
	resume := d.pool.Adopt(d.holder.Hello().Slots, claims...)
	unclaimed := d.unclaimedSlots() // before the sessions run and reuse their slots
	d.driver.Start()
	resume(func() { d.dropUnclaimedSlots(unclaimed) })
	d.host.KillUnadopted()
	d.log.Info("took over the sessions of the previous daemon", "event", "adopted",
		"sessions", d.liveSessions(), "duration_ms", time.Since(began).Milliseconds())
}

// liveSessions returns how many sessions there are that have not ended.
func (d *daemon) liveSessions() (live int) {
	for state, n := range d.pool.Stats().SessionsByState {
		if state != api.StateTerminated {
			live += n
		}
	}
	return live
}

// inMemory reports whether dir is on a file system in memory.
func inMemory(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && (st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC)
}

// holderGone returns a channel that is closed when the holder dies; nil without a
// holder.
func (d *daemon) holderGone() <-chan struct{} {
	if d.holder == nil {
		return nil
	}
	return d.holder.Done()
}

// lostNoticeTime is how long a daemon that lost its holder answers that the
// sessions are lost, before it exits and another can be started.
const lostNoticeTime = 10 * time.Second

// lostKillTime is how much longer such a daemon may take to exit: killing a
// session takes up to ten seconds if the kernel keeps a process from exiting.
const lostKillTime = 15 * time.Second

// onHolderDeath ends the sessions, which cannot continue without the holder, and
// answers for lostNoticeTime that they are lost.
func (d *daemon) onHolderDeath(stop context.Context) error {
	d.log.Error("the holder died; all sessions are lost", "event", "holder_lost", "ending_in", lostNoticeTime.String())
	// This process exits even if something blocks it; the cleaner then kills the
	// remaining processes.
	time.AfterFunc(lostNoticeTime+lostKillTime, func() {
		d.log.Error("cannot end the sessions in time; leaving them to the cleaner", "event", "not_ended")
		os.Exit(1)
	})
	notice := time.NewTimer(lostNoticeTime)
	defer notice.Stop()
	d.pool.Lose()
	_ = d.killOrphans(d.host.Name()) // processes that belong to no session
	select {
	case <-notice.C:
	case <-stop.Done():
	}
	return holder.ErrGone
}

// cleanUpAfterPredecessor kills the processes left by the daemon that had the
// socket before, if it died together with its holder and its cleaner.
func (d *daemon) cleanUpAfterPredecessor() error {
	if d.listener == nil || d.isRestart() {
		return nil
	}
	stale, ok := parseLockInfo(d.listener.StaleLock())
	if ok && stale.host != d.host.Name() { // in containers pids repeat, and once in 65,536 times the number too
		if err := stale.checkDead(); err != nil {
			return d.liveHolderError(stale, err)
		}
		if err := d.killOrphans(stale.host); errors.Is(err, process.ErrHostAlive) {
			return d.liveHolderError(stale, err)
		}
	}
	return d.writeLockInfo()
}

// liveHolderError returns the error for a lock that names a live host. This daemon
// has the lock, so that host serves elsewhere: killing its processes would end its
// sessions.
func (d *daemon) liveHolderError(stale lockInfo, err error) error {
	return fmt.Errorf("the lock of %s names process %d as a dead holder, but it is alive; nothing was killed: %w",
		d.cfg.Socket, stale.host.Parent, err)
}

// killOrphans kills the processes that a dead host left. It logs those it could not
// kill.
func (d *daemon) killOrphans(name process.HostName) error {
	report, err := name.KillOrphans(time.Now().Add(killOrphansTimeout))
	switch {
	case err != nil || len(report.Left) > 0 || report.CgroupLeft:
		d.log.Error("cannot kill all leftover processes", "event", "not_ended", "host", name.String(), "left", report.Left, "error", err)
	case report.Found > 0:
		d.log.Warn("killed leftover processes", "event", "undertaken", "host", name.String(), "processes", report.Found)
	}
	return err
}

// isRestart reports whether this holder had a daemon before this one.
func (d *daemon) isRestart() bool { return d.holder != nil && d.holder.Hello().Restarted }

// unclaimedSlots returns the slots of an earlier daemon that nothing needs any
// more: those it had prepared for the next command, and those of ended sessions.
func (d *daemon) unclaimedSlots() []holder.Slot {
	if d.pool.Unreadable() {
		d.log.Warn("keeping all descriptors of the previous daemon: some may belong to unreadable sessions", "event", "strays_kept")
		return nil
	}
	needed := map[holder.Slot]bool{holder.Root: true}
	for _, slot := range slices.Concat(d.listenSlots[:], d.driver.Slots(), d.pool.Slots()) {
		needed[slot] = true
	}
	if web := d.persistedWeb(); web != nil {
		needed[web.slot] = true
	}
	if d.cells != nil {
		for _, slot := range d.cells.Slots() {
			needed[slot] = true
		}
	}
	var unclaimed []holder.Slot
	for _, slot := range d.holder.Hello().Slots {
		if !needed[slot] {
			unclaimed = append(unclaimed, slot)
		}
	}
	return unclaimed
}

// dropUnclaimedSlots drops the slots that no session needs, not even an ended one.
func (d *daemon) dropUnclaimedSlots(unclaimed []holder.Slot) {
	needed := map[holder.Slot]bool{}
	for _, slot := range d.pool.Slots() {
		needed[slot] = true
	}
	for _, slot := range unclaimed {
		if !needed[slot] {
			d.holder.Drop(slot)
		}
	}
}

// driverKey is the ledger key of the shell driver's state.
const driverKey = "hub"

// unreadableDriverKey is the ledger key of an earlier driver state that could not
// be read.
const unreadableDriverKey = "u/hub"

// openDriver restores the shell driver of an earlier daemon, or makes a new one. If
// it cannot be restored, neither can its shells: see shell.Driver.Adopt.
func (d *daemon) openDriver(keep holder.Keeper) (err error) {
	cfg := shell.DriverConfig{Log: d.log, Keeper: keep}
	if d.ledger == nil {
		d.driver, err = shell.OpenDriver(cfg)
		return err
	}
	saved, found := d.ledger.Get(driverKey)
	if found {
		if d.driver, err = shell.AdoptDriver(cfg, saved); err != nil {
			d.log.Error("cannot restore the shells of an earlier daemon", "event", "driver_unreadable", "error", err)
			if err := d.ledger.Put(unreadableDriverKey, saved); err != nil {
				return err
			}
		}
	}
	if d.driver == nil {
		if d.driver, err = shell.OpenDriver(cfg); err != nil {
			return err
		}
	}
	if now := d.driver.State(); !bytes.Equal(now, saved) {
		return d.ledger.Put(driverKey, now)
	}
	return nil
}

// announce reports where the daemon serves and how it tracks processes: as a line
// of text if the log is text, otherwise as a log record.
func (d *daemon) announce(terminal bool) {
	where := d.front.Where()
	support := d.host.Support()
	if !d.opts.Stdio && d.cfg.DefaultTimeoutMS == 0 && d.cfg.IdleTTLMS == 0 {
		d.log.Info("neither idle_ttl_ms nor default_timeout_ms is set: forgotten sessions and commands run until the daemon stops",
			"event", "no_time_limits")
	}
	if !logsText(d.cfg, terminal) {
		d.log.Info("serving", "event", "ready", "on", where, "pid", os.Getpid(), "holder", d.holderPID(), "cgroup", support.Cgroup, "no_cgroup_because", support.Reason,
			"version", d.opts.Version, "config_file", d.cfg.File)
		return
	}
	tracking := "cgroup " + support.Cgroup
	if support.Cgroup == "" {
		tracking = "tags (no cgroup: " + support.Reason + ")"
	}
	fmt.Fprintf(d.opts.Stderr, "trl: serving on %s; processes are tracked by %s\n", where, tracking)
}

// stdioGrace is how long commands have to exit after the only client is gone.
const stdioGrace = time.Second

// close shuts down in the order of the package comment. cut ends the grace period
// of commands. It also closes a daemon that was opened only in part.
func (d *daemon) close(cut context.Context) error {
	var errs []error
	if err := d.stopListening(); err != nil {
		errs = append(errs, err)
	}
	if d.front != nil {
		d.front.Drain()
	}
	if d.listener != nil && d.listener.Inherited() {
		front.StopAccepting(d.listener, d.webListener) // new clients wait in the queue for the next daemon
	}
	closePlaces(d.places, d.opts.Stdio) // calls that wait for a place end
	if d.pool != nil {
		errs = append(errs, d.pool.Shutdown(cut))
	}
	if d.cells != nil {
		d.cells.Close()
	}
	front.StopAccepting(d.listener, d.webListener)
	answers, cancel := context.WithTimeout(context.Background(), answerGrace)
	defer cancel()
	if d.front != nil {
		if err := d.front.Shutdown(answers); err != nil {
			d.log.Warn("clients did not read their last answers", "error", err)
		}
	}
	if d.pool != nil {
		d.pool.Close()
		d.store.Close()
	}
	if d.driver != nil {
		errs = append(errs, d.driver.Close())
	}
	if d.host != nil {
		errs = append(errs, d.host.Close(), d.cleaner.Stop())
	}
	if d.listener != nil {
		errs = append(errs, d.listener.Close())
	}
	close(d.closed)
	// No task has anything left to wait for.
	if err := d.tasks.wait(answers); err != nil {
		d.log.Warn("tasks still running after shutdown", "error", err)
	}
	return errors.Join(errs...)
}
