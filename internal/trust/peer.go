package trust

import (
	"errors"
	"fmt"
	"net"
	"os"
)

var errUnidentified = errors.New("peers cannot be identified on this system")

// Peer is the process at the other end of a Unix socket, as the kernel recorded it
// when it connected, or when it began to listen.
type Peer struct {
	UID int // -1: unknown
	PID int // 0: unknown
}

var unknownPeer = Peer{UID: -1}

// PeerOf returns the process at the other end, as the kernel reports it.
func PeerOf(nc *net.UnixConn) (Peer, error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return unknownPeer, err
	}
	peer, peerErr := unknownPeer, error(nil)
	if err := raw.Control(func(fd uintptr) { peer, peerErr = peerOfFD(int(fd)) }); err != nil {
		return unknownPeer, err
	}
	return peer, peerErr
}

// CheckPeer returns an error unless the process that listens on the socket at path
// belongs to the caller, to root, or to user; see ServerUser. If the kernel does not
// identify the process, the check of the directory must suffice.
func CheckPeer(conn *net.UnixConn, path string, user int) error {
	peer, err := PeerOf(conn)
	if errors.Is(err, errUnidentified) {
		return nil
	}
	if err != nil {
		return err
	}
	if peer.UID == 0 || peer.UID == user || peer.UID == os.Geteuid() {
		return nil
	}
	return &Refusal{
		Message: fmt.Sprintf("the process that listens on %s (pid %d) belongs to another user (uid %d); nothing was sent to it", path, peer.PID, peer.UID),
		Hint:    "choose a socket in your own directory",
		Path:    path,
	}
}
