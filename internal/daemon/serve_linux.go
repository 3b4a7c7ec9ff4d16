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
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/session"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/transport"
)

// Prepare rids this process of what its sessions must not inherit. It comes
// first, before any goroutine, and may re-execute the program.
func Prepare(env Environment) error { return process.CleanSelf(passedFiles(env, os.Getpid())...) }

// daemon is everything that runs. It is owned by Serve.
type daemon struct {
	cfg   Config
	opts  Options
	log   *slog.Logger
	tasks tasks

	listener    *transport.UnixListener // nil on stdio
	holder      *holder.Client          // nil: there is no holder
	host        *process.Host
	ledger      *ledger.Ledger
	listenSlots [2]holder.Slot // of the socket and of its lock; 0: none
	driver      *shell.Driver
	store       *journal.Store
	pool        *session.Pool
	server      *transport.Server
	web         web // HTTP, if it is asked for
	table       *service.Table
	manager     *manager
	passed      sockets // until they are listened on
	// inheritedWeb is what was passed for HTTP, to this daemon and not to one
	// before it.
	inheritedWeb net.Listener

	draining     atomic.Bool          // it ends
	upgrading    atomic.Bool          // the program at our path is being looked at
	exitRequests chan holder.ExitMode // how to end without the sessions; has room for one

	cleaner *holder.DaemonCleaner // on stdio

	ended  chan error    // how serving ended, when it did so by itself; room for each carrier
	closed chan struct{} // closed when everything else is
}

// Serve runs a daemon until ctx is done, a signal ends it, or on stdio its one
// connection does. It returns nil after a shutdown in which nothing went wrong.
func Serve(ctx context.Context, cfg Config, opts Options) error {
	terminal := term.IsTerminal(int(opts.Stderr.Fd()))
	d := &daemon{
		cfg: cfg, opts: opts, log: newLogger(opts.Stderr, cfg, terminal),
		exitRequests: make(chan holder.ExitMode, 1), passed: sockets{-1, -1},
		ended: make(chan error, 2), closed: make(chan struct{}),
	}
	for _, name := range opts.Environment.unknownVariables() {
		d.log.Warn("a variable in the environment looks like a setting and is none", "variable", name)
	}
	halveGOMAXPROCS()
	if opts.HasHolder {
		held, err := holder.Connect(holder.FD)
		if err != nil {
			return err
		}
		d.holder = held
		held.OnRefusal(func(slot holder.Slot, err error) {
			d.log.Error("slot refused", "event", "slot_refused", "slot", slot.String(), "error", err)
		})
		if err := process.HideSelf(); err != nil {
			return err
		}
	}
	d.manager = newManager(opts.Environment, d.holder, d.log)
	if !logsText(cfg, terminal) {
		d.log.Info("starting", "event", "starting", "version", opts.Version, "pid", os.Getpid(), "holder", d.manager.holder, "again", d.isRestart())
	}
	stop, cut := d.catchSignals(ctx)
	if err := d.open(); err != nil {
		if d.isRestart() {
			if errors.Is(err, ledger.ErrLost) {
				return d.abandon(err)
			}
			return err // the holder has the sessions, and tries again
		}
		err = errors.Join(err, d.close(cut))
		d.reportExit(err)
		return err
	}
	d.announce(terminal)
	d.serve(ctx)
	d.notifyManager(stop)

	var failed error
	select {
	case <-stop.Done():
		d.log.Info("shutting down", "event", "stopping", "reason", context.Cause(stop).Error())
	case how := <-d.exitRequests:
		return d.handOff(how)
	case <-d.holderGone():
		failed = d.onHolderDeath(stop)
	case failed = <-d.ended:
		d.log.Info("shutting down", "event", "stopping", "reason", "serving has ended")
	}
	if d.opts.Stdio {
		var done context.CancelFunc
		cut, done = context.WithTimeout(cut, stdioGrace)
		defer done()
	}
	d.manager.stopping()
	err := errors.Join(failed, d.close(cut))
	if err == nil {
		d.log.Info("stopped", "event", "stopped")
	}
	d.reportExit(err)
	return err
}

