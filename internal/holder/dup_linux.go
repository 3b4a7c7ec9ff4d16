package holder

import "golang.org/x/sys/unix"

// dupTo makes the number to refer to fd's open file description, atomically.
func dupTo(fd, to int) error { return unix.Dup3(fd, to, unix.O_CLOEXEC) }
