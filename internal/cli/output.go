package cli

import (
	"context"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// outputClient is the part of a client that copying output needs.
type outputClient interface {
	Output(context.Context, api.ExecOutputParams) (*api.ExecOutputResult, error)
	ExecInfo(context.Context, api.ExecParams) (*api.ExecResult, error)
}

// copyStream copies the output of an exec as it arrives. It returns the result
// and the number of bytes that were dropped by a quota before they were copied.
// only selects a stream; "" means all.
func copyStream(st *client.Stream, to chunkWriter, only api.ChunkType) (result *api.ExecResult, missing int64, err error) {
	for chunk, err := range st.Chunks() {
		if err != nil {
			return nil, missing, err
		}
		if chunk.Type == api.ChunkGap || chunk.Type != api.ChunkExit && (only == "" || chunk.Type == only) {
			if err := to.write(*chunk); err != nil {
				return nil, missing, err
			}
		}
		missing += chunk.Bytes // only set in a gap
	}
	return st.Result(), missing, nil
}

const (
	// pollWait is how long one request for more output waits at the daemon.
	// Longer gains nothing: an empty answer is a few hundred bytes.
	pollWait = 30_000 // ms
	// pollBytes is how much one answer carries. It is one JSON object, which
	// both sides hold in memory.
	pollBytes = 1 << 20
)

// chunkSink receives chunks of output.
type chunkSink interface{ write(chunk api.Chunk) error }

// outputCopier copies the output of one exec.
type outputCopier struct {
	client outputClient
	to     chunkSink
	params api.ExecOutputParams // From advances
	follow bool                 // copy until the command ends, not only what is there

	missing int64 // bytes dropped by a quota before they were copied
}

// copy writes the output, and returns the result if the command has ended. It
// does not wait for processes that the command left running and that still hold
// its output: what they write after its end is not the command's.
func (o *outputCopier) copy(ctx context.Context) (*api.ExecResult, error) {
	most := int64(pollBytes)
	o.params.MaxBytes = &most
	if o.follow {
		o.params.WaitMS = pollWait
	}
	var result *api.ExecResult
	for {
		got, err := o.client.Output(ctx, o.params)
		if err != nil {
			return nil, err
		}
		for _, chunk := range got.Chunks {
			if err := o.to.write(chunk); err != nil {
				return nil, err
			}
			o.missing += chunk.Bytes // only set in a gap
		}
		moved := got.Next > o.params.From
		o.params.From = got.Next
		if result == nil && got.State == api.ExecExited {
			if result, err = o.client.ExecInfo(ctx, api.ExecParams{ExecID: o.params.ExecID}); err != nil {
				return nil, err
			}
		}
		switch {
		case result != nil && (!moved || o.params.From >= result.StdoutBytes+result.StderrBytes):
			return result, nil
		case !o.follow && !moved:
			return nil, nil
		}
	}
}
