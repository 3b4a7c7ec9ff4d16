package nowait

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls in this file have the results and errors of those of the same name in
// package unix or os. They are for files that can't keep a call waiting: memfds, pipes
// in non-blocking mode, and what the kernel itself writes in /proc and in cgroups. A
// file system on a disk or on another machine can.

// Pread reads from a position of a file.
func Pread(fd int, b []byte, offset int64) (int, error) {
	if !raw || len(b) == 0 || len(b) > shortBytes {
		return unix.Pread(fd, b, offset)
	}
	return result(unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(offset), 0, 0))
}

// Pwrite writes to a position of a file.
func Pwrite(fd int, b []byte, offset int64) (int, error) {
	if !raw || len(b) == 0 || len(b) > shortBytes {
		return unix.Pwrite(fd, b, offset)
	}
	return result(unix.RawSyscall6(unix.SYS_PWRITE64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(offset), 0, 0))
}

// Write writes to a pipe in non-blocking mode.
func Write(fd int, b []byte) (int, error) {
	if !raw || len(b) == 0 || len(b) > shortBytes {
		return unix.Write(fd, b)
	}
	n, errno := sysWrite(uintptr(fd), b)
	return result(uintptr(n), 0, errno)
}

// Splice moves what is in a pipe, at most n bytes, to a memfd or another pipe. It does
// not wait for a pipe. The caller must know that what it moves is short.
func Splice(in, out, n, flags int) (int, error) {
	flags |= unix.SPLICE_F_NONBLOCK
	if !raw {
		moved, err := unix.Splice(in, nil, out, nil, n, flags)
		return int(moved), err
	}
	return result(unix.RawSyscall6(unix.SYS_SPLICE, uintptr(in), 0, uintptr(out), 0, uintptr(n), uintptr(flags)))
}

// Size returns the size of a file.
func Size(fd int) (int64, error) {
	var st unix.Stat_t
	if !raw {
		err := unix.Fstat(fd, &st)
		return st.Size, err
	}
	_, err := result(unix.RawSyscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(&st)), 0))
	return st.Size, err
}

// Poll returns how many of some descriptors are ready now.
func Poll(fds []unix.PollFd) (int, error) {
	if !raw || len(fds) == 0 {
		return unix.Poll(fds, 0)
	}
	var now unix.Timespec
	return result(unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)), uintptr(unsafe.Pointer(&now)), 0, 0, 0))
}

// Readlink returns where a symbolic link of /proc leads.
func Readlink(path string) (string, error) {
	if raw {
		name, err := unix.BytePtrFromString(path)
		if err == nil {
			var target [512]byte
			here := unix.AT_FDCWD
			n, _, errno := unix.RawSyscall6(unix.SYS_READLINKAT, uintptr(here), uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&target)), uintptr(len(target)), 0, 0)
			if errno == 0 && n < uintptr(len(target)) {
				return string(target[:n]), nil
			}
		}
	}
	return os.Readlink(path) // it may be longer, and the error says more
}

// ClockGettime reads a clock.
func ClockGettime(clock int32, ts *unix.Timespec) error {
	if !raw {
		return unix.ClockGettime(clock, ts)
	}
	_, err := result(unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(ts)), 0))
	return err
}

// result returns what a function of package unix makes of these.
func result(r, _ uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return -1, errno
	}
	return int(r), nil
}
