//go:build !linux

package place

import "syscall"

// masterAttributes returns how to start a master: in a group of its own, which a key
// that interrupts the daemon does not reach.
func masterAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
