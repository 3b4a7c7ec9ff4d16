package cli

import (
	"context"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// outputCalls is what copying output needs of a client.
type outputClient interface {
	Output(context.Context, api.ExecOutputParams) (*api.ExecOutputResult, error)
	ExecInfo(context.Context, api.ExecParams) (*api.ExecResult, error)
}

// followed copies the output of an exec as it comes, and returns how it ended
// and how many bytes quota had dropped before they were copied. only names the
// stream that is wanted; empty is all.
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
		missing += chunk.Bytes // only a gap has them
	}
	return st.Result(), missing, nil
}

const (
	// pollWait is how long one question for more output waits at the daemon.
	// Longer would gain nothing: an empty answer is a few hundred bytes.
	pollWait = 30_000 // ms
	// pollBytes is how much one answer carries. It is one JSON object, which
	// both sides hold in memory.
	pollBytes = 1 << 20
)

// chunkSink is where chunks of output go.
type chunkSink interface{ write(chunk api.Chunk) error }

// output copies the output of one exec.
type outputCopier struct {
	client outputClient
	to     chunkSink
	params api.ExecOutputParams // From moves on
	follow bool                 // until the command has ended; else what is there

	missing int64 // bytes that quota had dropped before they were copied
}

// copy writes the output, and returns the result of a command that has ended.
// It does not wait for processes that the command has left running and that
// still hold its output: what they write after its end is not the command's.
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
			o.missing += chunk.Bytes // only a gap has them
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
