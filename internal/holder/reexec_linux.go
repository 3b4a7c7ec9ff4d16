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

// stateFD is the descriptor in which a holder passes its state to the program
// that it executes. It is not a slot.
const stateFD = int(Root) - 1

// errStop means that a signal asked the holder to stop.
var errStop = errors.New("stopped by a signal")

// reexec replaces this process by the program that is at its path now, keeping
// its children, slots and state. No daemon runs meanwhile. It returns only if
// that fails, and then nothing has changed.
func (h *holder) reexec() {
	if h.cfg.Program == "" {
		return
	}
	// Children that die from now on stay zombies until the new program reaps
	// them.
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	if err := h.execProgram(); err != nil && !errors.Is(err, errStop) {
		h.cfg.Log.Error("cannot execute the new program; holder keeps running", "event", "not_renewed", "error", err)
	}
}

// execProgram returns only if it fails. The caller must hold the table's lock.
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
	if c := h.table.cleaner; c != nil {
		// The cleaner must keep waiting whatever happens during the exec.
		if _, err := unix.FcntlInt(uintptr(c.lifeline), unix.F_SETFD, 0); err != nil {
			return err
		}
		defer unix.CloseOnExec(c.lifeline)
	}
	restore, err := h.blockSignals()
	defer restore()
	if err != nil {
		return err
	}
	err = syscall.Exec(h.cfg.Program, h.cfg.ResumeArgv, os.Environ())
	// Exec has lowered the limit of open files to the one this program was
	// started with, and slots have higher numbers.
	var limit unix.Rlimit
	if got := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); got == nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	}
	return fmt.Errorf("execute %s: %w", h.cfg.Program, err)
}

// blockSignals keeps signals pending for the program that this process is about
// to execute: a signal that arrived before the program catches it would kill
// it. execve preserves the mask of the calling thread. restore undoes the
// blocking.
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
	// Block them on the other threads too. Where Go can't do that, as with cgo,
	// a signal that arrives at this very moment is lost.
	_, _, _ = syscall.AllThreadsSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, uintptr(unsafe.Pointer(&mask)), 0, 8, 0, 0)
	restore = func() {
		h.catchSignals()
		_, _, _ = syscall.AllThreadsSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&mask)), 0, 8, 0, 0)
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
		runtime.UnlockOSThread()
	}
	signal.Stop(h.signals) // signals that arrived are in the channel now
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

// saveState writes the holder's state to stateFD. The caller must hold the
// table's lock.
func (h *holder) saveState() error {
	fd, err := unix.MemfdCreate("holder", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("save holder state: %w", err)
	}
	file := os.NewFile(uintptr(fd), "state")
	defer file.Close()
	if _, err := file.Write(h.encodeState()); err != nil {
		return fmt.Errorf("save holder state: %w", err)
	}
	if err := unix.Dup3(fd, stateFD, 0); err != nil {
		return fmt.Errorf("save holder state: %w", err)
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
	for i := range t.order { // oldest first
		if e, ok := t.recall(t.order[(t.oldest+i)%len(t.order)]); ok {
			r := e.record()
			r.kind = savedRecent
			b = r.append(b)
		}
	}
	return record{kind: savedEnd}.append(b)
}

// resume restores the state that this process had before it executed this
// program.
func (h *holder) resume() error {
	file := os.NewFile(uintptr(stateFD), "state")
	defer file.Close()
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("restore holder state: %w", err)
	}
	b, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("restore holder state: %w", err)
	}
	if err := h.loadState(b); err != nil {
		return err
	}
	h.closeSlotsOnExec()
	h.hello.flags = helloRestarted
	return nil
}

// loadState reads the saved state.
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
	return fmt.Errorf("restore holder state: %w: no end record", errMalformed)
}

// loadRecord reads one record of the saved state.
func (h *holder) loadRecord(r record) error {
	t := h.table
	switch r.kind {
	case savedHeader:
		if int(r.num) != os.Getpid() {
			return fmt.Errorf("restore holder state: %w: state of process %d", errMalformed, r.num)
		}
		h.hello.id, h.hello.value, t.orphans = r.id, r.value, r.extra
	case savedGeneration:
		t.lastGeneration = max(t.lastGeneration, r.extra)
	case gotSlot:
		slot := r.slot()
		if slot < 0 {
			return fmt.Errorf("restore holder state: %w: slot %d", errMalformed, r.num)
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
		t.orphans-- // already counted
	default: // written by a newer version, and optional
	}
	return nil
}

func exitStateOf(r record) exitState {
	return exitState{pid: int(r.num), exited: true, status: syscall.WaitStatus(r.value), cpu: r.extra}
}
