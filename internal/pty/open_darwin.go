package pty

import (
	"bytes"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openPeer opens the slave of a master.
func openPeer(master int) (fd int, name string, err error) {
	if err := unix.IoctlSetInt(master, unix.TIOCPTYGRANT, 0); err != nil {
		return -1, "", err
	}
	if err := unix.IoctlSetInt(master, unix.TIOCPTYUNLK, 0); err != nil {
		return -1, "", err
	}
	var path [128]byte // the request's number encodes the size
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCPTYGNAME, uintptr(unsafe.Pointer(&path))); errno != 0 {
		return -1, "", errno
	}
	name = string(path[:max(0, bytes.IndexByte(path[:], 0))])
	fd, err = unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	return fd, name, err
}
