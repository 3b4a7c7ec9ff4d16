package cli

import (
	"context"
	"io"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/cast"
)

// record writes the output of an exec as a recording: what there is of it now,
// or with follow all of it, as it comes.
func (a *app) record(ctx context.Context, exec string, follow bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	info := func() (*api.ExecResult, error) { return c.ExecInfo(ctx, api.ExecParams{ExecID: exec}) }
	r := &recording{info: info, stdout: a.stdout}
	if !follow {
		now, err := info()
		if err != nil {
			return err
		}
		if now.State == api.ExecQueued {
			return localError{api.Errorf(api.CodeInvalidRequest, "there is nothing to record: the command has not begun").
				WithHint("--follow waits for it")}
		}
	}
	o := outputCopier{client: c, to: r, params: api.ExecOutputParams{ExecID: exec, Times: true}, follow: follow}
	result, err := o.copy(ctx)
	if err != nil {
		return err
	}
	return r.end(result)
}

// recording begins with its first chunk, or at the end: before, a command that
// waits for its turn has no start.
type recording struct {
	info   func() (*api.ExecResult, error)
	stdout io.Writer
	cast   *cast.Writer // nil until it has begun
}

func (r *recording) begin() error {
	if r.cast != nil {
		return nil
	}
	exec, err := r.info()
	if err != nil {
		return err
	}
	r.cast, err = cast.NewWriter(stdoutWriter{r.stdout}, exec)
	return err
}

func (r *recording) write(chunk api.Chunk) error {
	if err := r.begin(); err != nil {
		return err
	}
	return r.cast.Chunk(chunk)
}

// end ends the recording of an exec that is over; result is nil if it is not.
func (r *recording) end(result *api.ExecResult) error {
	if err := r.begin(); err != nil || result == nil {
		return err
	}
	return r.cast.End(result)
}

// outputOf is our output to who writes it elsewhere: its errors say what failed.
type stdoutWriter struct{ w io.Writer }

func (o stdoutWriter) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		return n, &writeError{err}
	}
	return n, nil
}
