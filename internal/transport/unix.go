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

// UnixListener listens on a Unix socket that only its owner and root can reach.
// While it is open it holds a lock file next to the socket, so that of two
// daemons that start at once exactly one wins.
type UnixListener struct {
	*net.UnixListener
	path      string
	inode     fs.FileInfo // of the socket, so as not to remove another's
	lock      *os.File    // nil: the socket belongs to another process, see InheritUnix
	staleLock string      // contents of the lock of a dead daemon, or ""
	closed    sync.Once
}

// maxPath is the maximum length of a Unix socket's path, without the
// terminating NUL.
const maxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// backlog is how many clients may wait to be accepted; beyond it connecting
// fails. The kernel may apply a lower limit.
const backlog = 4096

// ListenUnix listens at path. It creates the directory if it is missing and
// replaces a socket left by a dead daemon; anything else at the path is an
// error.
func ListenUnix(path string) (*UnixListener, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if len(path) > maxPath {
		return nil, fmt.Errorf("listen on %s: the path has %d bytes, the maximum for a socket is %d: choose a shorter one", path, len(path), maxPath)
	}
	if err := privateDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	lock, err := waitForLock(path)
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

// privateDir creates the directory of a socket if it is missing, but not those above
// it: a typing error in a path should not leave directories. It refuses a directory
// if another user could replace something in it or in a parent directory.
func privateDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return trust.Directory(dir, os.Geteuid())
}

// StaleLock returns the contents of the lock of a daemon that died without
// removing its socket, which this one has replaced, or "" if there was none.
func (l *UnixListener) StaleLock() string { return l.staleLock }

// RemoveUnix removes the socket and the lock that a dead daemon left at path. It
// leaves both alone if another daemon has taken its place: isTheirs reports
// whether the text in the lock is that of the dead daemon. The text is empty if
// the daemon died before WriteLock.
//
// The kernel may need a moment to close the dead daemon's descriptors. RemoveUnix
// waits up to timeout for that, and then returns nil: a live process holds the
// lock.
func RemoveUnix(path string, isTheirs func(text string) bool, timeout time.Duration) error {
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(lockRetryPause) {
		text, _, err := ReadLock(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !isTheirs(text):
			return nil
		}
		lock, err := acquireLock(path)
		switch {
		case errors.Is(err, ErrServing):
			continue
		case err != nil:
			return err
		}
		// Another daemon may have come and gone before we had the lock.
		l := &UnixListener{path: path, lock: lock}
		if text, _, err = ReadLock(path); err != nil || !isTheirs(text) {
			return errors.Join(err, lock.Close())
		}
		return errors.Join(l.removeStaleSocket(), l.release())
	}
	return nil
}

const (
	// lockTimeout is how long a daemon waits for a lock whose socket does not
	// answer. A process that cleans up after a dead daemon holds it for an
	// instant, and one that starts or stops not much longer.
	lockTimeout    = 250 * time.Millisecond
	lockRetryPause = 5 * time.Millisecond
)

// waitForLock is like acquireLock, but if nothing listens at path it waits up to
// lockTimeout for the process that holds the lock.
func waitForLock(path string) (*os.File, error) {
	deadline := time.Now().Add(lockTimeout)
	for {
		lock, err := acquireLock(path)
		if !errors.Is(err, ErrServing) || reachable(path) || time.Now().After(deadline) {
			return lock, err
		}
		time.Sleep(lockRetryPause)
	}
}

// KeepFDs calls keep with the descriptors of the socket and of its lock, if
// there is one. A later process that has copies of them continues to listen, so
// no client is refused during a restart.
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

// AdoptUnix continues to listen at path with the socket and the lock of an
// earlier process, and takes ownership of both. If socket is -1 it creates a
// new one.
func AdoptUnix(path string, socket, lock int) (*UnixListener, error) {
	l := &UnixListener{path: path, lock: os.NewFile(uintptr(lock), path+".lock")}
	if err := l.adopt(socket); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s again: %w", path, err), l.lock.Close())
	}
	return l, nil
}

