package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/journal"
)

const (
	// streamBytes is how much of a journal one step of a stream takes: enough
	// that its system calls are few, and all that a reader which stalls holds.
	streamBytes = 128 << 10
	// charPatience is how long the first bytes of a character wait for the rest
	// of it. A program writes a character at once; it may end up in two pieces
	// where a pipe was full. Longer alone, they are not text.
	charTimeout = 20 * time.Millisecond
)

// Stream runs a command as Run does, and answers when it has been accepted.
// What it writes, and how it ends, follows in the feed.
func (p *Pool) Stream(ctx context.Context, params api.ExecStreamParams) (*api.ExecStreamResult, api.Feed, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, nil, err
	}
	e, err := s.execute(ctx, params.ExecCommand, streaming)
	if err != nil {
		return nil, nil, err
	}
	st := &stream{id: newID("st-"), exec: e}
	return &api.ExecStreamResult{ExecID: e.id, StreamID: st.id}, st.feed, nil
}

// Attach follows an exec from an offset on, whether it runs or has ended.
func (p *Pool) Attach(ctx context.Context, params api.ExecAttachParams) (*api.ExecAttachResult, api.Feed, error) {
	e, err := p.exec(params.ExecID)
	if err != nil {
		return nil, nil, err
	}
	if err := e.checkFrom(params.From); err != nil {
		return nil, nil, err
	}
	e.session.trackConnection(ctx)
	st := &stream{id: newID("st-"), exec: e, at: params.From}
	return &api.ExecAttachResult{StreamID: st.id, From: st.at, State: e.result().State}, st.feed, nil
}

// stream is one reader's way through a journal. It pulls: as long as its
// reader does not take a chunk it asks for no other, so all that a slow reader
// holds is one chunk, and nobody waits for it.
type stream struct {
	id       string
	exec     *Exec
	at       int64              // what comes next
	waitedAt int64              // where a cut character was waited for, and did not become whole
	buf      *[streamBytes]byte // nil while it waits
}

// streamBuffers are what streams read into, shared so that ten thousand that
// wait hold none.
var streamBuffers = sync.Pool{New: func() any { return new([streamBytes]byte) }}

// idle gives the buffer back.
func (st *stream) releaseBuffer() {
	if st.buf != nil {
		streamBuffers.Put(st.buf)
		st.buf = nil
	}
}

// feed sends the journal from st.at on as chunks, then the exit.
func (st *stream) feed(ctx context.Context, send func(api.Notification) error) error {
	st.waitedAt = -1
	defer st.releaseBuffer()
	e := st.exec
	leave := e.session.addReader()
	defer leave()
	end := int64(-1) // where the command's own output ended, once it has
	for ctx.Err() == nil {
		over := e.isDone()
		if over && end < 0 {
			end = e.journal.Size() // what it left behind may write more for ever
		}
		if over && st.at >= end {
			return send(st.chunk(api.Chunk{Type: api.ChunkExit, Offset: st.at, Result: e.result()}, st.at, nil))
		}
		segs, next := st.read(over || e.journal.Closed())
		if len(segs) == 0 || st.cut(segs, over) {
			st.releaseBuffer()
			st.wait(ctx, next, len(segs) > 0)
			continue
		}
		for _, seg := range segs {
			c := api.Chunk{Type: chunkTypes[seg.Stream], Offset: seg.Offset}
			if seg.Gap > 0 {
				c.Type, c.Bytes = api.ChunkGap, seg.Gap
			}
			if err := send(st.chunk(c, seg.End(), seg.Data)); err != nil {
				return err
			}
		}
		st.at = next
	}
	return ctx.Err()
}

// read returns what the journal holds from st.at on, without a character that
// is cut at its end while the rest of it can come. What can't be read any more
// is a gap.
func (st *stream) read(complete bool) ([]journal.Chunk, int64) {
	j := st.exec.journal
	if st.buf == nil {
		st.buf = streamBuffers.Get().(*[streamBytes]byte)
	}
	segs, next, err := j.ReadInto(st.at, st.buf[:])
	if err != nil {
		if !errors.Is(err, journal.ErrReleased) {
			st.exec.session.pool.cfg.Log.Error("output can't be read", "exec", st.exec.id, "offset", st.at, "error", err)
		}
		size := j.Size()
		if size == st.at {
			return nil, size
		}
		return []journal.Chunk{{Offset: st.at, Gap: size - st.at}}, size
	}
	return trim(segs, next, complete, false)
}

// cut reports whether all there is to send is the beginning of a character
// that may still become whole.
func (st *stream) cut(segs []journal.Chunk, over bool) bool {
	return !over && len(segs) == 1 && segs[0].Gap == 0 && wholeEnd(segs[0].Data) == 0 &&
		st.waitedAt != st.at && !st.exec.journal.Closed()
}

// wait returns when there is more than up to an offset, or the exec has ended.
func (st *stream) wait(ctx context.Context, offset int64, cut bool) {
	e := st.exec
	if cut {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, charTimeout)
		defer cancel()
		st.waitedAt = st.at
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(e.doneCtx, cancel)
	defer stop()
	if e.journal.Wait(ctx, offset) == nil && e.journal.Closed() && e.journal.Size() <= offset {
		<-ctx.Done() // it has closed its output and runs on
	}
}

// chunk completes a chunk that ends before next.
func (st *stream) chunk(c api.Chunk, next int64, data []byte) *api.RawChunk {
	c.StreamID, c.ExecID, c.Next = st.id, st.exec.id, next
	return &api.RawChunk{Chunk: c, Raw: data}
}