// bye tells the holder that this was meant.
func (d *daemon) reportExit(err error) {
	if d.holder == nil {
		return
	}
	code := 0
	if err != nil {
		code = 1
	}
	_ = d.holder.AnnounceExit(code, holder.Stop) // a holder that is gone need not know
}

// leaveProcessors leaves half of the machine to the commands. The daemon's own
// part of a short command is less than the shell's, and a processor that it has
// and does not need costs time: each time a goroutine becomes ready Go wakes a
// thread to look for more of them, and a command would wait for that thread in
// three places. GOMAXPROCS in the environment has the last word.
func halveGOMAXPROCS() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
}

// open wires the floors, the lowest first. What it opened before an error is
// closed by close.
func (d *daemon) open() error {
	var err error
	if d.holder != nil {
		if err := d.openLedger(); err != nil {
			return err
		}
		if d.passed, err = sortSockets(filesFrom(d.opts.Environment, firstDaemonFD)); err != nil {
			return err
		}
	}
	// First of all: of two daemons for one socket the second must not touch
	// anything.
	if !d.opts.Stdio {
		if err := d.listen(); err != nil {
			return err
		}
	}
	if err := d.inheritWeb(); err != nil {
		return err
	}
	if d.web, err = prepareWeb(d.cfg, d.opts.Stdio, d.log); err != nil && !d.isRestart() {
		return err
	}
	webFailed := err
	d.host, err = process.NewHost(process.Config{NoCgroup: d.cfg.Cgroup == CgroupOff, Log: d.log, Holder: d.holder})
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
		d.log.Warn("spill_dir is in memory: what is spilled counts as memory of the daemon, and can't be given back to a machine that is short of it",
			"hint", "set spill_dir to a directory on a disk, or total_quota_bytes to what memory can be spared")
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
			d.log.Warn("output that is on its way when the daemon is killed will be lost", "error", err)
		},
		Stopped: func(err error) {
			d.log.Warn("output can't be kept whole for now: a gap tells what is missing", "error", err)
		},
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
		InputBuffer:      d.cfg.InputBuffer,
		Log:              d.log,
		Observer:         d.web.sessionObserver(),
		Keeper:           keep,
		Ledger:           d.ledger,
		EndUnreadable:    d.cfg.Unreadable == UnreadableEnd,
	}, d.host, d.driver, d.store)
	if d.isRestart() {
		d.adopt()
	}
	if err := errors.Join(webFailed, d.listenWeb()); err != nil {
		if !d.isRestart() {
			return err
		}
		// The sessions matter more.
		d.log.Error("HTTP is not served until the next restart", "error", err)
		d.web = web{metrics: d.web.metrics}
	}
	d.table = service.New(service.Config{Sessions: d.pool, System: newSystem(d), Log: d.log, Observe: d.web.requestObserver()})
	d.server = transport.NewServer(transport.Config{Handler: d.table, MaxRequestBytes: int(d.cfg.MaxRequestBytes), Log: d.log})
	d.connectWeb()
	return d.writeLockInfo()
}

// present says in the lock who holds the sessions.
func (d *daemon) writeLockInfo() error {
	if d.holder == nil || d.listener == nil || d.listener.Inherited() {
		return nil
	}
	card, err := d.lockInfo()
	if err == nil {
		card.daemon = os.Getpid()
		card.daemonStarted, err = process.StartTime(card.daemon)
	}
	if err != nil {
		return err
	}
	return d.listener.WriteLock(card.String())
}

// adopt goes on with the sessions of a daemon that died.
func (d *daemon) adopt() {
	began := time.Now()
	d.manager.starting()
	resume := d.pool.Adopt(d.holder.Hello().Slots,
		holder.Claim{Owner: "driver", Slots: d.driver.Slots()}, holder.Claim{Owner: "listener", Slots: d.listenSlots[:]})
	strays := d.unclaimedSlots() // before anything that lives can use what it has for something else
	d.driver.Start()
	resume(func() { d.dropUnclaimedSlots(strays) })
	d.host.KillUnadopted()
	live := 0
	for state, n := range d.pool.Stats().SessionsByState {
		if state != api.StateTerminated {
			live += n
		}
	}
	d.log.Info("took over the sessions of a daemon that ended", "event", "adopted",
		"sessions", live, "duration_ms", time.Since(began).Milliseconds())
}

