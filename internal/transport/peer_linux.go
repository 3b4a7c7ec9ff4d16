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
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = credErr
	}
	if err != nil {
		return actor, err
	}
	actor.UID, actor.PID = int(cred.Uid), int(cred.Pid)
	return actor, nil
}
