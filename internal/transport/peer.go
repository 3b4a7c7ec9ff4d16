package transport

import (
	"net"

	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/trust"
)

// peerOf asks the kernel which process is at the other end.
func peerOf(nc *net.UnixConn) (access.Actor, error) {
	peer, err := trust.PeerOf(nc)
	return access.Actor{UID: peer.UID, PID: peer.PID, Transport: "unix"}, err
}