// inMemory reports whether the files of a directory are memory.
func inMemory(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && (st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC)
}

// holderGone is closed when the holder has died.
func (d *daemon) holderGone() <-chan struct{} {
	if d.holder == nil {
		return nil
	}
	return d.holder.Done()
}

// lostTime is how long a daemon without its holder tells what became of the
// sessions, before it ends and can be started anew.
const lostNoticeTime = 10 * time.Second

// loseTime is how much longer the end of such a daemon may take: a session's kill
// takes up to ten seconds where the kernel holds a process.
const lostKillTime = 15 * time.Second

// outliveHolder ends what can't go on without the holder, and nothing else is
// invented: the sessions are lost, and that is told for a while.
func (d *daemon) onHolderDeath(stop context.Context) error {
	d.log.Error("the holder has died: all sessions are lost", "event", "holder_lost", "ending_in", lostNoticeTime.String())
	// Whatever may hold this process up then, it ends, and the undertaker does
	// what it has not done.
	time.AfterFunc(lostNoticeTime+lostKillTime, func() {
		d.log.Error("the sessions could not be ended in time; that is left to the undertaker", "event", "not_ended")
		os.Exit(1)
	})
	enough := time.NewTimer(lostNoticeTime)
	defer enough.Stop()
	d.pool.Lose()
	_ = d.killOrphans(d.host.Name()) // what no session knew of
	select {
	case <-enough.C:
	case <-stop.Done():
	}
	return holder.ErrGone
}

// replaceTheDead ends what the daemon left that had the socket before, if it died
// with its holder and its undertaker.
func (d *daemon) cleanUpAfterPredecessor() error {
	if d.listener == nil || d.isRestart() {
		return nil
	}
	left, ok := parseLockInfo(d.listener.StaleLock())
	if ok && left.host != d.host.Name() { // in containers pids repeat, and once in 65,536 times the number too
		if err := left.checkDead(); err != nil {
			return d.liveHolderError(left, err)
		}
		if err := d.killOrphans(left.host); errors.Is(err, process.ErrHostAlive) {
			return d.liveHolderError(left, err)
		}
	}
	return d.writeLockInfo()
}

// refuseLock is the error of a lock that names a living host. This daemon has the
// lock, so that one serves elsewhere: to end what it left would end its sessions.
func (d *daemon) liveHolderError(left lockInfo, err error) error {
	return fmt.Errorf("the lock of %s says that process %d held its sessions and died, which is not true; nothing of it was ended: %w",
		d.cfg.Socket, left.host.Parent, err)
}

// bury ends what a host left that nobody owns any more. What it could not end is
// logged.
func (d *daemon) killOrphans(name process.HostName) error {
	buried, err := name.KillOrphans(time.Now().Add(killOrphansTimeout))
	switch {
	case err != nil || len(buried.Left) > 0 || buried.CgroupLeft:
		d.log.Error("what dead sessions left could not all be ended", "event", "not_ended", "host", name.String(), "left", buried.Left, "error", err)
	case buried.Found > 0:
		d.log.Warn("ended what dead sessions left", "event", "undertaken", "host", name.String(), "processes", buried.Found)
	}
	return err
}

// again reports whether another daemon was here before, and died.
func (d *daemon) isRestart() bool { return d.holder != nil && d.holder.Hello().Restarted }

// strays are what a daemon that died had kept and nothing that lives needs: what it
// had ready for the next command, and what sessions have that have ended.
func (d *daemon) unclaimedSlots() []holder.Slot {
	if d.pool.Unreadable() {
		d.log.Warn("keeping all descriptors of the daemon before: some may belong to sessions that can't be read", "event", "strays_kept")
		return nil
	}
	needed := map[holder.Slot]bool{holder.Root: true}
	for _, slot := range slices.Concat(d.listenSlots[:], d.driver.Slots(), d.pool.Slots()) {
		needed[slot] = true
	}
	if noted := d.persistedWeb(); noted != nil {
		needed[noted.slot] = true
	}
	var strays []holder.Slot
	for _, slot := range d.holder.Hello().Slots {
		if !needed[slot] {
			strays = append(strays, slot)
		}
	}
	return strays
}

