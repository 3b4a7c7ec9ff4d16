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

// HideSelf keeps the memory of this process, in which everybody's secrets pass
// through, from commands of the same user and out of core dumps. Nobody else may
// open its descriptors by path then.
func HideSelf() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide this process: %w", err)
	}
	return nil
}

// CleanSelf rids this process of what its own parent left to it and what its
// children would inherit: open descriptors, ignored or blocked signals, a
// controlling terminal. If signals were ignored or blocked (nohup, a careless
// supervisor) it re-executes itself once, because the Go runtime hands the
// mask and the dispositions it found at its start to every child.
//
// What is in keep stays open across that. It must be called at the start of
// main, before other goroutines.
func CleanSelf(keep ...int) error {
	// Nothing of ours is open yet but the runtime's own, which is marked
	// already; whatever else there is must not reach a session.
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
	runtime.LockOSThread() // the mask below is this thread's, and exec keeps it
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

// signalState reads which signals are blocked and ignored. SIGPIPE and
// SIGURG are handled by the Go runtime and so never show as ignored here.
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

// resetSignal sets the default disposition behind the runtime's back; the
// process re-executes right after.
func resetSignal(sig int) {
	var action [32]byte // a zeroed kernel sigaction is SIG_DFL with no flags
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

// leaveTerminal gives up the controlling terminal for this process and its
// children to come. The process stays in its foreground group, so Ctrl-C still
// reaches the daemon that a person started by hand, and only it. The leader of
// a session can't do so for itself alone; its children do it then, see Start.
func leaveTerminal() {
	if sid, err := unix.Getsid(0); err != nil || sid == os.Getpid() {
		return
	}
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return // there is none
	}
	defer unix.Close(fd)
	_ = unix.IoctlSetInt(fd, unix.TIOCNOTTY, 0)
}

// Rename changes what lists of processes call this one, which for a program that
// was started by way of /proc/self/exe is "exe".
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
