//go:build linux && !amd64

package process

import "golang.org/x/sys/unix"

// The older calls exist on amd64 only.
var waitCalls = map[int]int{
	unix.SYS_READ: callRead, unix.SYS_READV: callRead,
	unix.SYS_PPOLL: callPoll, unix.SYS_PSELECT6: callSelect,
	unix.SYS_EPOLL_PWAIT: callEpoll, unix.SYS_EPOLL_PWAIT2: callEpoll,
}