// dropStrays gives up those that no session needs which has ended either.
func (d *daemon) dropUnclaimedSlots(strays []holder.Slot) {
	needed := map[holder.Slot]bool{}
	for _, slot := range d.pool.Slots() {
		needed[slot] = true
	}
	for _, slot := range strays {
		if !needed[slot] {
			d.holder.Drop(slot)
		}
	}
}

// hubKey is where the ledger has what all shells share.
const driverKey = "hub"

// unreadableHubKey is where it has that of a daemon whose shells could not be
// taken over.
const unreadableDriverKey = "u/hub"

// openHub goes on with what all shells of an earlier daemon share, or makes it. If
// that can't be taken over, its shells can't: see shell.Hub.Adopt.
func (d *daemon) openDriver(keep holder.Keeper) (err error) {
	cfg := shell.DriverConfig{Log: d.log, Keeper: keep}
	if d.ledger == nil {
		d.driver, err = shell.OpenDriver(cfg)
		return err
	}
	saved, again := d.ledger.Get(driverKey)
	if again {
		if d.driver, err = shell.AdoptDriver(cfg, saved); err != nil {
			d.log.Error("cannot go on with the shells of an earlier daemon", "event", "driver_unreadable", "error", err)
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

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// heldListener stops accepting when it is closed, and keeps the path and the
// lock of the socket, which are given up last.
type lockKeepingListener struct{ *transport.UnixListener }

func (l lockKeepingListener) Close() error { return l.UnixListener.UnixListener.Close() }

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
		d.ended <- unlessClosed(d.server.Serve(ctx, lockKeepingListener{d.listener}))
	})
	if d.web.server != nil {
		d.tasks.start("serve HTTP", func() {
			d.ended <- unlessClosed(d.web.server.Serve(ctx, d.web.listener))
		})
	}
}

// where is where the daemon serves.
func (d *daemon) where() string {
	where := "stdin and stdout"
	if !d.opts.Stdio {
		where = d.cfg.Socket
	}
	if d.web.listener != nil {
		where += " and " + d.web.url()
	}
	return where
}

// announce says where the daemon is and how it will know its processes: in a
// line for a person, or as a record where the log is for programs.
func (d *daemon) announce(terminal bool) {
	where := d.where()
	support := d.host.Support()
	if !d.opts.Stdio && d.cfg.DefaultTimeoutMS == 0 && d.cfg.IdleTTLMS == 0 {
		d.log.Info("neither idle_ttl_ms nor default_timeout_ms is set: forgotten sessions and commands stay until the daemon ends",
			"event", "no_time_limits")
	}
	if !logsText(d.cfg, terminal) {
		d.log.Info("serving", "event", "ready", "on", where, "pid", os.Getpid(), "holder", d.manager.holder, "cgroup", support.Cgroup, "no_cgroup_because", support.Reason,
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

// stopAccepting refuses who connects. It may be called again.
func (d *daemon) stopAccepting() {
	if d.listener != nil {
		_ = lockKeepingListener{d.listener}.Close()
	}
	if d.web.listener != nil {
		_ = d.web.listener.Close()
	}
}

// close is the order of shutdown; see the package comment. cut ends the grace
// of commands. It also closes a daemon that was opened in part.
func (d *daemon) close(cut context.Context) error {
	var errs []error
	if err := d.stopListening(); err != nil {
		errs = append(errs, err)
	}
	d.draining.Store(true)
	if d.listener != nil && d.listener.Inherited() {
		d.stopAccepting() // the next daemon finds who comes now in the queue
	}
	if d.pool != nil {
		errs = append(errs, d.pool.Shutdown(cut))
	}
	d.stopAccepting()
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
	// The last answers had their time; a task has nothing left to wait for.
	if err := d.tasks.wait(answers); err != nil {
		d.log.Warn("tasks outlive the shutdown", "error", err)
	}
	return errors.Join(errs...)
}
