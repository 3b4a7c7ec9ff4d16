package process

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HideSelf makes this process non-dumpable: commands of the same user cannot read
// its memory, which holds secrets of all sessions, and it writes no core dumps.
// Other processes cannot open its descriptors by path afterwards.
func HideSelf() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide this process: %w", err)
	}
	return nil
}

// CleanSelf removes inherited state that children would inherit in turn: open
// descriptors, ignored or blocked signals, a controlling terminal. If signals
// were ignored or blocked (nohup, a careless supervisor) it re-executes itself
// once, because the Go runtime passes the mask and the dispositions it found at
// startup to every child.
//
// Descriptors in keep stay open across the re-exec. Call it at the start of main,
// before starting goroutines.
func CleanSelf(keep ...int) error {
	// Only the runtime's own descriptors are open yet, and they are close-on-exec
	// already; any other must not reach a session.
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil && err != unix.ENOSYS {
		return fmt.Errorf("mark inherited descriptors: %w", err)
	}
	leaveTerminal()
	blocked, ignored, err := signalState()
	if err != nil {
		return err
	}
	if blocked == 0 && ignored == 0 {
		return nil
	}
	runtime.LockOSThread() // the mask set below belongs to this thread and survives exec
	for sig := 1; sig <= 64; sig++ {
		if ignored&(1<<(sig-1)) != 0 {
			resetSignal(sig)
		}
	}
	var none unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil); err != nil {
		return fmt.Errorf("unblock signals: %w", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	for _, fd := range keep {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("keep descriptor %d open: %w", fd, err)
		}
	}
	return fmt.Errorf("re-execute: %w", syscall.Exec(exe, os.Args, os.Environ()))
}

// signalState returns the blocked and the ignored signals. The Go runtime handles
// SIGPIPE and SIGURG, so they never show as ignored here.
func signalState() (blocked, ignored uint64, err error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		var to *uint64
		switch name {
		case "SigBlk":
			to = &blocked
		case "SigIgn":
			to = &ignored
		default:
			continue
		}
		if *to, err = strconv.ParseUint(strings.TrimSpace(value), 16, 64); err != nil {
			return 0, 0, fmt.Errorf("read signal state: %w", err)
		}
	}
	return blocked, ignored, nil
}

// resetSignal sets the default disposition without telling the Go runtime; the
// process re-executes right after.
func resetSignal(sig int) {
	var action [32]byte // a zeroed kernel sigaction is SIG_DFL with no flags
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

// leaveTerminal detaches this process and its future children from the
// controlling terminal. The process stays in the terminal's foreground group, so
// Ctrl-C still reaches a daemon started from a shell, and only the daemon. A
// session leader cannot detach alone; its children do it instead, see Start.
func leaveTerminal() {
	if sid, err := unix.Getsid(0); err != nil || sid == os.Getpid() {
		return
	}
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return // no controlling terminal
	}
	defer unix.Close(fd)
	_ = unix.IoctlSetInt(fd, unix.TIOCNOTTY, 0)
}

// SetName changes the name that process listings show for this process. A program
// started through /proc/self/exe is otherwise listed as "exe".
func SetName(name string) {
	fd, err := unix.Open("/proc/self/comm", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_, _ = unix.Write(fd, []byte(name))
}

// hasTerminal reports whether this process has a controlling terminal.
func hasTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}
