package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/trust"
)

// UnixListener listens on a Unix socket that only its owner (and root) can
// reach. It holds a lock beside the socket for as long as it is open, so that
// of two daemons that start at once exactly one wins.
type UnixListener struct {
	*net.UnixListener
	path      string
	inode     fs.FileInfo // of the socket: a path that is no longer ours is not removed
	lock      *os.File    // nil: the socket is another's, see InheritUnix
	staleLock string      // what was in the lock of a daemon that died; "" if none did
	closed    sync.Once
}

// maxPath is what fits the kernel's address of a Unix socket, with its
// terminating zero.
const maxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// backlog is how many clients may wait to be accepted; past it connecting
// fails. The kernel takes less where its own limit is lower.
const backlog = 4096

// ListenUnix listens at path. The directory is made if it is missing. A socket
// that a dead daemon left there is replaced; anything else that is in the way
// is an error.
func ListenUnix(path string) (*UnixListener, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if len(path) > maxPath {
		return nil, fmt.Errorf("listen on %s: the path has %d bytes, and a socket's may have %d: choose a shorter one", path, len(path), maxPath)
	}
	if err := privateDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	lock, err := acquireLock(path)
	for deadline := time.Now().Add(lockTimeout); errors.Is(err, ErrServing) && !reachable(path) && time.Now().Before(deadline); {
		time.Sleep(lockRetryPause)
		lock, err = acquireLock(path)
	}
	if err != nil {
		return nil, err
	}
	left, err := io.ReadAll(io.LimitReader(lock, maxLockBytes))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), lock.Close())
	}
	l := &UnixListener{path: path, lock: lock, staleLock: string(left)}
	if err := l.bind(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	return l, nil
}

// privateDir makes the directory of a socket if it is missing, and refuses one in
// which, or above which, somebody else could put something in the place of ours.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return trust.Directory(dir, os.Geteuid())
}

// Left is what the lock said of a daemon that died without removing its socket,
// which this one has replaced; "" if there was none.
func (l *UnixListener) StaleLock() string { return l.staleLock }

// RemoveUnix removes what a dead daemon left at path, its socket and its lock,
// if theirs says so of what is in the lock: another may have taken its place. It
// is empty if the daemon died before it told. The dead one's descriptors may need
// a moment to go, up to patience.
func RemoveUnix(path string, theirs func(told string) bool, patience time.Duration) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(lockRetryPause) {
		told, _, err := ReadLock(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !theirs(told):
			return nil
		}
		lock, err := acquireLock(path)
		switch {
		case errors.Is(err, ErrServing):
			continue
		case err != nil:
			return err
		}
		l := &UnixListener{path: path, lock: lock}
		if told, _, err = ReadLock(path); err != nil || !theirs(told) {
			return errors.Join(err, lock.Close())
		}
		return errors.Join(l.removeStaleSocket(), l.release())
	}
	return nil // somebody lives who has it
}

const (
	// lockPatience is how long a daemon waits for a lock behind which nobody
	// answers: who removes what is left of a dead one has it for an instant, and
	// one that stops or starts for not much longer.
	lockTimeout    = 250 * time.Millisecond
	lockRetryPause = 5 * time.Millisecond
)

// Keep hands copies of the socket and of its lock, if there is one, to keep:
// with them a later process goes on listening, and nobody is refused meanwhile.
func (l *UnixListener) KeepFDs(keep func(fd int) error) error {
	own := []syscall.Conn{l.UnixListener}
	if l.lock != nil {
		own = append(own, l.lock)
	}
	for _, c := range own {
		raw, err := c.SyscallConn()
		if err != nil {
			return err
		}
		var failed error
		if err := raw.Control(func(fd uintptr) { failed = keep(int(fd)) }); err != nil || failed != nil {
			return errors.Join(err, failed)
		}
	}
	return nil
}

// AdoptUnix goes on listening at path with the socket and the lock of an earlier
// process. It owns them then. Without a socket, which is -1 then, it makes one.
func AdoptUnix(path string, socket, lock int) (*UnixListener, error) {
	l := &UnixListener{path: path, lock: os.NewFile(uintptr(lock), path+".lock")}
	if err := l.adopt(socket); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s again: %w", path, err), l.lock.Close())
	}
	return l, nil
}

