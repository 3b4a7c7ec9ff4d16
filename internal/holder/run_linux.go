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

// What a daemon inherits besides its standard files.
const (
	FD        = 3              // its end of the connection
	FirstFile = lifelineFD + 1 // the first of Config.Files
)

// Config of a holder.
type Config struct {
	// Argv and Env of the daemon, which is this program again. It begins with
	// Connect(FD).
	Argv, Env []string
	// Undertaker returns the Argv and Env of the process that ends the sessions
	// of the host with this number when holder and daemon are both dead. It is
	// this program too, and begins with AwaitEnd. Default: there is none.
	Cleaner func(host uint16) (argv, env []string)
	// Program is the path of this program. Another may be there when the daemon
	// says Again, or is wanted again after Keep: then this process becomes that
	// one, with the arguments Again and the environment it has, and goes on with
	// Resume set. Default: it stays what it is.
	Program    string
	ResumeArgv []string
	Resume     bool
	// Files are descriptors of this process that every daemon inherits, from
	// FirstFile on, in their order.
	Files []int
	// Log receives what happens to the daemon. Default: discarded.
	Log *slog.Logger
}

// holder is the process that holds. It is owned by Run.
type holder struct {
	cfg     Config
	table   *table
	hello   record
	signals chan os.Signal
	started chan struct{} // there is a child again, after there may have been none
	// stopping is set by the first signal that asks to end: a daemon that dies
	// after it is not started again.
	stopping bool
	// former is the writing end of the pipe of the undertaker that was there
	// before this process became another program; 0: there was none.
	formerLifeline int
}

// Run starts the daemon, again whenever it dies, and keeps for it what it is
// given. It returns when the daemon has said bye, with the code it said, or
// after a signal when there is no daemon to obey it.
func Run(cfg Config) (code int, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if !cfg.Resume { // else there are sessions, which matter more
		if err := checkFileLimit(); err != nil {
			return 1, err
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, err
	}
	// This process stays dumpable, unlike the daemon: shells open what is kept for
	// them by /proc/PID/fd, which of one that is not belongs to root. There is
	// nothing to hide in its memory, and what it keeps is of shells that are as
	// open to their user.
	limitMemory()
	h := &holder{
		cfg: cfg, table: newTable(), signals: make(chan os.Signal, 8), // a burst must not lose the second SIGTERM
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
		// They were kept from killing what had no handlers yet. Children inherit
		// the mask of the thread that forks, which is this one.
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
			return 1, fmt.Errorf("start the undertaker: %w", err)
		case err != nil: // there are sessions, which matter more; and there is the former one
			h.cfg.Log.Error("there is no new undertaker", "error", err)
		case h.formerLifeline > 0:
			_ = unix.Close(h.formerLifeline) // it sees that we live, and goes
		}
	}
	go reapLoop(h.table, h.started)
	code = h.superviseDaemon()
	h.stopCleaner()
	return code, nil
}

// minFiles is the lowest limit of open files under which a holder starts: slots
// begin at Root, and a daemon with one session needs some twenty.
const minFiles = 1024

// checkFiles refuses to begin where no descriptor could be kept.
func checkFileLimit() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Max < minFiles { // the runtime has raised the limit that counts to this
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

// caught are the signals that mean something to a holder. SIGPIPE is caught so
// that it outlives the reader of its log, and not ignored, for children inherit
// what is ignored.
var caughtSignals = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE}

func (h *holder) catchSignals() { signal.Notify(h.signals, caughtSignals...) }

// beSmall keeps the memory of this process to what it needs, which is little:
// it must be the last that a machine without memory gives up.
func limitMemory() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	debug.FreeOSMemory() // what the start of the program has left
}

// beLast makes the kernel kill others first when memory is short, where that is
// allowed, and returns what the children should have.
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
	_ = os.WriteFile(file, []byte("-900"), 0) // not -1000: a machine must be able to save itself
	return int32(n)
}

// reapForEver reaps whatever dies. started wakes it when there is a child again
// after there was none.
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
	// longLife is how long a daemon must have lived for its death to be an
	// accident, rather than one in a row.
	stableAfter = 10 * time.Second
	// crashLoop is how many short lives in a row make a crash loop.
	crashLoop = 5
)

// pause is how long to wait before the next start, after a number of short
// lives in a row. SIGKILL comes from outside, so it is no sign of a defect; but
// who kills for want of memory needs a moment too.
func restartDelay(shortLives int, killed bool) time.Duration {
	switch {
	case shortLives <= 1:
		return 0
	case killed:
		return min(10*time.Millisecond<<min(shortLives-2, 8), 100*time.Millisecond)
	case shortLives < crashLoop:
		return min(100*time.Millisecond<<(shortLives-2), 5*time.Second)
	default:
		return time.Minute
	}
}

