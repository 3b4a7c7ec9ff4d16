package daemon

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/transport"
)

// ErrNotServer is returned if the process that says it serves on a socket is not the
// one that the kernel names. It must not be signalled.
var ErrNotServer = errors.New("it is not the daemon of this socket")

// FindPlaceless finds the daemon without a local place that serves on a socket. pid is
// what the daemon said in system.info. The kernel must name the same process as the one
// that listens, and it must run as the owner of the lock, which no other user could have
// written.
func FindPlaceless(socket string, pid int) (*Placeless, error) {
	_, owner, err := transport.ReadLock(socket)
	if err != nil {
		return nil, err
	}
	// Opened before the check, so that what is checked is what is signalled.
	p, err := openPlaceless(pid, socket)
	if err != nil {
		return nil, err
	}
	peer, err := transport.PeerAt(socket)
	if err == nil && (peer.PID != pid || peer.UID != owner) {
		err = fmt.Errorf("process %d, which %s names: %w", pid, socket, ErrNotServer)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Stop asks the daemon to exit. Sessions in its places continue.
func (p *Placeless) Stop() error { return p.Signal(unix.SIGTERM) }
