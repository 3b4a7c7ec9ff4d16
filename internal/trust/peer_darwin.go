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
	var cred *unix.Xucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if pid, err := unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID); err == nil {
			peer.PID = pid // only for logs: decisions use the uid
		}
	})
	if err == nil {
		err = credErr
	}
	if err != nil {
		return peer, err
	}
	peer.UID = int(cred.Uid)
	return peer, nil
}