func (l *UnixListener) adopt(socket int) error {
	if socket < 0 {
		// The lock is ours, so a socket that is there is what its earlier holder
		// was about to remove.
		if info, err := os.Lstat(l.path); err == nil && info.Mode().Type() == fs.ModeSocket {
			if err := os.Remove(l.path); err != nil {
				return err
			}
		}
		return l.bind()
	}
	file := os.NewFile(uintptr(socket), l.path)
	defer file.Close() // net.FileListener works on a copy
	var err error
	if l.inode, err = os.Lstat(l.path); err != nil {
		return err
	}
	// From now on the socket's peers see this process behind it.
	if err := unix.Listen(socket, backlog); err != nil {
		return err
	}
	nl, err := net.FileListener(file)
	if err != nil {
		return err
	}
	l.UnixListener = nl.(*net.UnixListener)
	return nil
}

// Tell writes into the lock who has it, for those who find it taken.
func (l *UnixListener) WriteLock(text string) error {
	if _, err := l.lock.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	return l.lock.Truncate(int64(len(text)))
}

// maxTold bounds what is read of a lock: who has it, in two lines with a path.
const maxLockBytes = 8 << 10

// ReadLock returns what Tell has written into the lock of a path, and the user
// whose lock it is. It refuses a lock, or a directory of one, that somebody else
// could have written to; see package trust.
func ReadLock(path string) (text string, owner int, err error) {
	user, err := trust.ServerUser(path)
	if err != nil {
		return "", -1, err
	}
	// O_NONBLOCK: to open a pipe would wait for its writer.
	lock, err := os.OpenFile(path+".lock", os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", -1, err
	}
	defer lock.Close()
	if owner, err = trust.Lock(lock, user); err != nil {
		return "", owner, err
	}
	told, err := io.ReadAll(io.LimitReader(lock, maxLockBytes))
	return string(told), owner, err
}

// Leave stops listening, removes the socket, and then says so in the lock, which
// stays with whom it is kept.
func (l *UnixListener) CloseKeepingLock(text string) error {
	l.stop()
	var err error
	l.closed.Do(func() { err = errors.Join(l.removeSocket(), l.WriteLock(text), l.lock.Close()) })
	return err
}

// InheritUnix serves on a listening socket that another process has made, and
// owns this descriptor of it then. The path is that process's: nothing beside it
// is locked, and nothing is removed at the end.
func InheritUnix(socket int) (*UnixListener, error) {
	file := os.NewFile(uintptr(socket), "inherited socket")
	defer file.Close() // net.FileListener works on a copy
	nl, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("listen on a socket that was passed: %w", err)
	}
	return &UnixListener{UnixListener: nl.(*net.UnixListener)}, nil
}

// Inherited reports whether the socket is another process's, see InheritUnix.
func (l *UnixListener) Inherited() bool {
	return l.lock == nil
}

// lockBeside takes the lock of path, or says who has it.
func acquireLock(path string) (*os.File, error) {
	name := path + ".lock"
	for {
		lock, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
		if _, err := trust.Lock(lock, os.Geteuid()); err != nil {
			lock.Close()
			if errors.Is(err, fs.ErrNotExist) {
				continue // its holder has just removed it
			}
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			lock.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, alreadyServing(path)
			}
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		// Whoever had the lock may have removed the file between our open and
		// our lock. Then this is the lock of nothing, and another daemon may
		// have made and locked a new one.
		ours, err := lock.Stat()
		if err == nil {
			var there fs.FileInfo
			if there, err = os.Lstat(name); err == nil && os.SameFile(ours, there) {
				return lock, nil
			}
		}
		lock.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
	}
}

// probeTimeout bounds the look at a socket that is already there. Connecting
// to a local socket is immediate unless its backlog is full, and then someone
// is alive behind it.
const probeTimeout = time.Second

// ErrServing says that somebody has the lock.
var ErrServing = errors.New("another daemon is already serving")

// reachable reports whether somebody listens at path.
func reachable(path string) bool {
	nc, err := net.DialTimeout("unix", path, probeTimeout)
	if err != nil {
		return false
	}
	nc.Close()
	return true
}

// PeerAt returns the process that listens at path: the one that made the socket
// listen, which may have died since.
func PeerAt(path string) (trust.Peer, error) {
	nc, err := net.DialTimeout("unix", path, probeTimeout)
	if err != nil {
		return trust.Peer{UID: -1}, err
	}
	defer nc.Close()
	return trust.PeerOf(nc.(*net.UnixConn))
}

func alreadyServing(path string) error {
	err := fmt.Errorf("%w on %s", ErrServing, path)
	// Else it is starting or stopping.
	if peer, peerErr := PeerAt(path); peerErr == nil && peer.PID > 0 {
		return fmt.Errorf("%w (pid %d)", err, peer.PID)
	}
	return err
}

