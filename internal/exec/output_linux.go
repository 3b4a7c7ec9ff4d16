package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/journal"
)

// An answer is one JSON object, so its size is bounded.
const (
	defaultOutput = 256 << 10 // of exec.output, if not set
	maxOutput     = 1 << 20   // of exec.output
	maxExcerpt    = 4 << 20   // of each stream in a result
)

// ResultWithOutput returns the result with output: each stream as a whole if it
// fits into most bytes, else its head and tail with a line between them that says
// how much is omitted.
func (e *Exec) ResultWithOutput(most int64) (*api.ExecResult, error) {
	r := e.Result()
	most = min(most, maxExcerpt)
	var err error
	var cut [2]bool
	stdout := journal.Stdout
	if e.term != nil {
		stdout = journal.TTY // a terminal has one stream
	}
	if r.Stdout, r.StdoutEncoding, cut[0], err = e.excerpt(stdout, most); err != nil {
		return nil, err
	}
	if r.Stderr, r.StderrEncoding, cut[1], err = e.excerpt(journal.Stderr, most); err != nil {
		return nil, err
	}
	r.Truncated = cut[0] || cut[1]
	return r, nil
}

func (e *Exec) excerpt(st journal.Stream, most int64) (data, encoding string, truncated bool, err error) {
	if e.journal.Total(st) == 0 {
		return "", "", false, nil
	}
	head, tail, omitted, err := e.journal.HeadTail(st, int(most+1)/2, int(most)/2)
	if err != nil {
		return "", "", false, e.errOutputGone(err)
	}
	if omitted == 0 && len(tail) == 0 {
		data, encoding = api.EncodeBytes(head)
		return data, encoding, false, nil
	}
	if most == 0 {
		return "", "", true, nil
	}
	// Characters are not cut: their halves are omitted too.
	h := wholeEnd(head)
	t := wholeStart(tail)
	omitted += int64(len(head)-h) + int64(t)
	note := e.omittedLine(omitted, e.journal.Dropped(st))
	whole := slices.Concat(head[:h], []byte(note), tail[t:])
	if data, encoding = api.EncodeBytes(whole); encoding != "" { // binary output has no place for a note
		data, encoding = api.EncodeBytes(slices.Concat(head, tail))
	}
	return data, encoding, true, nil
}

// omittedLine returns the line that stands for omitted bytes of a stream.
func (e *Exec) omittedLine(bytes, dropped int64) string {
	where := "exec.output with exec_id " + e.id + " has "
	switch {
	case dropped == 0:
		where += "them"
	case dropped >= bytes:
		where = "quota has dropped them"
	default:
		where += fmt.Sprintf("all but %d that quota has dropped", dropped)
	}
	return fmt.Sprintf("\n[… %d bytes left out; %s …]\n", bytes, where)
}

func (e *Exec) errOutputGone(err error) error {
	if !errors.Is(err, journal.ErrReleased) {
		return api.Errorf(api.CodeInternal, "read the output: %w", err)
	}
	return api.Errorf(api.CodeOutputGone, "the output of this exec is no longer retained").With("exec_id", e.id).
		With("first_offset", e.journal.Size()).WithHint("run the command again; exec_retention_ms and max_execs limit how long output is retained")
}

// Output answers exec.output.
func (e *Exec) Output(ctx context.Context, params api.ExecOutputParams) (*api.ExecOutputResult, error) {
	streams, most, err := checkOutput(params)
	if err != nil {
		return nil, err
	}
	if params.Stream == api.ChunkStderr && e.merged() {
		return nil, api.Errorf(api.CodeInvalidParams, "the command has no separate stderr: it was run with merge").With("field", "stream").
			WithHint("leave stream out: stdout has both")
	}
	if err := e.CheckFrom(params.From); err != nil {
		return nil, err
	}
	if params.WaitMS > 0 {
		if err := e.awaitOutput(ctx, params.From, time.Duration(params.WaitMS)*time.Millisecond); err != nil {
			return nil, err
		}
	}
	// The order matters: if it has ended now, the read below has everything that
	// the command itself wrote.
	over, closed := e.IsDone(), e.journal.Closed()
	segs, next, err := e.journal.Read(params.From, most)
	if err != nil {
		return nil, e.errOutputGone(err)
	}
	segs, next = trim(segs, next, closed, params.View == api.ViewText)
	res := &api.ExecOutputResult{ExecID: e.id, Chunks: []api.Chunk{}, Next: next, State: e.Result().State}
	if !over && res.State == api.ExecExited {
		res.State = api.ExecRunning // it ended after the check above; the next call says so
	}
	res.Closed = over && closed && next == e.journal.Size()
	if params.Times {
		res.Chunks = e.timedChunks(segs, streams)
		return res, nil
	}
	for _, seg := range segs {
		if c, ok := chunkOf(seg, streams, params.View); ok {
			res.Chunks = append(res.Chunks, c)
		}
	}
	return res, nil
}

// CheckFrom returns an error if an offset is past the end of the output.
func (e *Exec) CheckFrom(from int64) error {
	if size := e.journal.Size(); from > size {
		return api.Errorf(api.CodeInvalidParams, "from is past the end of the output").With("field", "from").With("size", size).
			WithHint("continue from next of the last answer")
	}
	return nil
}

// allStreams selects all streams of a journal.
func allStreams(journal.Stream) bool { return true }

func checkOutput(params api.ExecOutputParams) (streams func(journal.Stream) bool, most int, err error) {
	invalid := func(field, hint string) error {
		return api.Errorf(api.CodeInvalidParams, "%s is not valid", field).With("field", field).WithHint("%s", hint)
	}
	most = defaultOutput
	if params.MaxBytes != nil {
		if *params.MaxBytes <= 0 {
			return nil, 0, invalid("max_bytes", "it must be positive")
		}
		most = int(min(*params.MaxBytes, maxOutput))
	}
	if params.From < 0 {
		return nil, 0, invalid("from", "it must not be negative")
	}
	if params.View != "" && params.View != api.ViewRaw && params.View != api.ViewText {
		return nil, 0, invalid("view", `use "raw" or "text"`)
	}
	if params.Times && params.View == api.ViewText {
		return nil, 0, invalid("times", "only raw output has times: leave view out")
	}
	switch params.Stream {
	case "":
		streams = allStreams
	case api.ChunkStdout:
		streams = func(s journal.Stream) bool { return s == journal.Stdout }
	case api.ChunkStderr:
		streams = func(s journal.Stream) bool { return s == journal.Stderr }
	default:
		return nil, 0, invalid("stream", `use "stdout" or "stderr", or leave it out for both`)
	}
	return streams, most, nil
}

// awaitOutput waits for a byte past from, or the end of the exec.
func (e *Exec) awaitOutput(ctx context.Context, from int64, limit time.Duration) error {
	if e.journal.Size() > from || e.IsDone() {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(e.doneCtx, cancel)
	defer stop()
	// An error means that the time is over, or that the exec has ended.
	if e.journal.Wait(wait, from) == nil && e.journal.Closed() && e.journal.Size() <= from {
		<-wait.Done() // the command has closed its output and still runs
	}
	if ctx.Err() != nil {
		return api.Errorf(api.CodeInternal, "the caller stopped waiting: %w", ctx.Err())
	}
	return nil
}
