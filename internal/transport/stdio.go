package transport

import (
	"context"
	"io"
	"os"
	"syscall"

	"github.com/terminal-runtime/trl/internal/access"
)

// ServeStdio serves one connection that reads requests from in and writes
// answers to out. At the end of in, the requests that were read are still
// answered, since `printf '…\n' | trl …` is a client too; but if out is a file
// that shows that its reader is gone, they are cancelled. ServeStdio returns
// when the connection has ended, and closes in and out if they are closers.
//
// The process must handle SIGPIPE (signal.Notify or signal.Ignore), or a parent
// that exits kills it at the next answer, before it can clean up.
//
// A read of in that closing does not interrupt, such as from a terminal, is
// left behind: it ends with the process.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	// The pipe is needed because only its reader can always be stopped.
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
	}()
	l := link{
		Reader:   r,
		Writer:   out,
		stopRead: func() { r.CloseWithError(io.EOF) },
		close: func() error {
			r.CloseWithError(io.ErrClosedPipe)
			for _, end := range []any{in, out} {
				if c, ok := end.(io.Closer); ok {
					_ = c.Close() // a second close is harmless
				}
			}
			return nil
		},
	}
	if end, ok := out.(syscall.Conn); ok {
		l.hungUp = func() bool { return hungUp(end) }
	}
	return s.run(ctx, access.Actor{UID: os.Geteuid(), PID: os.Getppid(), Transport: "stdio", Scope: access.ScopeAdmin}, l)
}
