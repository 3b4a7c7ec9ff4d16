package holder

import "golang.org/x/sys/unix"

// put makes fd's description the one behind the number to, in one step.
func dupTo(fd, to int) error { return unix.Dup3(fd, to, unix.O_CLOEXEC) }
