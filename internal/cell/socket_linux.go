package cell

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trust"
)

// backlog is how many connections wait while the TRL of a cell starts again.
const backlog = 128

// listen returns a listening Unix socket without a name, and a descriptor by which
// dial connects to it. Both must be closed.
func listen(dir, name string) (listener, way *os.File, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	if err := trust.Directory(dir, os.Geteuid()); err != nil {
		return nil, nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the socket of a cell: %w", err)
	}
	listener = os.NewFile(uintptr(fd), "cell")
	path := filepath.Join(dir, name)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("bind %s: %w", path, err), listener.Close())
	}
	to, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	err = errors.Join(err, unix.Listen(fd, backlog), unix.Unlink(path))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), listener.Close())
	}
	return listener, os.NewFile(uintptr(to), "way to a cell"), nil
}

// dial connects to the socket that way leads to.
func dial(ctx context.Context, way *os.File) (net.Conn, error) {
	raw, err := way.SyscallConn()
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	var failed error
	// Control keeps the descriptor open meanwhile.
	if err := raw.Control(func(fd uintptr) {
		var d net.Dialer
		conn, failed = d.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(int(fd)))
	}); err != nil {
		return nil, err
	}
	return conn, failed
}
