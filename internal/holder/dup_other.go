//go:build !linux

package holder

import "golang.org/x/sys/unix"

// put makes fd's description the one behind the number to. A process that is
// forked between the two steps inherits it; sessions are for Linux.
func dupTo(fd, to int) error {
	if err := unix.Dup2(fd, to); err != nil {
		return err
	}
	unix.CloseOnExec(to)
	return nil
}