func (h *holder) superviseDaemon() (code int) {
	for shortLives := 0; ; {
		begin := time.Now()
		bye, status, err := h.runDaemon()
		switch {
		case bye != nil && ExitMode(bye.flags) == Stop:
			return int(bye.value)
		case h.stopping:
			h.cfg.Log.Error("the daemon ended before it had shut down; its processes are killed", "event", "daemon_died_stopping", "daemon", describe(status, err))
			h.killChildren()
			return 1
		case bye != nil:
			if ExitMode(bye.flags) == Detach {
				h.cfg.Log.Info("the daemon has left its sessions to the holder", "event", "daemon_left")
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
			shortLives, h.hello.flags = 0, helloRestarted
			continue
		}
		if shortLives++; time.Since(begin) > stableAfter {
			shortLives = 1
		}
		killed := err == nil && status.Signaled() && status.Signal() == unix.SIGKILL
		again := restartDelay(shortLives, killed)
		if shortLives <= crashLoop {
			h.cfg.Log.Error("the daemon died and is started again; its sessions are kept", "event", "daemon_died",
				"daemon", describe(status, err), "in_a_row", shortLives, "again_in", again.String())
		}
		timer := time.NewTimer(again)
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

// wait waits for the time, or for a signal to go on if there is none, and says
// whether one has asked to end instead.
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

// settleTime is when a daemon has taken over what there is: the memory that this
// needed is given back then.
const settleTime = time.Second

// live starts a daemon and does what it says until it is dead. What it had sent
// before it died is done when live returns.
func (h *holder) runDaemon() (bye *record, status syscall.WaitStatus, err error) {
	conn, err := h.startDaemon()
	if err != nil {
		return nil, 0, err
	}
	h.wakeReaper()
	out := newSendQueue(conn)
	h.table.connect(out, h.hello)
	defer time.AfterFunc(settleTime, debug.FreeOSMemory).Stop()
	written, spoke, heard := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(written)
		out.run()
	}()
	go func() { heard <- h.serveDaemon(conn, spoke) }()
	status = h.waitDaemon(spoke)
	// What is queued is still read, and then the end, whoever else may have the
	// daemon's end open.
	_ = unix.Shutdown(conn, unix.SHUT_RDWR)
	if err := <-heard; err != nil {
		h.cfg.Log.Error("the holder could not understand the daemon", "error", err)
	}
	bye = h.table.disconnect()
	out.close()
	<-written
	return bye, status, unix.Close(conn)
}

// start starts the daemon and returns this end of the connection.
func (h *holder) startDaemon() (conn int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(pair[1])
	h.table.mu.Lock() // it must not be reaped before it is known
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
		// In a group of its own the daemon is not reached by the keys of the
		// terminal that a person started it on. We are, and pass it on: once.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		h.table.daemon = 0
		return -1, errors.Join(err, unix.Close(pair[0]))
	}
	return pair[0], nil
}

// listen obeys the daemon until its end. One that makes no sense is killed: it
// can't be trusted with sessions. spoke is closed at the first word.
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

// catchTime is how long a signal is kept back from a daemon that has not said a
// word yet: before that it may not catch signals, and would die of it.
const signalDelay = 2 * time.Second

// untilDeath passes signals on to the daemon until it is dead.
func (h *holder) waitDaemon(spoke <-chan struct{}) syscall.WaitStatus {
	late := time.NewTimer(signalDelay)
	defer late.Stop()
	var back []unix.Signal
	catches := false
	for {
		select {
		case status := <-h.table.died:
			return status
		case <-spoke:
			catches, spoke = true, nil
		case <-late.C:
			catches = true
		case sig := <-h.signals:
			switch sig {
			case unix.SIGTERM, unix.SIGINT:
				h.stopping = true
				back = append(back, sig.(unix.Signal))
			case unix.SIGHUP, unix.SIGUSR2:
				back = append(back, sig.(unix.Signal))
			}
		}
		if catches {
			for _, sig := range back {
				h.signalDaemon(sig)
			}
			back = nil
		}
	}
}

// pass sends a signal to the daemon.
func (h *holder) signalDaemon(sig unix.Signal) {
	h.table.mu.Lock() // it is not reaped meanwhile, so the number is its own
	defer h.table.mu.Unlock()
	if h.table.daemon != 0 {
		_ = unix.Kill(h.table.daemon, sig)
	}
}

// endTime bounds how long the processes of sessions may take to die.
const killTimeout = 10 * time.Second

// endChildren kills all that descends from this process, when there is no daemon
// to do it better. What has lost its parent becomes a child, so in the end there
// is nobody else.
func (h *holder) killChildren() {
	h.triggerCleaner()
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); {
		pids := slices.DeleteFunc(children(), h.table.isCleaner) // it ends last
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
		time.Sleep(time.Millisecond) // the dying need a moment, and the reaper
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
