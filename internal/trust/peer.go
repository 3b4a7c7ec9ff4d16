package trust

import (
	"errors"
	"fmt"
	"net"
	"os"
)

var errUnidentified = errors.New("peers cannot be identified on this system")

// Peer is the process at the other end of a Unix socket, as the kernel saw it
// when it connected, or when it began to listen.
type Peer struct {
	UID int // -1: not known
	PID int // 0: not known
}

// Reach refuses a connection to a daemon on the socket at path unless the process
// that listens there is the caller's, root's, or that of user; see Server. Where
// the kernel does not say whose it is, the directory has to do.
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
		Hint:    "choose a socket in a directory of your own",
		Path:    path,
	}
}
