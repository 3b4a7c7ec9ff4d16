package trust

import (
	"net"

	"golang.org/x/sys/unix"
)

// PeerOf returns the process at the other end, as the kernel reports it.
func PeerOf(nc *net.UnixConn) (Peer, error) {
	peer := Peer{UID: -1}
	raw, err := nc.SyscallConn()
	if err != nil {
		return peer, err
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
		return peer, err
	}
	peer.UID, peer.PID = int(cred.Uid), int(cred.Pid)
	return peer, nil
}
