package exec

import (
	"slices"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/journal"
)

// maxResizes bounds the sizes that are kept of one exec: more than a person makes
// by dragging a window. Of those that come later only the last is kept.
const maxResizes = 256

// SetInitialSize records the size of the terminal when the exec begins.
func (e *Exec) SetInitialSize(size api.TTYSize) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.res.TTY = &size
}

// addResize records that the terminal has another size. The caller makes sure that
// no byte is appended meanwhile.
func (e *Exec) addResize(size api.TTYSize) {
	offset := e.journal.Size()
	e.mu.Lock()
	defer e.mu.Unlock()
	r := resize{offset: offset, at: time.Since(e.began), size: size}
	if n := len(e.sizes); n > 0 && (e.sizes[n-1].offset == offset || n == maxResizes) {
		e.sizes[n-1] = r // nothing was shown in the size before
		return
	}
	e.sizes = append(e.sizes, r)
}

// resizes returns the resizes from an offset on, and when the last one before that
// was.
func (e *Exec) resizes(from int64) (later []resize, before time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, r := range e.sizes {
		if r.offset >= from {
			return slices.Clone(e.sizes[i:]), before
		}
		before = r.at
	}
	return nil, before
}

// timedChunks returns journal chunks as api chunks, cut where time passed, each
// with when it came, and with the sizes of the terminal between them. A resize is
// sent with the output that follows it, so a reader that goes on from next gets it
// once.
func (e *Exec) timedChunks(segs []journal.Chunk, wanted func(journal.Stream) bool) []api.Chunk {
	chunks := []api.Chunk{}
	if len(segs) == 0 {
		return chunks
	}
	resizes, at := e.resizes(segs[0].Offset) // at is when the last chunk came
	tellSize := func() {
		r := resizes[0]
		resizes = resizes[1:]
		at = max(at, r.at)
		chunks = append(chunks, api.Chunk{
			Type: api.ChunkResize, Offset: r.offset, Next: r.offset, AtMS: milliseconds(at), TTY: &r.size,
		})
	}
	for _, seg := range segs {
		if seg.Gap > 0 {
			for len(resizes) > 0 && resizes[0].offset < seg.End() {
				tellSize()
			}
			c, _ := chunkOf(seg, wanted, api.ViewRaw)
			chunks = append(chunks, c)
			continue
		}
		marks := e.journal.Marks(seg.Offset, seg.End())
		// whole returns where to cut so that a character comes with its last byte.
		whole := func(offset int64) int64 {
			if offset <= seg.Offset || offset >= seg.End() {
				return offset
			}
			return seg.Offset + int64(wholeEnd(seg.Data[:offset-seg.Offset]))
		}
		for rest := seg; len(rest.Data) > 0; {
			for len(resizes) > 0 && whole(resizes[0].offset) <= rest.Offset {
				tellSize()
			}
			for len(marks) > 0 && whole(marks[0].Offset) <= rest.Offset {
				at = max(at, marks[0].At)
				marks = marks[1:]
			}
			piece := rest
			if len(marks) > 0 {
				piece.Data = piece.Data[:whole(marks[0].Offset)-rest.Offset]
			}
			if len(resizes) > 0 {
				piece.Data = piece.Data[:min(int64(len(piece.Data)), whole(resizes[0].offset)-rest.Offset)]
			}
			if c, ok := chunkOf(piece, wanted, api.ViewRaw); ok {
				c.AtMS = milliseconds(at)
				chunks = append(chunks, c)
			}
			rest.Offset, rest.Data = piece.End(), rest.Data[len(piece.Data):]
		}
	}
	return chunks
}

func milliseconds(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

// Resized records and persists that the terminal has another size.
func (e *Exec) Resized(size api.TTYSize) {
	e.addResize(size)
	e.Persist()
}
