package session

import (
	"slices"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/journal"
)

// resize says that a terminal has another size from a byte of the journal on.
type resize struct {
	offset int64
	at     time.Duration // since the exec began
	size   api.TTYSize
}

// maxResizes bounds what is kept of one exec: more than a person makes by
// dragging a window about. Of those that come later only the last is known.
const maxResizes = 256

// beginsOn notes the size of the terminal that the exec begins on.
func (e *Exec) setInitialSize(size api.TTYSize) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.res.TTY = &size
}

// resized notes that the terminal has another size. The terminal's owner holds
// its lock, so that no byte comes meanwhile.
func (e *Exec) addResize(size api.TTYSize) {
	offset := e.journal.Size()
	e.mu.Lock()
	defer e.mu.Unlock()
	r := resize{offset: offset, at: time.Since(e.began), size: size}
	if n := len(e.sizes); n > 0 && (e.sizes[n-1].offset == offset || n == maxResizes) {
		e.sizes[n-1] = r // nothing was shown in the one before
		return
	}
	e.sizes = append(e.sizes, r)
}

// resizes are those from an offset on, and when the last before them was.
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

// timed returns segments as chunks that are cut where time passed, each with
// when it came, and between them the sizes of the terminal. A resize is told
// with the output that follows it, so that a reader who goes on from next is
// told once.
func (e *Exec) timedChunks(segs []journal.Chunk, wanted func(journal.Stream) bool) []api.Chunk {
	chunks := []api.Chunk{}
	if len(segs) == 0 {
		return chunks
	}
	resizes, at := e.resizes(segs[0].Offset) // at is when what was told last came
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
		// whole is where to cut so that a character comes with its last byte.
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
