package journal

import "slices"

// span is a range of bytes of the stream that HeadTail collects. It lies in one
// run, so it is either completely in the memory ring or not at all.
type span struct{ offset, n int64 }

// HeadTail returns the first head and the last tail bytes of one stream, and
// how many bytes of that stream lie between them. If the two cover the whole
// stream, all of it is in h. Bytes of the stream that were dropped because of a
// quota count as omitted, so h may be shorter than head and t shorter than
// tail.
//
// It uses the index and reads only what it returns, however long the journal
// is.
func (j *Journal) HeadTail(st Stream, head, tail int) (h, t []byte, omitted int64, err error) {
	j.mu.Lock()
	if j.released {
		j.mu.Unlock()
		return nil, nil, 0, ErrReleased
	}
	v := j.view()
	total := j.total[st]
	first, last := clamp(int64(head), 0, total), clamp(int64(tail), 0, total)
	torn := j.spill != nil && j.spill.dropped[st] > 0
	whole := !torn && first+last >= total
	nh, nt := first, last
	if whole {
		nh, nt = total, 0
	}
	var few [4]span // most streams have few runs, which then need no allocation
	spans, nh := j.firstSpans(few[:0], st, nh, torn)
	spans, nt = j.lastSpans(spans, st, nt, torn)
	buf := make([]byte, nh+nt)
	at := int64(0)
	for _, s := range spans {
		j.takeMemory(buf[at:at+s.n], s.offset)
		at += s.n
	}
	j.mu.Unlock()

	if err := v.collect(buf, spans); err != nil {
		return nil, nil, 0, j.readError(err)
	}
	g, err := j.overtaken(&v)
	if err != nil {
		return nil, nil, 0, err
	}
	h, t = buf[:nh:nh], buf[nh:]
	if lo, hi := lost(spans, g); lo < hi {
		keep, from := nh, nh
		if whole {
			keep, from = first, total-last // planned as one piece, but a gap has appeared since
		}
		h, t = tear(buf, lo, hi, keep, from)
	}
	return h, t, total - int64(len(h)) - int64(len(t)), nil
}

// firstSpans appends the spans of the first n bytes of st to spans, and returns
// how many of these bytes are held. For a torn stream, one with dropped bytes,
// only those before the gap count. The caller must hold mu.
func (j *Journal) firstSpans(spans []span, st Stream, n int64, torn bool) ([]span, int64) {
	runs := j.runs()
	if torn {
		runs = j.head.n
	}
	held := int64(0)
	for i := 0; i < runs && held < n; i++ {
		if s, start, end := j.run(i); s == st && start < end {
			k := min(end-start, n-held)
			spans = append(spans, span{start, k})
			held += k
		}
	}
	return spans, held
}

// lastSpans is firstSpans for the last n bytes, and those after the gap.
func (j *Journal) lastSpans(spans []span, st Stream, n int64, torn bool) ([]span, int64) {
	stop := 0
	if torn {
		stop = j.head.n
	}
	held, from := int64(0), len(spans)
	for i := j.runs() - 1; i >= stop && held < n; i-- {
		if s, start, end := j.run(i); s == st && start < end {
			k := min(end-start, n-held)
			spans = append(spans, span{end - k, k})
			held += k
		}
	}
	slices.Reverse(spans[from:])
	return spans, held
}

// collect reads spans, one after the other, into buf, except those in memory.
// Short spans near each other are read with one call.
func (v *view) collect(buf []byte, spans []span) error {
	if v.file == nil {
		return nil
	}
	for len(spans) > 0 && spans[0].offset < v.stopBase {
		first, k := spans[0], 1
		end := v.stopBase
		if first.offset < v.gap.start {
			end = min(end, v.gap.start) // bytes in the gap can't be read
		}
		for k < len(spans) && spans[k].offset < end && spans[k].offset+spans[k].n-first.offset <= pullSize {
			k++
		}
		if k == 1 {
			if err := v.read(buf[:first.n], first.offset); err != nil {
				return err
			}
			buf = buf[first.n:]
		} else {
			rest, err := v.gather(buf, spans[:k])
			if err != nil {
				return err
			}
			buf = rest
		}
		spans = spans[k:]
	}
	return nil
}

// gather reads everything from the first to the last of spans, at most pullSize
// bytes, copies the spans to buf and returns the rest of buf.
func (v *view) gather(buf []byte, spans []span) ([]byte, error) {
	all := v.store.bufs.Get().(*[pullSize]byte)
	defer v.store.bufs.Put(all)
	from, last := spans[0].offset, spans[len(spans)-1]
	if err := v.read(all[:last.offset+last.n-from], from); err != nil {
		return nil, err
	}
	for _, s := range spans {
		buf = buf[copy(buf, all[s.offset-from:][:s.n]):]
	}
	return buf, nil
}

// lost returns which part of the concatenated spans lies in g.
func lost(spans []span, g gap) (lo, hi int64) {
	for _, s := range spans {
		lo += min(s.n, max(g.start-s.offset, 0))
		hi += s.n - min(s.n, max(s.offset+s.n-g.end, 0))
	}
	return lo, hi
}

// tear returns the valid parts of buf when the bytes from lo to hi are invalid:
// of its first keep bytes those before lo, and of the bytes from from on those
// after hi.
func tear(buf []byte, lo, hi, keep, from int64) (h, t []byte) {
	keep = min(keep, lo)
	return buf[:keep:keep], buf[max(from, hi):]
}
