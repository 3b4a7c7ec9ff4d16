package exec

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/notify"
)

const (
	// streamBytes is how much of a journal a stream reads at once: enough to need
	// few system calls, and all that a stalled reader holds.
	streamBytes = 128 << 10
	// charTimeout is how long the first bytes of a character wait for the rest of
	// it. A program writes a character at once; it can be split where a pipe was
	// full. If the rest takes longer, the bytes are not text.
	charTimeout = 20 * time.Millisecond
)

// NewStream returns a stream that begins at an offset of the output.
func NewStream(id string, e *Exec, from int64) *Stream { return &Stream{id: id, exec: e, at: from} }

// Stream follows the output of an exec for one reader. It pulls: it reads nothing
// more until the reader has taken a chunk, so a slow reader holds one chunk and
// delays nothing else.
type Stream struct {
	id       string
	exec     *Exec
	at       int64              // offset of the next chunk
	waitedAt int64              // where it waited for the rest of a character that did not come
	buf      *[streamBytes]byte // nil while it waits
}

// streamBuffers are shared, so that ten thousand streams that wait hold none.
var streamBuffers = sync.Pool{New: func() any { return new([streamBytes]byte) }}

// releaseBuffer returns the buffer to the pool.
func (st *Stream) releaseBuffer() {
	if st.buf != nil {
		streamBuffers.Put(st.buf)
		st.buf = nil
	}
}

// Feed sends the output as chunks, and then the exit.
func (st *Stream) Feed(ctx context.Context, send func(notify.Notification) error) error {
	st.waitedAt = -1
	defer st.releaseBuffer()
	e := st.exec
	end := int64(-1) // where the command's own output ended, once it has
	for ctx.Err() == nil {
		over := e.IsDone()
		if over && end < 0 {
			end = e.journal.Size() // what it left behind may write forever
		}
		if over && st.at >= end {
			return send(st.chunk(api.Chunk{Type: api.ChunkExit, Offset: st.at, Result: e.Result()}, st.at, nil))
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

// read returns what the journal has from st.at on, without a character that is cut
// at the end while the rest of it can come. What can no longer be read is a gap.
func (st *Stream) read(complete bool) ([]journal.Chunk, int64) {
	j := st.exec.journal
	if st.buf == nil {
		st.buf = streamBuffers.Get().(*[streamBytes]byte)
	}
	segs, next, err := j.ReadInto(st.at, st.buf[:])
	if err != nil {
		if !errors.Is(err, journal.ErrReleased) {
			st.exec.env.cfg.Log.Error("cannot read output", "exec", st.exec.id, "offset", st.at, "error", err)
		}
		size := j.Size()
		if size == st.at {
			return nil, size
		}
		return []journal.Chunk{{Offset: st.at, Gap: size - st.at}}, size
	}
	return trim(segs, next, complete, false)
}

// cut reports whether all there is to send is the beginning of a character that may
// still be completed.
func (st *Stream) cut(segs []journal.Chunk, over bool) bool {
	return !over && len(segs) == 1 && segs[0].Gap == 0 && wholeEnd(segs[0].Data) == 0 &&
		st.waitedAt != st.at && !st.exec.journal.Closed()
}

// wait returns when there is output past an offset, or the exec has ended.
func (st *Stream) wait(ctx context.Context, offset int64, cut bool) {
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
		<-ctx.Done() // the command has closed its output and still runs
	}
}

// chunk completes a chunk that ends before next.
func (st *Stream) chunk(c api.Chunk, next int64, data []byte) *notify.RawChunk {
	c.StreamID, c.ExecID, c.Next = st.id, st.exec.id, next
	return &notify.RawChunk{Chunk: c, Raw: data}
}
