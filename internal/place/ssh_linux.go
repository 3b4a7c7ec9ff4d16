package place

import "syscall"

// masterAttributes returns how to start a master: in a group of its own, which a key
// that interrupts the daemon does not reach, and ended by the kernel with its parent.
func masterAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
