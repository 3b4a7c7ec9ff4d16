//go:build !linux || race

package nowait

import (
	"errors"
	"syscall"
)

// Other systems allow only the system calls that their library makes, and the race
// detector knows only of those of package syscall. The scheduler prepares for these as
// usual.

func sysRead(fd uintptr, b []byte) (int, syscall.Errno) {
	n, err := syscall.Read(int(fd), b)
	return n, errnoOf(err)
}

func sysWrite(fd uintptr, b []byte) (int, syscall.Errno) {
	n, err := syscall.Write(int(fd), b)
	return n, errnoOf(err)
}

func errnoOf(err error) syscall.Errno {
	errno, _ := errors.AsType[syscall.Errno](err)
	return errno
}