// clear removes a dead socket from the path. The lock is held: a daemon that
// has bound the socket and does not listen yet is not mistaken for a dead one.
func (l *UnixListener) removeStaleSocket() error {
	info, err := os.Lstat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("listen on %s: %w", l.path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("listen on %s: there is something that is not a socket: move it away, or choose another path", l.path)
	}
	nc, err := net.DialTimeout("unix", l.path, probeTimeout)
	switch {
	case err == nil:
		nc.Close()
		return alreadyServing(l.path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(l.path)
	default:
		return fmt.Errorf("listen on %s: cannot tell whether the socket there is alive: %w", l.path, err)
	}
}

// bind makes the socket. It is made private before it listens, so there is no
// moment at which someone else could connect, whatever the umask.
func (l *UnixListener) bind() error {
	if err := l.removeStaleSocket(); err != nil {
		return err
	}
	syscall.ForkLock.RLock() // no child may inherit the socket
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return fmt.Errorf("listen on %s: %w", l.path, err)
	}
	file := os.NewFile(uintptr(fd), l.path)
	defer file.Close() // net.FileListener works on a copy
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: l.path}); err != nil {
		return fmt.Errorf("listen on %s: %w", l.path, err)
	}
	if l.inode, err = os.Lstat(l.path); err == nil {
		err = os.Chmod(l.path, 0o600)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	var nl net.Listener
	if err == nil {
		nl, err = net.FileListener(file)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", l.path, err)
	}
	l.UnixListener = nl.(*net.UnixListener)
	return nil
}

// stop refuses new connections and keeps the path and the lock.
func (l *UnixListener) stop() { _ = l.UnixListener.Close() }

// Close stops listening and removes the socket and the lock. It may be called
// more than once.
func (l *UnixListener) Close() error {
	l.stop()
	return l.release()
}

// release removes the files. The lock goes last and is let go of after it is
// gone, so that whoever locks it meanwhile notices; see lockBeside.
func (l *UnixListener) release() (err error) {
	if l.lock == nil {
		return nil
	}
	l.closed.Do(func() { err = errors.Join(l.removeSocket(), os.Remove(l.lock.Name()), l.lock.Close()) })
	return err
}

// removeSocket removes the socket, unless another has taken its place.
func (l *UnixListener) removeSocket() error {
	if there, err := os.Lstat(l.path); err == nil && l.inode != nil && os.SameFile(there, l.inode) {
		return os.Remove(l.path)
	}
	return nil
}

// outOfFiles reports an accept error that passes.
func isTransientAcceptError(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED)
}

// linkTo makes the link of an accepted connection.
func linkTo(nc *net.UnixConn) link {
	return link{
		Reader:   nc,
		Writer:   nc,
		close:    nc.Close,
		deadline: nc.SetWriteDeadline,
		stopRead: func() { _ = nc.SetReadDeadline(time.Unix(1, 0)) },
		hungUp:   func() bool { return hungUp(nc) },
	}
}

// hungUp reports whether the peer of a socket has closed its end altogether,
// and not only its sending side; or whether nobody holds the reading end of a
// pipe. What is closed on this side counts too.
func hungUp(end syscall.Conn) bool {
	raw, err := end.SyscallConn()
	if err != nil {
		return true
	}
	hung := true
	_ = raw.Control(func(fd uintptr) { // it fails on a closed connection alone
		poll := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(poll, 0)
		hung = err == nil && poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return hung
}

// admit serves a connection if its peer may talk to this daemon, which is what
// its own user and root may.
func (s *Server) admit(ctx context.Context, nc net.Conn) {
	uc, ok := nc.(*net.UnixConn)
	if !ok {
		s.refuse(nc, access.Actor{UID: -1}, errors.New("only Unix sockets are served"))
		return
	}
	actor, err := peerOf(uc)
	if err == nil {
		err = allowed(actor.UID, os.Geteuid())
	}
	if err != nil {
		s.refuse(nc, actor, err)
		return
	}
	_ = uc.SetWriteBuffer(sendBufferBytes) // without it streams are slower, and right
	actor.Scope = access.ScopeAdmin        // who could just as well replace the daemon
	_ = s.run(ctx, actor, linkTo(uc))      // how one connection ends is no concern of the others
}

// sendBufferBytes is what a connection may have under way: some chunks of a
// stream, so that its writer and its reader need not take turns. The memory is
// the kernel's, used while there is something to send, and bounded by it.
const sendBufferBytes = 1 << 20

func allowed(peer, self int) error {
	if peer == self || peer == 0 {
		return nil
	}
	return fmt.Errorf("uid %d may not use the daemon of uid %d", peer, self)
}
