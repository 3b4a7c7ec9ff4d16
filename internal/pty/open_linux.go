package pty

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// openPeer opens the slave of a master.
func openPeer(master int) (fd int, name string, err error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, "", err
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, "", err
	}
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return -1, "", errno
	}
	return int(r), "/dev/pts/" + strconv.Itoa(number), nil
}
