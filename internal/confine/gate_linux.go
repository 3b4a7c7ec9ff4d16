package confine

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// The messages on the gate. The end after messageReady means success: the exec of
// the program has closed the gate.
const (
	messageGo       = 'g' // to the launcher
	messageListener = 'l' // with the descriptor of the proxy's listener
	messageReady    = 'r' // the exec is next
	messageFailure  = 'f' // followed by the reason
)

// maxReason bounds a reason; the kernel keeps a packet in one piece.
const maxReason = 4096

// receive returns the next message. The descriptor is -1 if there is none.
func receive(gate *os.File) (kind byte, text string, fd int, err error) {
	conn, err := gate.SyscallConn()
	if err != nil {
		return 0, "", -1, err
	}
	buf, oob := make([]byte, maxReason), make([]byte, unix.CmsgSpace(4))
	var n, oobn int
	var failure error
	err = conn.Read(func(s uintptr) bool {
		n, oobn, _, _, failure = unix.Recvmsg(int(s), buf, oob, unix.MSG_CMSG_CLOEXEC)
		return failure != unix.EAGAIN
	})
	if err == nil {
		err = failure
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return 0, "", -1, err
	}
	fd = -1
	if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			fd = fds[0]
		}
	}
	return buf[0], string(buf[1:n]), fd, nil
}

// send sends a message, with a descriptor unless that is negative.
func send(gate int, kind byte, text string, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	text = text[:min(len(text), maxReason-1)]
	return unix.Sendmsg(gate, append([]byte{kind}, text...), rights, nil, 0)
}
