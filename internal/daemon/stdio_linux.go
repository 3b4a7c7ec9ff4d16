package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/transport"
)

// serveStdio serves the one connection. It returns at the end of the input
// when what was asked has been answered, and at once when nobody is left to
// read answers: then a command that runs must not keep the daemon.
func (d *daemon) serveStdio(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A descriptor of its own: the server closes stdout when it is done.
	out, err := unix.FcntlInt(d.opts.Stdout.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	watched := os.NewFile(uintptr(out), "stdout")
	defer watched.Close()
	served := make(chan struct{})
	watching := d.tasks.start("watch stdout", func() { watchReader(watched, served, cancel) })
	ended := make(chan error, 1)
	serving := d.tasks.start("serve stdio", func() {
		ended <- d.server.ServeStdio(ctx, d.opts.Stdin, d.opts.Stdout)
		close(served)
	})
	if !watching || !serving {
		return nil // the shutdown has begun
	}
	select {
	case err := <-ended:
		return unlessClosed(err)
	case <-ctx.Done():
		return nil // the reader is gone; a command that runs ends with its session
	}
}

// stdioGrace is what commands have to end when their one client is gone.
const stdioGrace = time.Second

// readerPoll is how soon it is noticed that nobody reads the answers any more.
const readerPoll = 250 * time.Millisecond

// watchReader calls gone when the other end of a pipe or socket is closed.
func watchReader(out *os.File, served <-chan struct{}, gone func()) {
	tick := time.NewTicker(readerPoll)
	defer tick.Stop()
	for {
		select {
		case <-served:
			return
		case <-tick.C:
		}
		// A half-closed socket shows POLLHUP only when both halves are.
		poll := []unix.PollFd{{Fd: int32(out.Fd())}}
		if _, err := unix.Poll(poll, 0); err == nil && poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			gone()
			return
		}
	}
}

// unlessClosed drops the errors with which serving ends because it was told to.
func unlessClosed(err error) error {
	if errors.Is(err, transport.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
