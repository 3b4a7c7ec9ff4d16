package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/printable"
)

// printExecLog prints a part of the output of a command.
func (a *app) printExecLog(ctx context.Context, c *client.Client, id string, part logPart) error {
	exec, err := c.ExecInfo(ctx, api.ExecParams{ExecID: id})
	if err != nil {
		return err
	}
	o := outputCopier{client: c, to: a.chunks(), params: api.ExecOutputParams{ExecID: id, Times: true}, follow: part.follow}
	if a.json {
		o.to = jsonLines{a.stdout}
	}
	if !part.since.time.IsZero() && exec.State != api.ExecQueued { // what is queued begins later
		o.to = &sinceSink{to: o.to, from: part.since.time.Sub(exec.StartedAt.Time).Milliseconds()}
	}
	if part.tail.given {
		if o.params.From, err = lastLines(ctx, c, exec, part.tail.value); err != nil {
			return err
		}
	}
	_, err = o.copy(ctx)
	return err
}

// jsonLines prints chunks as JSON, one a line.
type jsonLines struct{ to io.Writer }

func (j jsonLines) write(chunk api.Chunk) error {
	raw, err := json.Marshal(chunk)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(j.to, "%s\n", printable.JSON(raw)); err != nil {
		return &writeError{err}
	}
	return nil
}

// sinceSink passes on the chunks that were written at a time or later. A gap has no
// time: it belongs to what came before.
type sinceSink struct {
	to    chunkSink
	from  int64 // ms since the command began
	begun bool
}

func (s *sinceSink) write(chunk api.Chunk) error {
	s.begun = s.begun || s.from <= 0 || chunk.AtMS != nil && *chunk.AtMS >= s.from
	if !s.begun {
		return nil
	}
	return s.to.write(chunk)
}

const (
	// firstTail is how much of the end of an output is looked through for its last
	// lines, and tailFactor how much more if that is too little. Most calls ask for
	// some dozens of lines.
	firstTail  = 64 << 10
	tailFactor = 16
)

// lastLines returns the offset at which the last lines of an output begin. It reads
// the output from its end, which may be all that is wanted of it.
func lastLines(ctx context.Context, c outputClient, exec *api.ExecResult, count int) (int64, error) {
	end := exec.StdoutBytes + exec.StderrBytes
	if count == 0 {
		return end, nil
	}
	for size := int64(firstTail); ; size *= tailFactor {
		from := max(0, end-size)
		found := lineFinder{limit: count, atStart: from == 0}
		params := api.ExecOutputParams{ExecID: exec.ExecID, From: from}
		for params.From < end {
			params.MaxBytes = new(min(pollBytes, end-params.From))
			got, err := c.Output(ctx, params)
			if err != nil {
				return 0, err
			}
			for _, chunk := range got.Chunks {
				if err := found.write(chunk); err != nil {
					return 0, err
				}
			}
			if got.Next <= params.From {
				break
			}
			params.From = got.Next
		}
		switch {
		case len(found.starts) == count:
			return found.starts[0], nil
		case from == 0:
			return 0, nil
		}
	}
}

// lineFinder finds where the last lines of an output begin.
type lineFinder struct {
	limit   int
	atStart bool    // the next byte begins a line
	starts  []int64 // offsets, at most limit of them
}

func (f *lineFinder) write(chunk api.Chunk) error {
	data, err := chunk.Content()
	if err != nil {
		return err
	}
	for at := 0; at < len(data); {
		if f.atStart {
			if f.starts = append(f.starts, chunk.Offset+int64(at)); len(f.starts) > f.limit {
				f.starts = f.starts[1:]
			}
		}
		line := bytes.IndexByte(data[at:], '\n')
		if f.atStart = line >= 0; !f.atStart {
			return nil
		}
		at += line + 1
	}
	return nil
}
