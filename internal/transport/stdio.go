package transport

import (
	"context"
	"io"
	"os"
	"syscall"

	"github.com/terminal-runtime/trl/internal/access"
)

// ServeStdio serves one connection whose requests come from in and whose
// answers go to out. At the end of in, the requests that were read are still
// answered, `printf '…\n' | trl …` is a client too, unless out is a file that
// shows that nobody reads it any more: then they are cancelled. It returns when
// the connection has ended, and closes in and out if they can be closed.
//
// The process must take note of SIGPIPE (signal.Notify or signal.Ignore), or a
// parent that goes away kills it at the next answer, before it can clean up.
//
// A read of in that no close can interrupt, as of a terminal, is left behind:
// it ends with the process.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	// The pipe is there because only its reader can always be told to stop.
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
					_ = c.Close() // a second close is harmless, and nobody is left to tell
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
