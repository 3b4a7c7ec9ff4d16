package cli

import (
	"context"
	"io"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/cast"
)

// record writes the output of an exec as a recording: what exists now, or with
// follow everything until the command ends.
func (a *app) record(ctx context.Context, c *client.Client, exec string, follow bool) error {
	info := func() (*api.ExecResult, error) { return c.ExecInfo(ctx, api.ExecParams{ExecID: exec}) }
	r := &recording{info: info, stdout: a.stdout}
	if !follow {
		now, err := info()
		if err != nil {
			return err
		}
		if now.State == api.ExecQueued {
			return localError{api.Errorf(api.CodeInvalidRequest, "nothing to record yet: the command has not started").
				WithHint("use --follow to wait for it")}
		}
	}
	o := outputCopier{client: c, to: r, params: api.ExecOutputParams{ExecID: exec, Times: true}, follow: follow}
	result, err := o.copy(ctx)
	if err != nil {
		return err
	}
	return r.end(result)
}

// recording starts its cast with the first chunk, or at the end: a queued
// command has no start time before.
type recording struct {
	info   func() (*api.ExecResult, error)
	stdout io.Writer
	cast   *cast.Writer // nil until the first chunk
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

// end finishes the recording; result is nil if the exec is still running.
func (r *recording) end(result *api.ExecResult) error {
	if err := r.begin(); err != nil || result == nil {
		return err
	}
	return r.cast.End(result)
}

// stdoutWriter turns write errors into writeError, for packages that write our
// output.
type stdoutWriter struct{ w io.Writer }

func (o stdoutWriter) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		return n, &writeError{err}
	}
	return n, nil
}
