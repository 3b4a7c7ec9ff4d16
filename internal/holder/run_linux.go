package holder

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors that a daemon inherits in addition to its standard files.
const (
	FD        = 3              // the daemon's end of the connection
	FirstFile = lifelineFD + 1 // the first of Config.Files
)

// Config configures a holder.
type Config struct {
	// Argv and Env start the daemon, which is this program again. The daemon
	// calls Connect(FD) first.
	Argv, Env []string
	// Cleaner returns the Argv and Env of the process that kills the sessions
	// of the given host when holder and daemon are both dead. It is this
	// program too, and calls AwaitHolderDeath first. nil means no cleaner.
	Cleaner func(host uint16) (argv, env []string)
	// Program is the path of this program. A new version may be there when the
	// daemon asks for Restart, or when a daemon is requested again after
	// Detach: then this process executes it with ResumeArgv and its own
	// environment, and the new program calls Run with Resume set. Empty means
	// that the holder never executes a new version.
	Program    string
	ResumeArgv []string
	Resume     bool
	// Files are descriptors of this process that every daemon inherits, from
	// FirstFile on, in this order.
	Files []int
	// Log receives what happens to the daemon. nil discards it.
	Log *slog.Logger
}

// holder is the state of the holder process. It is owned by Run.
type holder struct {
	cfg     Config
	table   *table
	hello   record
	signals chan os.Signal
	started chan struct{} // wakes the reaper: there is a child again
	// stopping is set by the first signal that asks the holder to stop: a
	// daemon that dies after it is not restarted.
	stopping bool
	// formerLifeline is the writing end of the pipe to the cleaner that was
	// started before this process executed the current program; 0 if there was
	// none.
	formerLifeline int
}

// Run starts the daemon, restarts it whenever it dies, and keeps descriptors
// for it. It returns when the daemon has announced Stop, with the daemon's exit
// code, or after a signal when there is no daemon to handle it.
//
// With Config.Program, Run must be called on the main thread: by the main goroutine,
// locked to it by a function init. A program executed from another thread ends the
// main thread first, and until that thread has taken its place, nothing is found
// under the paths of kept descriptors: a shell that begins or ends a command in this
// fraction of a millisecond could not open them.
func Run(cfg Config) (code int, err error) {
	if cfg.Program != "" && unix.Gettid() != unix.Getpid() {
		return 1, errors.New("the holder does not run on the main thread")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if !cfg.Resume { // on resume, existing sessions matter more
		if err := checkFileLimit(); err != nil {
			return 1, err
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, err
	}
	// This process stays dumpable, unlike the daemon: shells open kept
	// descriptors through /proc/PID/fd, which belongs to root for a process
	// that is not dumpable. Its memory holds no secrets, and the descriptors
	// belong to shells that their user can inspect just as well.
	limitMemory()
	h := &holder{
		cfg: cfg, table: newTable(), signals: make(chan os.Signal, 8), // room for a burst: the second SIGTERM must not be lost
		started: make(chan struct{}, 1),
		hello:   record{kind: gotHello, num: int32(os.Getpid())},
	}
	if cfg.Resume {
		if err := h.resume(); err != nil {
			return 1, err
		}
	} else {
		h.hello.id, h.hello.value = uint32(uint16(rand.Uint32())), raiseOOMPriority()
	}
	h.catchSignals()
	defer signal.Stop(h.signals)
	if cfg.Resume {
		// Signals were blocked while no handlers were installed. Children
		// inherit the mask of the thread that forks, which is this one.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil); err != nil {
			return 1, err
		}
	}
	if cfg.Cleaner != nil {
		err := h.openCleaner()
		switch {
		case err != nil && !cfg.Resume:
			return 1, fmt.Errorf("start cleaner: %w", err)
		case err != nil: // existing sessions matter more, and the former cleaner still runs
			h.cfg.Log.Error("cannot start new cleaner", "error", err)
		case h.formerLifeline > 0:
			_ = unix.Close(h.formerLifeline) // the former cleaner sees that the holder is alive, and exits
		}
	}
	go reapLoop(h.table, h.started)
	code = h.superviseDaemon()
	h.stopCleaner()
	return code, nil
}

// minFiles is the lowest limit of open files with which a holder starts: slots
// begin at Root, and a daemon with one session needs about twenty.
const minFiles = 1024

// checkFileLimit returns an error if the limit leaves no room for slots.
func checkFileLimit() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Max < minFiles { // the Go runtime has raised the soft limit to this
		return fmt.Errorf("the hard limit of open files (nofile) is %d and must be at least %d: raise it with ulimit -Hn, LimitNOFILE= or --ulimit nofile=", limit.Max, minFiles)
	}
	return nil
}

