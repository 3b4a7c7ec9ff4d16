//go:build !linux

package holder

import "golang.org/x/sys/unix"

// dupTo makes the number to refer to fd's open file description. A process that
// is forked between the two steps inherits the descriptor; that is accepted
// because sessions need Linux.
func dupTo(fd, to int) error {
	if err := unix.Dup2(fd, to); err != nil {
		return err
	}
	unix.CloseOnExec(to)
	return nil
}
