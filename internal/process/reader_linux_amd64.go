package process

import "golang.org/x/sys/unix"

var waitCalls = map[int]int{
	unix.SYS_READ: callRead, unix.SYS_READV: callRead,
	unix.SYS_POLL: callPoll, unix.SYS_PPOLL: callPoll,
	unix.SYS_SELECT: callSelect, unix.SYS_PSELECT6: callSelect,
	unix.SYS_EPOLL_WAIT: callEpoll, unix.SYS_EPOLL_PWAIT: callEpoll, unix.SYS_EPOLL_PWAIT2: callEpoll,
}
