package journal

import (
	"fmt"
	"os"
)

// maxRead bounds what one Read returns whatever the limit is, because the limit
// may come from a client. It is plenty for one step of a stream.
const maxRead = 1 << 20

// Chunk is a range of a journal: bytes of one stream, or a gap.
type Chunk struct {
	Stream Stream
	Offset int64  // of the first byte
	Data   []byte // owned by the caller
	Gap    int64  // if not 0: number of bytes from Offset on that were dropped; Data is nil and Stream meaningless
}

// End returns the offset after the chunk.
func (c Chunk) End() int64 { return c.Offset + int64(len(c.Data)) + c.Gap }

// Read returns the chunks from offset on, in order, with at most limit bytes of
// data (at least 1 and at most 1 MiB, whatever limit is). Dropped bytes are one
// Gap chunk that ends where bytes are held again. next is the offset for the
// following Read. The list is empty only if offset is at or past Size; a
// negative offset reads from 0.
//
// The error is ErrReleased, or a disk error.
func (j *Journal) Read(offset int64, limit int) (chunks []Chunk, next int64, err error) {
	return j.read(offset, limit, nil)
}

// ReadInto is Read with at most len(buf) bytes, which the chunks point into: a
// reader that goes through gigabytes creates no garbage.
func (j *Journal) ReadInto(offset int64, buf []byte) (chunks []Chunk, next int64, err error) {
	return j.read(offset, len(buf), buf)
}

func (j *Journal) read(offset int64, limit int, into []byte) (chunks []Chunk, next int64, err error) {
	offset, limit = clamp(offset, 0, never), int(clamp(int64(limit), 1, maxRead))
	j.mu.Lock()
	if j.released {
		j.mu.Unlock()
		return nil, offset, ErrReleased
	}
	v := j.view()
	chunks, rest, next := j.plan(offset, limit, into)
	j.mu.Unlock()

	for _, r := range rest {
		if err := v.read(r.dst, r.offset); err != nil {
			return nil, offset, j.readError(err)
		}
	}
	g, err := j.overtaken(&v)
	if err != nil {
		return nil, offset, err
	}
	if len(chunks) > 0 && next > g.start {
		chunks, next = cut(chunks, g), clamp(next, g.end, never)
	}
	return chunks, next, nil
}

func clamp(v, low, high int64) int64 { return max(low, min(v, high)) }

// unread is a part of a result that must still be read from the file.
type unread struct {
	dst    []byte
	offset int64
}

// plan lays out the chunks from offset on, with at most limit bytes of data.
// Data from memory is in place; rest is what must still be read from the file,
// before the gap and after it. The caller must hold mu.
func (j *Journal) plan(offset int64, limit int, into []byte) (chunks []Chunk, rest [2]unread, next int64) {
	next = offset
	if offset >= j.size {
		return nil, rest, next
	}
	size := min(int64(limit), j.size-offset)
	if int64(len(into)) < size {
		into = make([]byte, size)
	}
	buf := into[:size]
	used := 0         // bytes of buf
	stretch := offset // offset of the contiguous bytes at the end of buf[:used]
	flush := func() {
		n := int(next - stretch)
		u := unread{j.takeMemory(buf[used-n:used], stretch), stretch}
		rest[0], rest[1] = rest[1], u
	}
	for i := j.runAt(offset); i < j.runs() && used < len(buf); i++ {
		st, start, end := j.run(i)
		if start > next {
			flush()
			chunks = append(chunks, Chunk{Offset: next, Gap: start - next})
			next, stretch = start, start
		}
		n := int(min(end-next, int64(len(buf)-used)))
		if n <= 0 {
			continue
		}
		if k := len(chunks) - 1; k >= 0 && chunks[k].Gap == 0 && chunks[k].Stream == st {
			// The head's last run and the tail's first may be of the same
			// stream.
			from := used - len(chunks[k].Data)
			chunks[k].Data = buf[from : used+n : used+n]
		} else {
			chunks = append(chunks, Chunk{Stream: st, Offset: next, Data: buf[used : used+n : used+n]})
		}
		used, next = used+n, next+int64(n)
	}
	flush()
	if len(chunks) == 0 {
		// The whole tail was dropped for a write in progress.
		chunks, next = append(chunks, Chunk{Offset: next, Gap: j.size - next}), j.size
	}
	return chunks, rest, next
}

