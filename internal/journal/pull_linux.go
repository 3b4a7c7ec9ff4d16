package journal

import (
	"io"

	"golang.org/x/sys/unix"
)

// pipeSize is what a pipe that was found full is enlarged to. Four times the
// default is where the gain ends by measurement; a user's pipes share an
// allowance (pipe-user-pages-soft, 64 MiB), past which every new pipe of that
// user is made tiny, so more would be taken from others for nothing.
const pipeSize = 256 << 10

// growPipe asks for a larger pipe, so that a fast command is switched to less
// often. A refusal changes nothing but speed.
func growPipe(fd int) {
	if size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil && size < pipeSize {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize)
	}
}

// pipeWaiting returns how many bytes are in the pipe, 0 if that can't be told.
func pipeWaiting(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// pipeState says what it is that a pipe has no bytes: unix.EAGAIN, or io.EOF when
// nobody can write to it any more.
func pipeState(fd int) error {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, 0)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case p[0].Revents&unix.POLLNVAL != 0:
			return errNoSplice
		case p[0].Revents&unix.POLLIN == 0 && p[0].Revents&unix.POLLHUP != 0:
			return io.EOF
		default:
			return unix.EAGAIN
		}
	}
}

// splicePipe moves up to n bytes from in to out, one of which is a pipe. In a
// file they go to its position, which moves along. A file in append mode is
// refused.
func splicePipe(in, out, n int) (int, error) {
	for {
		moved, err := unix.Splice(in, nil, out, nil, n, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if err == unix.EINTR {
			continue
		}
		return int(moved), err
	}
}
