package transport

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/access"
)

// peerOf asks the kernel who is at the other end.
func peerOf(nc *net.UnixConn) (access.Actor, error) {
	actor := access.Actor{UID: -1, Transport: "unix"}
	raw, err := nc.SyscallConn()
	if err != nil {
		return actor, err
	}
	var cred *unix.Xucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if pid, err := unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID); err == nil {
			actor.PID = pid // for logs alone: the uid is what counts
		}
	})
	if err == nil {
		err = credErr
	}
	if err != nil {
		return actor, err
	}
	actor.UID = int(cred.Uid)
	return actor, nil
}
