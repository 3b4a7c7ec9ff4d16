package stdio

import "golang.org/x/sys/unix"

// growPipe lets a pipe hold pipeBytes. It only affects the speed of streams.
func growPipe(fd int) {
	if size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil && size < pipeBytes {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeBytes) // the user may have no more
	}
}
