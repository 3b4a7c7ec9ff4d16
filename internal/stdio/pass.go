package stdio

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Method is the request by which a relay asks the daemon to take over its standard
// input and output. A daemon that can answers with an empty line first. The relay then
// calls Pass, and the daemon Receive; the answer follows. An older daemon does not
// know the method, and the relay copies.
const Method = "system.adopt"

// CanPass reports whether Pass may be called with these files: two pipes. A terminal
// and a file have other users, and a socket can't be opened anew; see open.
func CanPass(in, out *os.File) bool {
	for _, f := range []*os.File{in, out} {
		if err := withFD(f, func(fd int) error { _, err := pipeName(fd); return err }); err != nil {
			return false
		}
	}
	return true
}

// Pass sends the descriptors of both files over a socket, with an empty line.
func Pass(sock *net.UnixConn, in, out *os.File) error {
	return withFD(in, func(inFD int) error {
		return withFD(out, func(outFD int) error {
			_, _, err := sock.WriteMsgUnix([]byte("\n"), unix.UnixRights(inFD, outFD), nil)
			return err
		})
	})
}

// withFD calls do with the descriptor of a file. File.Fd would change its mode.
func withFD(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}

// Receive waits for what Pass sends, and returns the stream over both pipes. The
// caller of Receive must not have read anything of it: a read that does not ask for
// descriptors makes the kernel close them.
func Receive(sock *net.UnixConn, timing Timing) (*Files, error) {
	var line [1]byte
	// There is no room for a third descriptor: the kernel closes all others.
	rights := make([]byte, unix.CmsgSpace(2*4))
	_, n, flags, _, err := sock.ReadMsgUnix(line[:], rights)
	fds := descriptors(rights[:n])
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	if err != nil {
		return nil, err
	}
	if len(fds) != 2 || flags&unix.MSG_CTRUNC != 0 {
		return nil, errors.New("two descriptors were expected")
	}
	return open(fds[0], fds[1], timing)
}

// descriptors returns the descriptors in a control message.
func descriptors(control []byte) []int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil // without a whole header the kernel passed none
	}
	var fds []int
	for _, m := range messages {
		if some, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, some...)
		}
	}
	return fds
}

// pipeBytes is how much the pipe to the caller holds, if the kernel allows it, as
// much as a socket of the daemon: the daemon and a reader of a stream need not take
// turns then.
const pipeBytes = 1 << 20

// open opens both pipes anew. Reading and writing must not block a thread of the
// daemon, and the mode of a descriptor is shared by all copies of it, in other
// processes too. So neither may the daemon set it for them, nor may they be able to
// reset it.
func open(in, out int, timing Timing) (*Files, error) {
	reads, err := reopen(in, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	writes, err := reopen(out, os.O_WRONLY)
	if err != nil {
		return nil, errors.Join(err, reads.Close())
	}
	growPipe(out)
	return New(reads, writes, timing), nil
}

var errNoPipe = errors.New("the descriptor is not a pipe")

func reopen(fd, mode int) (*os.File, error) {
	name, err := pipeName(fd)
	if err != nil {
		return nil, err
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, err
	}
	if had := flags & unix.O_ACCMODE; had != mode && had != os.O_RDWR {
		return nil, errors.New("the descriptor is the other end of a pipe")
	}
	return os.OpenFile(name, mode|unix.O_NONBLOCK, 0)
}

// pipeName returns a name by which the pipe with this descriptor can be opened. A
// pipe that has a name of its own is refused: opening it may have to wait for the
// file system.
func pipeName(fd int) (string, error) {
	name := "/proc/self/fd/" + strconv.Itoa(fd)
	target, err := os.Readlink(name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoPipe, err)
	}
	if !strings.HasPrefix(target, "pipe:[") {
		return "", errNoPipe
	}
	return name, nil
}
