// Package peer is one connection to a TRL: it sends requests, and delivers the
// answers and the notifications of streams. The Go client and the router of a
// daemon use it; both decide themselves which calls to repeat after a lost
// connection.
//
// The files, each of which refers only to those below it:
//
//	conn.go        Conn: calls and streams over a wire
//	quick.go       finds ids in messages without parsing all of them
//	command.go     a wire to a relay that a command starts
//	websocket.go   a wire over a WebSocket
//	unix.go        a wire over a Unix socket
//	wire.go        what carries messages
//	peer.go        the errors
package peer

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrNoDaemon is wrapped by the error of a dial if nothing listens at the
// address.
var ErrNoDaemon = errors.New("no TRL daemon is running")

// ErrClosed is wrapped by the error of a call whose connection has ended,
// whichever side ended it. Whether the daemon received the call is then unknown.
var ErrClosed = errors.New("the connection to the daemon is closed")

// NoDaemon wraps err in ErrNoDaemon if it means that nothing listens there.
func NoDaemon(where string, err error) error {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w at %s: %w", ErrNoDaemon, where, err)
	}
	return err
}