// wakeReaper tells the reaper that there is a child.
func (h *holder) wakeReaper() {
	select {
	case h.started <- struct{}{}:
	default:
	}
}

// caughtSignals are the signals that the holder handles. SIGPIPE is caught so
// that the holder survives the reader of its log. It is not ignored, because
// children would inherit that.
var caughtSignals = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE}

func (h *holder) catchSignals() { signal.Notify(h.signals, caughtSignals...) }

// limitMemory keeps the memory of this process small: under memory pressure it
// must be the last process to be killed.
func limitMemory() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	debug.FreeOSMemory() // left over from program start
}

// raiseOOMPriority makes the kernel kill other processes first when memory is
// short, if the holder may do that, and returns the score that children should
// have.
func raiseOOMPriority() (before int32) {
	const file = "/proc/self/oom_score_adj"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return 0
	}
	_ = os.WriteFile(file, []byte("-900"), 0) // not -1000: the kernel must still be able to kill it as a last resort
	return int32(n)
}

// reapLoop reaps all children that die. started wakes it when there is a child
// again after there was none.
func reapLoop(t *table, started <-chan struct{}) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == nil:
			t.reap()
		case errors.Is(err, unix.ECHILD):
			<-started
		}
	}
}

const (
	// stableAfter is how long a daemon must have run for its death not to count
	// as part of a crash loop.
	stableAfter = 10 * time.Second
	// crashLoop is how many short runs in a row make a crash loop.
	crashLoop = 5
)

// restartDelay returns how long to wait before the next start, after a number
// of short runs in a row. SIGKILL comes from outside and is not a sign of a
// bug, but an OOM killer needs a moment too.
func restartDelay(shortRuns int, killed bool) time.Duration {
	switch {
	case shortRuns <= 1:
		return 0
	case killed:
		return min(10*time.Millisecond<<min(shortRuns-2, 8), 100*time.Millisecond)
	case shortRuns < crashLoop:
		return min(100*time.Millisecond<<(shortRuns-2), 5*time.Second)
	default:
		return time.Minute
	}
}

func (h *holder) superviseDaemon() (code int) {
	for shortRuns := 0; ; {
		begin := time.Now()
		exitMsg, status, err := h.runDaemon()
		switch {
		case exitMsg != nil && ExitMode(exitMsg.flags) == Stop:
			return int(exitMsg.value)
		case exitMsg != nil && h.stopping: // asked to stop while the daemon was handing off
			h.killChildren()
			return 0
		case h.stopping:
			h.cfg.Log.Error("daemon died during shutdown; killing its processes", "event", "daemon_died_stopping", "daemon", describe(status, err))
			h.killChildren()
			return 1
		case exitMsg != nil:
			if ExitMode(exitMsg.flags) == Detach {
				h.cfg.Log.Info("daemon detached; holder keeps its sessions", "event", "daemon_left")
				if h.waitForSignal(nil) {
					h.killChildren()
					return 0
				}
			}
			h.reexec()
			if h.stopping {
				h.killChildren()
				return 0
			}
			shortRuns, h.hello.flags = 0, helloRestarted
			continue
		}
		if shortRuns++; time.Since(begin) > stableAfter {
			shortRuns = 1
		}
		killed := err == nil && status.Signaled() && status.Signal() == unix.SIGKILL
		delay := restartDelay(shortRuns, killed)
		if shortRuns <= crashLoop {
			h.cfg.Log.Error("daemon died; restarting it, sessions are kept", "event", "daemon_died",
				"daemon", describe(status, err), "in_a_row", shortRuns, "again_in", delay.String())
		}
		timer := time.NewTimer(delay)
		stop := h.waitForSignal(timer.C)
		timer.Stop()
		if stop {
			h.killChildren()
			return 0
		}
		h.hello.flags = helloRestarted
	}
}

func describe(status syscall.WaitStatus, err error) string {
	switch {
	case err != nil:
		return "could not be started: " + err.Error()
	case status.Signaled():
		return "killed by " + unix.SignalName(status.Signal())
	default:
		return "exited with code " + strconv.Itoa(status.ExitStatus())
	}
}

// waitForSignal waits until the given time, or for SIGUSR1 if until is nil, and
// reports whether a signal asked the holder to stop instead.
func (h *holder) waitForSignal(until <-chan time.Time) (stop bool) {
	for {
		select {
		case <-until:
			return false
		case sig := <-h.signals:
			switch {
			case sig == unix.SIGTERM || sig == unix.SIGINT:
				return true
			case sig == unix.SIGUSR1 && until == nil:
				return false
			}
		}
	}
}

// settleTime is how long a new daemon takes to restore its state. The holder
// returns the memory that this needed to the system afterwards.
const settleTime = time.Second

