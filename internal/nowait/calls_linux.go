//go:build !race

package nowait

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func sysRead(fd uintptr, b []byte) (int, syscall.Errno) { return rawCall(unix.SYS_READ, fd, b) }

func sysWrite(fd uintptr, b []byte) (int, syscall.Errno) { return rawCall(unix.SYS_WRITE, fd, b) }

func rawCall(trap, fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}
