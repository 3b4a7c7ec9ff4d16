package journal

import "golang.org/x/sys/unix"

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

// splicePipe moves up to n bytes from the pipe to pos in the file. The place is
// explicit and the file not in append mode, which splice refuses.
func splicePipe(pipe, file int, pos int64, n int) (int, error) {
	for {
		at := pos
		moved, err := unix.Splice(pipe, nil, file, &at, n, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if err == unix.EINTR {
			continue
		}
		return int(moved), err
	}
}
