package holder

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchFD is the cleaner's descriptor for the reading end of the pipe: its
	// stdin.
	watchFD = 0
	// lifelineFD is the daemon's descriptor for a writing end. The daemon only
	// keeps it open.
	lifelineFD = FD + 1
)

// cleaner describes the process that kills the sessions when neither holder nor
// daemon is alive to do it. superviseCleaner runs it.
type cleaner struct {
	lifeline int           // writing end of the pipe; only the daemon has a copy
	stop     chan struct{} // closed when the cleaner must not be restarted
	died     chan struct{} // receives once for each death; never blocks the sender
	done     chan struct{} // closed when stop is closed and the last process is gone
	pid      int           // 0 if none is running; guarded by the table's lock
}

// cleanerRestartDelay is how long to wait before restarting a cleaner that died
// soon after its start: something kills it repeatedly, or it can't run on this
// machine.
const cleanerRestartDelay = time.Second

// openCleaner starts the cleaner. It runs before the first daemon does.
func (h *holder) openCleaner() error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	c := &cleaner{lifeline: pipe[1], stop: make(chan struct{}), done: make(chan struct{}), died: make(chan struct{}, 1)}
	h.table.cleaner = c
	err := h.startCleaner(pipe[0])
	if err != nil {
		h.table.cleaner = nil
		return errors.Join(err, unix.Close(pipe[0]), unix.Close(pipe[1]))
	}
	go h.superviseCleaner(pipe[0])
	return nil
}

// errCleanerStopped means that the cleaner is not needed any more.
var errCleanerStopped = errors.New("cleaner stopped")

func (h *holder) startCleaner(watch int) (err error) {
	argv, env := h.cfg.Cleaner(uint16(h.hello.id))
	h.table.mu.Lock() // so that it is not reaped before its pid is stored
	defer h.table.mu.Unlock()
	if h.table.cleaner.stoppedWithin(0) {
		return errCleanerStopped
	}
	if h.table.cleaner.pid, err = forkCleaner(argv, env, watch, unix.Stderr); err != nil {
		h.table.cleaner.pid = 0
		return err
	}
	h.wakeReaper()
	return nil
}

// superviseCleaner restarts the cleaner whenever it is killed alone.
func (h *holder) superviseCleaner(watch int) {
	c := h.table.cleaner
	defer close(c.done)
	for begin := time.Now(); ; begin = time.Now() {
		<-c.died
		if c.stoppedWithin(0) {
			return
		}
		h.cfg.Log.Error("cleaner died; restarting it", "event", "undertaker_died")
		var pause time.Duration
		if time.Since(begin) < stableAfter {
			pause = cleanerRestartDelay
		}
		for {
			if c.stoppedWithin(pause) {
				return
			}
			err := h.startCleaner(watch)
			if err == nil {
				break
			}
			if !errors.Is(err, errCleanerStopped) {
				h.cfg.Log.Error("cannot start cleaner", "error", err)
			}
			pause = cleanerRestartDelay
		}
	}
}

// stoppedWithin waits for the pause or for stop, and reports whether stop is
// closed.
func (c *cleaner) stoppedWithin(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-c.stop:
		return true
	case <-timer.C:
	}
	select { // with a pause of 0 the first select may pick the timer
	case <-c.stop:
		return true
	default:
		return false
	}
}

// triggerCleaner makes the cleaner kill everything now, when there is no daemon
// to end it in order, and waits for that. The holder keeps no descriptors after
// this call.
func (h *holder) triggerCleaner() {
	c := h.table.cleaner
	if c == nil {
		return
	}
	h.table.dropAll() // among them the lock of the socket
	h.table.mu.Lock()
	close(c.stop)
	_, err := unix.Write(c.lifeline, []byte{1})
	h.table.mu.Unlock()
	if err != nil {
		return
	}
	timeout := time.NewTimer(killTimeout)
	defer timeout.Stop()
	select {
	case <-c.done:
	case <-timeout.C:
	}
}

// killFormerCleaner kills the cleaner from before a re-exec if it has not
// exited yet, and waits until it is gone.
func (h *holder) killFormerCleaner() {
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		h.table.mu.Lock()
		pid := h.table.formerCleaner
		if pid != 0 {
			_ = unix.Kill(pid, unix.SIGKILL) // safe: it can't be reaped while the lock is held
		}
		h.table.mu.Unlock()
		if pid == 0 {
			return
		}
	}
}

// stopCleaner kills the cleaner when there is nothing left to do, and waits
// until it is gone.
func (h *holder) stopCleaner() {
	h.killFormerCleaner()
	c := h.table.cleaner
	if c == nil {
		return
	}
	h.table.mu.Lock()
	if !c.stoppedWithin(0) {
		close(c.stop)
	}
	if c.pid != 0 {
		_ = unix.Kill(c.pid, unix.SIGKILL) // safe: it can't be reaped while the lock is held
	}
	h.table.mu.Unlock()
	<-c.done
}

// AwaitHolderDeath is the main loop of a cleaner. It returns true when the
// holder with the given pid and all its daemons are dead, or when the holder
// tells the cleaner to start. It returns false if the holder has executed
// another program, which has its own cleaner.
func AwaitHolderDeath(holder int) bool {
	for {
		n, err := unix.Read(watchFD, make([]byte, 1))
		if n > 0 {
			return true
		}
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return false // not a pipe: this process was not started by a holder
		}
	}
	// The kernel frees the memory of a process that exits before its files, and
	// reparents its children after them.
	for os.Getppid() == holder {
		if text, err := os.ReadFile("/proc/" + strconv.Itoa(holder) + "/cmdline"); err == nil && len(text) > 0 {
			return false
		}
		time.Sleep(time.Millisecond) // poll: the kernel notifies of neither
	}
	return true
}
