//go:build linux && (amd64 || arm64)

package without

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// switches are what can be switched off, each as a filter of system calls.
var switches = map[string][]unix.SockFilter{
	"landlock":      refuseCall(unix.SYS_LANDLOCK_CREATE_RULESET, unix.ENOSYS),
	"seccomp":       refuseCall(unix.SYS_SECCOMP, unix.EPERM),
	"mount_setattr": refuseCall(unix.SYS_MOUNT_SETATTR, unix.ENOSYS),
	"pivot_root":    refuseCall(unix.SYS_PIVOT_ROOT, unix.EPERM),
	"setgroups":     refuseCall(unix.SYS_SETGROUPS, unix.EPERM),
	"newuser":       refuseClone(unix.CLONE_NEWUSER),
	"newns":         refuseClone(unix.CLONE_NEWNS),
	"newnet":        refuseClone(unix.CLONE_NEWNET),
	"newpid":        refuseClone(unix.CLONE_NEWPID),
}

// Instructions of filters.
const (
	load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	ifEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	ifHas   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	ret     = unix.BPF_RET | unix.BPF_K
)

// Offsets in struct seccomp_data, on machines that store the low half of a number
// first.
const (
	offsetCall = 0
	offsetArgs = 16
)

var allow = unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW}

func answer(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

func refuseCall(nr uint32, errno unix.Errno) []unix.SockFilter {
	return []unix.SockFilter{{Code: ifEqual, K: nr, Jf: 1}, answer(errno)}
}

func refuseClone(flag uint32) []unix.SockFilter {
	return []unix.SockFilter{
		{Code: ifEqual, K: unix.SYS_CLONE, Jf: 4},
		{Code: load, K: offsetArgs},
		{Code: ifHas, K: flag, Jf: 1},
		answer(unix.EPERM),
		allow,
		{Code: ifEqual, K: unix.SYS_CLONE3, Jf: 1},
		answer(unix.ENOSYS),
	}
}

// Exec executes a program for which everything that names lists, separated by commas,
// is switched off. It returns only if it fails. Each switch is a filter of its own; the
// strictest decides.
func Exec(names string, argv []string) error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for name := range strings.SplitSeq(names, ",") {
		refused, ok := switches[name]
		if !ok {
			return fmt.Errorf("there is no switch %q", name)
		}
		p := slices.Concat([]unix.SockFilter{{Code: load, K: offsetCall}}, refused, []unix.SockFilter{allow})
		program := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
		if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))); errno != 0 {
			return errno
		}
	}
	return syscall.Exec(argv[0], argv, os.Environ())
}
