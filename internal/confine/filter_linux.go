//go:build linux && (amd64 || arm64)

package confine

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter of system calls is a table. It refuses what a program in a session
// does not need and what has often been a way into the kernel or out of a
// container. Everything else is allowed.

// refusal refuses a system call, whatever its arguments.
type refusal struct {
	call  uint32
	errno unix.Errno
}

// condition refuses a system call by the lower 32 bits of one argument. The kernel
// ignores the upper ones in all calls listed here, so a filter must too.
type condition struct {
	call  uint32
	arg   int
	test  test
	ks    []uint32
	errno unix.Errno
}

type test int

const (
	testIs    test = iota // refused if the argument is one of ks
	testIsNot             // refused unless it is one of ks
	testHas               // refused if it has any bit of ks[0]
)

// refusedEverywhere are refused on all architectures; see also refusedHere.
var refusedEverywhere = slices.Concat(
	refuse(unix.EPERM,
		// look into other processes
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
		// mounts and namespaces
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_UNSHARE, unix.SYS_SETNS,
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
		// large parts of the kernel that only privileged programs need
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT, unix.SYS_LOOKUP_DCOOKIE,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
		// the machine
		unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_REBOOT,
		unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
		unix.SYS_NFSSERVCTL,
	),
	// Programs fall back to older calls if these do not exist. The flags of clone3
	// are in memory, where a filter cannot read them.
	refuse(unix.ENOSYS, unix.SYS_CLONE3),
	refuse(unix.ENOSYS, ioUring...),
)

// ioUring does what other calls do, past every filter of them.
var ioUring = []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}

const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// families are the kinds of sockets that programs use.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

var socketConditions = []condition{
	{unix.SYS_SOCKET, 0, testIsNot, families, unix.EAFNOSUPPORT},
	{unix.SYS_SOCKETPAIR, 0, testIsNot, families, unix.EAFNOSUPPORT},
}

// conditions are checked on all architectures.
var conditions = append(slices.Clone(socketConditions), []condition{
	{unix.SYS_CLONE, 0, testHas, []uint32{newNamespaces}, unix.EPERM},
	// Typing into a terminal from behind reaches the program that reads it next.
	{unix.SYS_IOCTL, 1, testIs, []uint32{unix.TIOCSTI, unix.TIOCLINUX}, unix.EPERM},
	// The default, reading it, and what a build for 32 bits sets (setarch).
	{unix.SYS_PERSONALITY, 0, testIsNot, []uint32{0, 0x8, 0x20000, 0x20008, 0xffffffff}, unix.EPERM},
}...)

func refuse(errno unix.Errno, calls ...uint32) []refusal {
	list := make([]refusal, 0, len(calls))
	for _, c := range calls {
		list = append(list, refusal{c, errno})
	}
	return list
}

// Where the kernel puts what a filter reads (struct seccomp_data, little endian).
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16
)

const (
	load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	ifEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	ifLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	ifHas   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	result  = unix.BPF_RET | unix.BPF_K
)

func answer(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: result, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

var allowCall = unix.SockFilter{Code: result, K: unix.SECCOMP_RET_ALLOW}

// filterKind says how much a filter refuses.
type filterKind int

const (
	filterAll filterKind = iota
	// filterSockets refuses only sockets that no network namespace confines, such
	// as those to the hypervisor, and io_uring, which makes sockets past a filter.
	filterSockets
)

// refusals returns the table of a kind of filter.
func (k filterKind) refusals() ([]refusal, []condition) {
	if k == filterAll {
		return slices.Concat(refusedEverywhere, refusedHere), conditions
	}
	return refuse(unix.ENOSYS, ioUring...), socketConditions
}

// filter returns the program of the filter. A system call of another architecture
// (32 bits) kills the process: its numbers mean other calls.
func filter(kind filterKind) []unix.SockFilter {
	refusals, conditions := kind.refusals()
	p := []unix.SockFilter{
		{Code: load, K: offsetArch},
		{Code: ifEqual, K: auditArch, Jt: 1},
		{Code: result, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: offsetCall},
		{Code: ifLeast, K: firstForeign, Jf: 1},
		answer(unix.ENOSYS),
	}
	for _, r := range refusals {
		p = append(p, unix.SockFilter{Code: ifEqual, K: r.call, Jf: 1}, answer(r.errno))
	}
	for _, c := range conditions {
		body := c.body()
		p = append(p, unix.SockFilter{Code: ifEqual, K: c.call, Jf: uint8(len(body))}) //nolint:gosec // a dozen
		p = append(p, body...)
	}
	return append(p, allowCall)
}

// body returns the instructions that decide about a call that has arguments to
// check.
func (c condition) body() []unix.SockFilter {
	p := []unix.SockFilter{{Code: load, K: uint32(offsetArgs + 8*c.arg)}} //nolint:gosec // at most 56
	code := uint16(ifEqual)
	if c.test == testHas {
		code = ifHas
	}
	for i, k := range c.ks {
		// A match skips the other comparisons and the first answer.
		p = append(p, unix.SockFilter{Code: code, K: k, Jt: uint8(len(c.ks) - i)}) //nolint:gosec // a few
	}
	if c.test == testIsNot {
		return append(p, answer(c.errno), allowCall)
	}
	return append(p, allowCall, answer(c.errno))
}

// installFilter applies the filter to this thread.
func installFilter(kind filterKind) error {
	p := filter(kind)
	program := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]} //nolint:gosec // a few hundred
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("install the filter of system calls: %w", errno)
	}
	return nil
}
