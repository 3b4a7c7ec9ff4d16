package trust

import "golang.org/x/sys/unix"

func peerOfFD(fd int) (Peer, error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return unknownPeer, err
	}
	peer := Peer{UID: int(cred.Uid)}
	if pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID); err == nil {
		peer.PID = pid // only for logs: decisions use the uid
	}
	return peer, nil
}
