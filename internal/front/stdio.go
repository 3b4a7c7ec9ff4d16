package front

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// serveStdio serves the one connection. At the end of the input it returns when all
// requests are answered. When the reader of stdout is gone it returns immediately: a
// running command must not keep the daemon alive then.
func (f *Front) serveStdio(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A duplicate, because the server closes stdout when it is done.
	out, err := unix.FcntlInt(f.cfg.Stdout.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	watched := os.NewFile(uintptr(out), "stdout")
	served := make(chan struct{})
	watching := f.cfg.Go("watch stdout", func() {
		defer watched.Close()
		watchReader(watched, served, cancel)
	})
	if !watching {
		_ = watched.Close() // nothing was written
	}
	ended := make(chan error, 1)
	serving := f.cfg.Go("serve stdio", func() {
		ended <- f.server.ServeStdio(ctx, f.cfg.Stdin, f.cfg.Stdout)
		close(served)
	})
	if !watching || !serving {
		return nil // the shutdown has begun
	}
	select {
	case err := <-ended:
		return unlessClosed(err)
	case <-ctx.Done():
		return nil // the reader is gone; a running command ends with its session
	}
}

// readerPoll is how often the daemon checks that the reader of stdout is still
// there.
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
		// A socket shows POLLHUP only when both directions are closed.
		poll := []unix.PollFd{{Fd: int32(out.Fd())}}
		if _, err := unix.Poll(poll, 0); err == nil && poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			gone()
			return
		}
	}
}
