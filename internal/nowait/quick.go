package nowait

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// quick makes the system calls of one direction of a stream.
type quick struct {
	raw  syscall.RawConn
	call func(fd uintptr, b []byte) (int, syscall.Errno)
	wait bool                  // until a call has an effect
	step func(fd uintptr) bool // made once, since each would be an allocation

	// Of the call under way.
	b     []byte
	n     int
	errno syscall.Errno
}

// newQuick returns nil for a stream without a descriptor in non-blocking mode.
func newQuick(stream any, call func(fd uintptr, b []byte) (int, syscall.Errno), wait bool) *quick {
	c, ok := stream.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	q := &quick{raw: raw, call: call, wait: wait}
	q.step = q.try
	err = raw.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		ok = err == nil && flags&unix.O_NONBLOCK != 0
	})
	if err != nil || !ok {
		return nil
	}
	return q
}

// try makes the system call, and returns false if it has to wait.
func (q *quick) try(fd uintptr) bool {
	for {
		q.n, q.errno = q.call(fd, q.b)
		switch q.errno {
		case 0:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			q.n, q.errno = 0, 0
			return !q.wait
		default:
			q.n = 0
		}
		return true
	}
}

// read waits for bytes. ok is false if the stream is closed or its deadline has
// passed: its own Read says which.
func (q *quick) read(b []byte) (n int, ok bool, err error) {
	q.b = b
	err = q.raw.Read(q.step)
	q.b = nil
	switch {
	case err != nil:
		return 0, false, nil
	case q.errno != 0:
		return 0, true, os.NewSyscallError("read", q.errno)
	case q.n == 0 && len(b) > 0:
		return 0, true, io.EOF
	}
	return q.n, true, nil
}

// write writes what the stream takes at once. It writes nothing if the stream is
// closed or its deadline has passed.
func (q *quick) write(b []byte) (n int, err error) {
	q.b = b
	err = q.raw.Write(q.step)
	q.b = nil
	switch {
	case err != nil:
		return 0, nil
	case q.errno != 0:
		return 0, os.NewSyscallError("write", q.errno)
	}
	return q.n, nil
}
