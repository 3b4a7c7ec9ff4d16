package holder

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchFD is where the undertaker has the reading end of the pipe: in the
	// place of its stdin.
	watchFD = 0
	// lifeFD is where a daemon has a writing end, which it only has open.
	lifelineFD = FD + 1
)

// undertaker is the process that ends the sessions when nobody else lives to do
// it. It is kept by a goroutine of its own, see keepUndertaker.
type cleaner struct {
	lifeline int           // writing end of the pipe: a daemon has a copy; nobody else
	stop     chan struct{} // closed when it is not to be started again
	died     chan struct{} // one for each death; has room for it
	done     chan struct{} // closed when it is over, and the last one is gone
	pid      int           // 0: there is none now; under the table's lock
}

// shortLife is how long to wait before an undertaker is started again that died
// soon: somebody kills it again and again, or it can't run here.
const cleanerRestartDelay = time.Second

// openUndertaker starts the undertaker. It is there before the first daemon.
func (h *holder) openCleaner() error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	u := &cleaner{lifeline: pipe[1], stop: make(chan struct{}), done: make(chan struct{}), died: make(chan struct{}, 1)}
	h.table.cleaner = u
	err := h.startCleaner(pipe[0])
	if err != nil {
		h.table.cleaner = nil
		return errors.Join(err, unix.Close(pipe[0]), unix.Close(pipe[1]))
	}
	go h.superviseCleaner(pipe[0])
	return nil
}

// errOver says that no undertaker is needed any more.
var errCleanerStopped = errors.New("it is over")

func (h *holder) startCleaner(watch int) (err error) {
	argv, env := h.cfg.Cleaner(uint16(h.hello.id))
	h.table.mu.Lock() // it must not be reaped before it is known
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

// keepUndertaker starts the undertaker again whenever it is killed alone.
func (h *holder) superviseCleaner(watch int) {
	u := h.table.cleaner
	defer close(u.done)
	for begin := time.Now(); ; begin = time.Now() {
		<-u.died
		if u.stoppedWithin(0) {
			return
		}
		h.cfg.Log.Error("the undertaker died and is started again", "event", "undertaker_died")
		var pause time.Duration
		if time.Since(begin) < stableAfter {
			pause = cleanerRestartDelay
		}
		for {
			if u.stoppedWithin(pause) {
				return
			}
			err := h.startCleaner(watch)
			if err == nil {
				break
			}
			if !errors.Is(err, errCleanerStopped) {
				h.cfg.Log.Error("the undertaker can't be started", "error", err)
			}
			pause = cleanerRestartDelay
		}
	}
}

// isOver waits for the pause, and reports whether it is over.
func (u *cleaner) stoppedWithin(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-u.stop:
		return true
	case <-timer.C:
	}
	select { // a pause of nothing is not longer than what is over
	case <-u.stop:
		return true
	default:
		return false
	}
}

// undertake has the undertaker end everything now, when there is no daemon to do
// it better, and waits for that. Nothing is kept any more then.
func (h *holder) triggerCleaner() {
	u := h.table.cleaner
	if u == nil {
		return
	}
	h.table.dropAll() // the lock of the socket is among it
	h.table.mu.Lock()
	close(u.stop)
	_, err := unix.Write(u.lifeline, []byte{1})
	h.table.mu.Unlock()
	if err != nil {
		return
	}
	enough := time.NewTimer(killTimeout)
	defer enough.Stop()
	select {
	case <-u.done:
	case <-enough.C:
	}
}

// endFormer ends the undertaker from before a renewal, if it is still about to go,
// and waits until it is gone.
func (h *holder) killFormerCleaner() {
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		h.table.mu.Lock()
		pid := h.table.formerCleaner
		if pid != 0 {
			_ = unix.Kill(pid, unix.SIGKILL) // it is not reaped meanwhile
		}
		h.table.mu.Unlock()
		if pid == 0 {
			return
		}
	}
}

// endUndertaker ends it when there is nothing left to do, and waits until it is
// gone.
func (h *holder) stopCleaner() {
	h.killFormerCleaner()
	u := h.table.cleaner
	if u == nil {
		return
	}
	h.table.mu.Lock()
	if !u.stoppedWithin(0) {
		close(u.stop)
	}
	if u.pid != 0 {
		_ = unix.Kill(u.pid, unix.SIGKILL) // it is not reaped meanwhile
	}
	h.table.mu.Unlock()
	<-u.done
}

// AwaitEnd is the life of an undertaker: it returns true when the holder, whose
// pid is given, is dead and every daemon of it too, or says that it is time.
// False: the holder lives on as another program, and has another undertaker.
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
			return false // it is no pipe: nobody has started this as it must be
		}
	}
	// The memory of a process that ends goes before its files, and its children
	// after them.
	for os.Getppid() == holder {
		if text, err := os.ReadFile("/proc/" + strconv.Itoa(holder) + "/cmdline"); err == nil && len(text) > 0 {
			return false
		}
		time.Sleep(time.Millisecond) // the kernel tells of neither
	}
	return true
}