func (l *UnixListener) adopt(socket int) error {
	if socket < 0 {
		// We hold the lock, so an existing socket is one that the previous
		// holder of the lock was about to remove.
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
	// From now on peers see this process's credentials.
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

// WriteLock writes text, which identifies the holder, into the lock file.
func (l *UnixListener) WriteLock(text string) error {
	if _, err := l.lock.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	return l.lock.Truncate(int64(len(text)))
}

// maxLockBytes limits how much of a lock is read: its contents are two lines
// with a path.
const maxLockBytes = 8 << 10

// ReadLock returns the text that WriteLock wrote into the lock of path, and the
// owner of the lock. It refuses a lock that another user could have written, or
// that is in a directory that another user could have changed; see package
// trust.
func ReadLock(path string) (text string, owner int, err error) {
	user, err := trust.ServerUser(path)
	if err != nil {
		return "", -1, err
	}
	// O_NONBLOCK: opening a FIFO would wait for a writer.
	lock, err := os.OpenFile(path+".lock", os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", -1, err
	}
	defer lock.Close()
	if owner, err = trust.Lock(lock, user); err != nil {
		return "", owner, err
	}
	contents, err := io.ReadAll(io.LimitReader(lock, maxLockBytes))
	return string(contents), owner, err
}

// CloseKeepingLock stops listening, removes the socket, and then writes text
// into the lock. The lock stays held by whoever has a copy of its descriptor.
func (l *UnixListener) CloseKeepingLock(text string) error {
	l.stop()
	var err error
	l.closed.Do(func() { err = errors.Join(l.removeSocket(), l.WriteLock(text), l.lock.Close()) })
	return err
}

// InheritUnix serves on a listening socket that another process created, and
// takes ownership of this descriptor. The path belongs to that process:
// InheritUnix locks nothing, and nothing is removed at the end.
func InheritUnix(socket int) (*UnixListener, error) {
	file := os.NewFile(uintptr(socket), "inherited socket")
	defer file.Close() // net.FileListener works on a copy
	nl, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("listen on the inherited socket: %w", err)
	}
	return &UnixListener{UnixListener: nl.(*net.UnixListener)}, nil
}

// Inherited reports whether the socket belongs to another process, see
// InheritUnix.
func (l *UnixListener) Inherited() bool {
	return l.lock == nil
}

// acquireLock takes the lock of path. Its error names the process that holds
// it.
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
				continue // its holder just removed it
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
		// The previous holder may have removed the file between our open and
		// our lock. Then this lock guards nothing, and another daemon may have
		// created and locked a new file.
		current, err := isFileAt(name, lock)
		if current {
			return lock, nil
		}
		lock.Close()
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
	}
}

// isFileAt reports whether the file at path is f.
func isFileAt(path string, f *os.File) (bool, error) {
	ours, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(ours, there), err
}

// probeTimeout limits the probe of an existing socket. Connecting to a local
// socket is immediate unless its backlog is full, and then a daemon is alive
// behind it.
const probeTimeout = time.Second

// ErrServing means that another daemon holds the lock.
var ErrServing = errors.New("another daemon is already serving")

// reachable reports whether a process listens at path.
func reachable(path string) bool {
	nc, err := net.DialTimeout("unix", path, probeTimeout)
	if err != nil {
		return false
	}
	nc.Close()
	return true
}

// PeerAt returns the process that called listen on the socket at path. It may
// have died since.
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
	// If nothing answers, the daemon is starting or stopping.
	if peer, peerErr := PeerAt(path); peerErr == nil && peer.PID > 0 {
		return fmt.Errorf("%w (pid %d)", err, peer.PID)
	}
	return err
}

// removeStaleSocket removes a dead socket at the path. The caller holds the
// lock, so a daemon that has bound its socket but does not listen yet is not
// mistaken for a dead one.
func (l *UnixListener) removeStaleSocket() error {
	info, err := os.Lstat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("listen on %s: %w", l.path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("listen on %s: the file is not a socket: move it away, or choose another path", l.path)
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

// bind creates the socket. It makes the socket private before it listens, so
// that no other user can connect at any moment, whatever the umask.
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

// stop refuses new connections, but keeps the path and the lock.
func (l *UnixListener) stop() { _ = l.UnixListener.Close() }

// Close stops listening and removes the socket and the lock. It may be called
// more than once.
func (l *UnixListener) Close() error {
	l.stop()
	return l.release()
}

// release removes the files. It removes the lock file last and unlocks it
// afterwards, so that a process that locks it meanwhile notices; see
// acquireLock.
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

// isTransientAcceptError reports whether an accept error is temporary.
func isTransientAcceptError(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED)
}

// hungUp reports whether the peer of a socket has closed both directions, not
// only its sending side, or whether the read end of a pipe is closed. An end
// that is closed on this side counts too.
func hungUp(end syscall.Conn) bool {
	raw, err := end.SyscallConn()
	if err != nil {
		return true
	}
	hung := true
	_ = raw.Control(func(fd uintptr) { // fails only on a closed connection
		poll := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(poll, 0)
		hung = err == nil && poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return hung
}

// admit serves a connection if its peer is the daemon's own user or root.
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
	if err == nil && s.cfg.RefusesPeer != nil {
		err = s.cfg.RefusesPeer(actor.PID)
	}
	if err != nil {
		s.refuse(nc, actor, err)
		return
	}
	_ = uc.SetWriteBuffer(sendBufferBytes) // only affects the speed of streams
	actor.Scope = access.ScopeAdmin        // the peer could replace the daemon anyway
	l := newSocketLink(uc, s.cfg.Heartbeats)
	_ = s.run(ctx, actor, l.link()) // errors of one connection do not affect others
	l.beats.Wait()
}

// sendBufferBytes is how much a connection may have in transit: some chunks of
// a stream, so that its writer and its reader need not take turns. The kernel
// allocates the memory only while there is something to send, and limits it.
const sendBufferBytes = 1 << 20

func allowed(peer, self int) error {
	if peer == self || peer == 0 {
		return nil
	}
	return fmt.Errorf("uid %d may not use the daemon of uid %d", peer, self)
}
