package journal

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/nowait"
)

// pipeSize is the new size of a pipe that was found full. Measurements show no
// gain beyond four times the default. A user's pipes share a limit
// (pipe-user-pages-soft, 64 MiB), past which every new pipe of that user is
// tiny, so a larger size would take from others for nothing.
const pipeSize = 256 << 10

// growPipe enlarges the pipe, so that a fast command causes fewer context
// switches. If it is refused, only speed suffers.
func growPipe(fd int) {
	if size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil && size < pipeSize {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize)
	}
}

// pipeWaiting returns how many bytes are in the pipe, and 0 if that is unknown.
func pipeWaiting(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// pipeState returns why a pipe has no bytes: unix.EAGAIN, or io.EOF if no
// process can write to it any more.
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
// file they go to its position, which advances. A file in append mode is
// refused. short means that there are few and that out is a memfd.
func splicePipe(in, out, n int, short bool) (moved int, err error) {
	for {
		if short {
			moved, err = nowait.Splice(in, out, n, unix.SPLICE_F_MOVE)
		} else {
			var m int64
			m, err = unix.Splice(in, nil, out, nil, n, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
			moved = int(m)
		}
		if err != unix.EINTR {
			return moved, err
		}
	}
}
