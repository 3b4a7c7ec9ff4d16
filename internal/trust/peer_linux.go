package trust

import "golang.org/x/sys/unix"

func peerOfFD(fd int) (Peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return unknownPeer, err
	}
	return Peer{UID: int(cred.Uid), PID: int(cred.Pid)}, nil
}
