package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/vt"
)

// An answer is one JSON object, so what it carries is bounded.
const (
	defaultOutput = 256 << 10 // of exec.output, when not told
	maxOutput     = 1 << 20   // of exec.output
	maxExcerpt    = 4 << 20   // of each stream in a result
)

// resultWithOutput adds the output to a result: the whole of each stream if it
// fits, else its head and its tail with a line between them that says how much
// is left out.
func (e *Exec) resultWithOutput(most int64) (*api.ExecResult, error) {
	r := e.result()
	most = min(most, maxExcerpt)
	var err error
	var cut [2]bool
	stdout := journal.Stdout
	if e.session.term != nil {
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
	// Characters are not cut: what is left out grows by the halves.
	h := wholeEnd(head)
	t := wholeStart(tail)
	omitted += int64(len(head)-h) + int64(t)
	note := e.omittedLine(omitted, e.journal.Dropped(st))
	whole := slices.Concat(head[:h], []byte(note), tail[t:])
	if data, encoding = api.EncodeBytes(whole); encoding != "" { // no place for a note
		data, encoding = api.EncodeBytes(slices.Concat(head, tail))
	}
	return data, encoding, true, nil
}

// leftOut is the line that stands for bytes of a stream which a result does not have.
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

// wholeEnd is the length of b without a character that is cut at its end.
func wholeEnd(b []byte) int {
	for i := 1; i <= utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return len(b) - i
			}
			break
		}
	}
	return len(b)
}

// wholeStart is how many bytes at the start of b continue a character that
// began before it.
func wholeStart(b []byte) int {
	for i := 0; i < utf8.UTFMax && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return 0
}

func (e *Exec) errOutputGone(err error) error {
	if !errors.Is(err, journal.ErrReleased) {
		return api.Errorf(api.CodeInternal, "read the output: %w", err)
	}
	return api.Errorf(api.CodeOutputGone, "the output of this exec is no longer kept").With("exec_id", e.id).
		With("first_offset", e.journal.Size()).WithHint("run the command again; exec_retention_ms and max_execs say how long output is kept")
}

// output answers exec.output.
func (e *Exec) output(ctx context.Context, params api.ExecOutputParams) (*api.ExecOutputResult, error) {
	streams, most, err := checkOutput(params)
	if err != nil {
		return nil, err
	}
	if params.Stream == api.ChunkStderr && e.merged() {
		return nil, api.Errorf(api.CodeInvalidParams, "the command has no stderr of its own: it was run with merge").With("field", "stream").
			WithHint("leave stream out: stdout is both")
	}
	if err := e.checkFrom(params.From); err != nil {
		return nil, err
	}
	if params.WaitMS > 0 {
		if err := e.awaitOutput(ctx, params.From, time.Duration(params.WaitMS)*time.Millisecond); err != nil {
			return nil, err
		}
	}
	// The order matters: if it has ended now, what is read below is all that
	// the command itself wrote.
	over, closed := e.isDone(), e.journal.Closed()
	segs, next, err := e.journal.Read(params.From, most)
	if err != nil {
		return nil, e.errOutputGone(err)
	}
	segs, next = trim(segs, next, closed, params.View == api.ViewText)
	res := &api.ExecOutputResult{ExecID: e.id, Chunks: []api.Chunk{}, Next: next, State: e.result().State}
	if !over && res.State == api.ExecExited {
		res.State = api.ExecRunning // it ended after the look above; the next call says so
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

// checkFrom refuses an offset that is not in the output.
func (e *Exec) checkFrom(from int64) error {
	if size := e.journal.Size(); from > size {
		return api.Errorf(api.CodeInvalidParams, "from is past the end of the output").With("field", "from").With("size", size).
			WithHint("go on from the next of the last answer")
	}
	return nil
}

// everything chooses all streams of a journal.
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
		return nil, 0, invalid("from", "it is an offset from 0 on")
	}
	if params.View != "" && params.View != api.ViewRaw && params.View != api.ViewText {
		return nil, 0, invalid("view", `use "raw" or "text"`)
	}
	if params.Times && params.View == api.ViewText {
		return nil, 0, invalid("times", "text is folded over time, so that only raw output has times: leave view out")
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
	if e.journal.Size() > from || e.isDone() {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(e.doneCtx, cancel)
	defer stop()
	// The time may pass before, and the exec may end.
	if e.journal.Wait(wait, from) == nil && e.journal.Closed() && e.journal.Size() <= from {
		<-wait.Done() // it has closed its output and runs on
	}
	if ctx.Err() != nil {
		return api.Errorf(api.CodeInternal, "the caller stopped waiting: %w", ctx.Err())
	}
	return nil
}

// trim holds back a character that is cut at the end of what was read, while
// the rest of it can still come; of text, the whole last line, which may yet
// be rewritten.
func trim(segs []journal.Chunk, next int64, closed, text bool) ([]journal.Chunk, int64) {
	if len(segs) == 0 || closed {
		return segs, next
	}
	last := &segs[len(segs)-1]
	keep := wholeEnd(last.Data)
	if text {
		if i := bytes.LastIndexByte(last.Data, '\n'); i >= 0 {
			keep = i + 1
		}
	}
	if cut := len(last.Data) - keep; cut > 0 && (keep > 0 || len(segs) > 1) {
		last.Data = last.Data[:keep]
		next -= int64(cut)
		if keep == 0 {
			segs = segs[:len(segs)-1]
		}
	}
	return segs, next
}

var chunkTypes = map[journal.Stream]api.ChunkType{
	journal.Stdout: api.ChunkStdout, journal.Stderr: api.ChunkStderr, journal.TTY: api.ChunkTTY,
}

func chunkOf(seg journal.Chunk, wanted func(journal.Stream) bool, view string) (api.Chunk, bool) {
	if seg.Gap > 0 {
		return api.Chunk{Type: api.ChunkGap, Offset: seg.Offset, Bytes: seg.Gap, Next: seg.End()}, true
	}
	if !wanted(seg.Stream) {
		return api.Chunk{}, false
	}
	c := api.Chunk{Type: chunkTypes[seg.Stream], Offset: seg.Offset, Next: seg.End()}
	data := seg.Data
	if view == api.ViewText {
		data = vt.PlainText(data)
	}
	c.Data, c.Encoding = api.EncodeBytes(data)
	return c, true
}