// cut replaces the part of chunks that lies in g by one gap.
func cut(chunks []Chunk, g gap) []Chunk {
	out := make([]Chunk, 0, len(chunks)+2)
	from := chunks[0].Offset
	part := func(s Chunk, start, end int64) {
		if start, end = max(start, s.Offset), min(end, s.End()); start < end && s.Gap == 0 {
			out = append(out, Chunk{Stream: s.Stream, Offset: start, Data: s.Data[start-s.Offset : end-s.Offset]})
		}
	}
	for _, s := range chunks {
		part(s, from, g.start)
	}
	if from < g.end {
		start := max(from, g.start)
		out = append(out, Chunk{Offset: start, Gap: g.end - start})
	}
	for _, s := range chunks {
		part(s, g.end, never)
	}
	return out
}

// runs returns how many runs the index has, head and tail together.
func (j *Journal) runs() int {
	if j.spill == nil {
		return j.head.n
	}
	return j.head.n + j.spill.tail.n
}

// run returns the i-th run: its stream, its first offset and the offset after
// its last byte. The caller must hold mu.
func (j *Journal) run(i int) (st Stream, start, end int64) {
	x, end, from := &j.head, j.headEnd(), int64(0)
	if i >= x.n {
		i -= x.n
		x, end, from = &j.spill.tail, j.size, j.spill.gap.end
	}
	if i+1 < x.n {
		end = x.at(i + 1).start()
	}
	return x.at(i).stream(), max(x.at(i).start(), from), end
}

// runAt returns the number of the run that holds offset; if offset was dropped,
// that of the run after the gap or one before. The caller must hold mu.
func (j *Journal) runAt(offset int64) int {
	if offset < j.headEnd() {
		return j.head.find(offset)
	}
	return j.head.n + max(j.spill.tail.find(offset), 0)
}

// headEnd returns where the runs of the head end. The caller must hold mu.
func (j *Journal) headEnd() int64 {
	switch sp := j.spill; {
	case sp == nil:
		return j.size
	case !sp.gap.none():
		return sp.gap.start
	default:
		return min(sp.tailBase(), j.size)
	}
}

// view describes where in a file a journal's bytes were at one moment. It can
// be read from without a lock, but bytes at the start of the tail may have been
// overwritten meanwhile: the reader must check the gap again afterwards.
type view struct {
	store    *Store
	bounds   bounds
	file     *os.File
	ringBase int64
	ringPos  int64
	stopBase int64 // bytes from here on are in the memory ring
	gap      gap
}

// ringSize returns the capacity of the file's ring in bytes.
func (v *view) ringSize() int64 { return v.bounds.headQuota + v.bounds.ringQuota - v.ringPos }

// place returns where in the file the byte at offset is, and how many bytes
// from there on are contiguous in the file.
func (v *view) place(offset int64) (pos, room int64) {
	if offset < v.ringBase {
		return offset, v.ringBase - offset
	}
	in := (offset - v.ringBase) % v.ringSize()
	return v.ringPos + in, v.ringSize() - in
}

// view returns the current view. The caller must hold mu.
func (j *Journal) view() view {
	v := view{store: j.store, bounds: j.bounds, stopBase: never}
	if sp := j.spill; sp != nil {
		v.file, v.ringBase, v.ringPos, v.gap = sp.file, sp.ringBase, sp.ringPos, sp.gap
		if sp.ring != nil {
			v.stopBase = sp.stopBase
		}
	}
	return v
}

// read fills dst with the bytes from offset on, none of which is in memory.
func (v *view) read(dst []byte, offset int64) error {
	for len(dst) > 0 {
		pos, room := v.place(offset)
		n := int(min(room, int64(len(dst))))
		if _, err := v.file.ReadAt(dst[:n], pos); err != nil {
			return err
		}
		dst, offset = dst[n:], offset+int64(n)
	}
	return nil
}

// overtaken returns the gap if it has grown since v was taken and v has a file.
// Then bytes that were read from within the gap may be newer ones: the gap
// grows before they are written, so it covers every one of them. Otherwise it
// returns a gap that lies after everything.
func (j *Journal) overtaken(v *view) (gap, error) {
	if v.file != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.released {
			return gap{}, ErrReleased // the gap is gone too
		}
		if g := j.spill.gap; g != v.gap {
			return g, nil
		}
	}
	return gap{never, never}, nil
}

// readError converts the error of a failed read from the file: Release closes
// the file while readers may use it.
func (j *Journal) readError(err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.released {
		return ErrReleased
	}
	return fmt.Errorf("journal: read spill file: %w", err)
}
