package holder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// leftFD is the number under which a holder leaves what it knows to the program
// that it becomes. It is no slot.
const stateFD = int(Root) - 1

// errStop says that a signal has asked to end.
var errStop = errors.New("a signal came")

// renew makes this process the program that is at its path now, with its
// children, its slots and all that it knows. There is no daemon meanwhile. It
// comes back if that can't be done, and then everything is as it was.
func (h *holder) reexec() {
	if h.cfg.Program == "" {
		return
	}
	// What has died and was not noted stays a zombie, for the next to find.
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	if err := h.execProgram(); err != nil && !errors.Is(err, errStop) {
		h.cfg.Log.Error("the holder could not become the program at its path and stays what it was", "event", "not_renewed", "error", err)
	}
}

// become does not return unless it fails. The caller holds the table's lock.
func (h *holder) execProgram() error {
	if err := h.saveState(); err != nil {
		return err
	}
	defer unix.Close(stateFD)
	for number := range h.table.slots {
		if _, err := unix.FcntlInt(uintptr(number), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("slot %d: %w", number, err)
		}
	}
	defer h.closeSlotsOnExec()
	if u := h.table.cleaner; u != nil {
		// Whatever becomes of us, the undertaker waits for it.
		if _, err := unix.FcntlInt(uintptr(u.lifeline), unix.F_SETFD, 0); err != nil {
			return err
		}
		defer unix.CloseOnExec(u.lifeline)
	}
	restore, err := h.blockSignals()
	defer restore()
	if err != nil {
		return err
	}
	err = syscall.Exec(h.cfg.Program, h.cfg.ResumeArgv, os.Environ())
	// It has lowered the limit of open files to what this program was started
	// with, below which slots are not.
	var limit unix.Rlimit
	if got := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); got == nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	}
	return fmt.Errorf("execute %s: %w", h.cfg.Program, err)
}

// holdSignals makes signals wait for the program that this process becomes: one
// that came before it can catch them would kill it. The mask of the thread that
// executes it is kept. restore undoes that.
func (h *holder) blockSignals() (restore func(), err error) {
	runtime.LockOSThread()
	var mask, before unix.Sigset_t
	for _, sig := range caughtSignals {
		n := uint(sig.(unix.Signal)) - 1
		mask.Val[n/64] |= 1 << (n % 64)
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &mask, &before); err != nil {
		return runtime.UnlockOSThread, err
	}
	// The other threads take none either. Where that can't be asked of them, as
	// beside C code, a signal that comes in this very moment is lost.
	_, _, _ = syscall.AllThreadsSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, uintptr(unsafe.Pointer(&mask)), 0, 8, 0, 0)
	restore = func() {
		h.catchSignals()
		_, _, _ = syscall.AllThreadsSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&mask)), 0, 8, 0, 0)
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
		runtime.UnlockOSThread()
	}
	signal.Stop(h.signals) // those that came are in the channel now
	for {
		select {
		case sig := <-h.signals:
			if sig == unix.SIGTERM || sig == unix.SIGINT {
				h.stopping = true
				return restore, errStop
			}
		default:
			return restore, nil
		}
	}
}

func (h *holder) closeSlotsOnExec() {
	for number := range h.table.slots {
		unix.CloseOnExec(number)
	}
}

// leaveBehind writes down what is to be known. The caller holds the table's lock.
func (h *holder) saveState() error {
	fd, err := unix.MemfdCreate("holder", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("leave what is known: %w", err)
	}
	file := os.NewFile(uintptr(fd), "left")
	defer file.Close()
	if _, err := file.Write(h.encodeState()); err != nil {
		return fmt.Errorf("leave what is known: %w", err)
	}
	if err := unix.Dup3(fd, stateFD, 0); err != nil {
		return fmt.Errorf("leave what is known: %w", err)
	}
	return nil
}

func (h *holder) encodeState() []byte {
	t := h.table
	first := h.hello
	first.kind, first.extra = savedHeader, t.orphans
	b := first.append(nil)
	b = record{kind: savedGeneration, extra: t.lastGeneration}.append(b)
	for number, generation := range t.slots {
		b = slotRecord(gotSlot, newSlot(number, generation)).append(b)
	}
	for pid, e := range t.tracked {
		r := record{kind: gotTrack, num: int32(pid)}
		if e.exited {
			r = e.record()
		}
		b = r.append(b)
	}
	if t.cleaner != nil {
		b = record{kind: savedCleaner, num: int32(t.cleaner.pid), value: int32(t.cleaner.lifeline)}.append(b)
	}
	for i := range t.order { // the oldest first
		if e, ok := t.recent[t.order[(t.oldest+i)%len(t.order)]]; ok {
			r := e.record()
			r.kind = savedRecent
			b = r.append(b)
		}
	}
	return record{kind: savedEnd}.append(b)
}

// resume makes this process the holder that it was before it became this
// program.
func (h *holder) resume() error {
	file := os.NewFile(uintptr(stateFD), "left")
	defer file.Close()
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("go on as a holder: %w", err)
	}
	b, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("go on as a holder: %w", err)
	}
	if err := h.loadState(b); err != nil {
		return err
	}
	h.closeSlotsOnExec()
	h.hello.flags = helloRestarted
	return nil
}

// recallAll takes in what was left.
func (h *holder) loadState(b []byte) error {
	for ; len(b) >= recordSize; b = b[recordSize:] {
		r := readRecord(b)
		if r.kind == savedEnd {
			return nil
		}
		if err := h.loadRecord(r); err != nil {
			return err
		}
	}
	return fmt.Errorf("go on as a holder: %w: it has no end", errMalformed)
}

// recall takes in one record of what was left.
func (h *holder) loadRecord(r record) error {
	t := h.table
	switch r.kind {
	case savedHeader:
		if int(r.num) != os.Getpid() {
			return fmt.Errorf("go on as a holder: %w: it is of process %d", errMalformed, r.num)
		}
		h.hello.id, h.hello.value, t.orphans = r.id, r.value, r.extra
	case savedGeneration:
		t.lastGeneration = max(t.lastGeneration, r.extra)
	case gotSlot:
		slot := r.slot()
		if slot < 0 {
			return fmt.Errorf("go on as a holder: %w: slot %d", errMalformed, r.num)
		}
		t.slots[slot.Number()] = slot.Generation()
		t.lastGeneration = max(t.lastGeneration, slot.Generation())
	case gotTrack:
		t.tracked[int(r.num)] = &exitState{pid: int(r.num)}
	case gotExit:
		e := exitStateOf(r)
		t.tracked[e.pid] = &e
	case savedCleaner:
		unix.CloseOnExec(int(r.value))
		h.formerLifeline, t.formerCleaner = int(r.value), int(r.num)
	case savedRecent:
		t.remember(exitStateOf(r))
		t.orphans-- // it is counted
	default: // of a program that knows more, and can do without
	}
	return nil
}

func exitStateOf(r record) exitState {
	return exitState{pid: int(r.num), exited: true, status: syscall.WaitStatus(r.value), cpu: r.extra}
}
