package process

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is the kernel's siginfo_t as waitid(2) fills it. x/sys leaves the
// union opaque; on every Linux architecture that Go supports the pid of a
// child event is the first field of the union, which is aligned like a
// pointer.
type siginfo struct{ unix.Siginfo }

func (s *siginfo) wait(idType, id, options int) error {
	for {
		s.Siginfo = unix.Siginfo{}
		err := unix.Waitid(idType, id, &s.Siginfo, options, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

func (s *siginfo) pid() int {
	const union = (3*4 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&s.Siginfo), union)))
}