// runDaemon starts a daemon and serves it until it is dead. When runDaemon
// returns, everything that the daemon sent has been processed.
func (h *holder) runDaemon() (exitMsg *record, status syscall.WaitStatus, err error) {
	conn, err := h.startDaemon()
	if err != nil {
		return nil, 0, err
	}
	h.wakeReaper()
	out := newSendQueue(conn)
	h.table.connect(out, h.hello)
	defer time.AfterFunc(settleTime, debug.FreeOSMemory).Stop()
	sent, spoke, served := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(sent)
		out.run()
	}()
	go func() { served <- h.serveDaemon(conn, spoke) }()
	status = h.waitDaemon(spoke)
	// The reader still gets what is queued, and then EOF, even if another
	// process has the daemon's end open.
	_ = unix.Shutdown(conn, unix.SHUT_RDWR)
	if err := <-served; err != nil {
		h.cfg.Log.Error("cannot read message from daemon", "error", err)
	}
	exitMsg = h.table.disconnect()
	out.close()
	<-sent
	return exitMsg, status, unix.Close(conn)
}

// startDaemon starts the daemon and returns the holder's end of the connection.
func (h *holder) startDaemon() (conn int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(pair[1])
	h.table.mu.Lock() // so that it is not reaped before its pid is stored
	defer h.table.mu.Unlock()
	files := []uintptr{0, 1, 2, FD: uintptr(pair[1]), lifelineFD: uintptr(pair[1])}
	if h.table.cleaner != nil {
		files[lifelineFD] = uintptr(h.table.cleaner.lifeline)
	}
	for _, fd := range h.cfg.Files {
		files = append(files, uintptr(fd))
	}
	h.table.daemon, err = syscall.ForkExec("/proc/self/exe", h.cfg.Argv, &syscall.ProcAttr{
		Env:   h.cfg.Env,
		Files: files,
		// In its own process group, the daemon does not receive signals from
		// keys on the terminal it was started on. The holder does, and forwards
		// them once.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		h.table.daemon = 0
		return -1, errors.Join(err, unix.Close(pair[0]))
	}
	return pair[0], nil
}

// serveDaemon processes the daemon's messages until EOF. It kills a daemon that
// sends a malformed message: such a daemon can't be trusted with sessions.
// spoke is closed after the first packet.
func (h *holder) serveDaemon(conn int, spoke chan<- struct{}) error {
	in := &packetReader{conn: conn}
	for first := true; ; first = false {
		err := in.next(h.table.handle)
		if first && err == nil {
			close(spoke)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			h.signalDaemon(unix.SIGKILL)
			return err
		}
	}
}

// signalDelay is how long signals are held back from a daemon that has not sent
// anything yet: it may not have installed its handlers, and would be killed.
const signalDelay = 2 * time.Second

// waitDaemon forwards signals to the daemon until it is dead.
func (h *holder) waitDaemon(spoke <-chan struct{}) syscall.WaitStatus {
	late := time.NewTimer(signalDelay)
	defer late.Stop()
	var held []unix.Signal
	ready := false
	for {
		select {
		case status := <-h.table.died:
			return status
		case <-spoke:
			ready, spoke = true, nil
		case <-late.C:
			ready = true
		case sig := <-h.signals:
			switch sig {
			case unix.SIGTERM, unix.SIGINT:
				h.stopping = true
				held = append(held, sig.(unix.Signal))
			case unix.SIGHUP, unix.SIGUSR2:
				held = append(held, sig.(unix.Signal))
			}
		}
		if ready {
			for _, sig := range held {
				h.signalDaemon(sig)
			}
			held = nil
		}
	}
}

// signalDaemon sends a signal to the daemon.
func (h *holder) signalDaemon(sig unix.Signal) {
	h.table.mu.Lock() // prevents reaping, so the pid is still the daemon's
	defer h.table.mu.Unlock()
	if h.table.daemon != 0 {
		_ = unix.Kill(h.table.daemon, sig)
	}
}

// killTimeout bounds how long session processes may take to die.
const killTimeout = 10 * time.Second

// killChildren kills all descendants of this process when there is no daemon to
// end them in order. Processes that lose their parent become children of the
// holder, so eventually none is left.
func (h *holder) killChildren() {
	h.triggerCleaner()
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); {
		pids := slices.DeleteFunc(children(), h.table.isCleaner) // the cleaner exits last
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			h.table.mu.Lock()
			if isChild(pid) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			h.table.mu.Unlock()
		}
		time.Sleep(time.Millisecond) // give the processes and the reaper time
	}
}

// children lists the children of this process.
func children() (pids []int) {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
