package journal

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/state"
)

// value is a closed journal as it is stored: a small one completely, others
// with the slot of the spill file.
type value struct {
	headQuota, ringQuota int64
	total                [streams]int64
	first                uint32
	marks                []byte
	head                 []byte
	lossy                string
	mem                  []byte
	spill                *spillValue // nil if everything is in mem
}

type spillValue struct {
	filed                                bool
	slot                                 holder.Slot
	written, ringBase, ringPos, stopBase int64
	gapStart, gapEnd                     int64
	dropped                              [streams]int64
	tail                                 []byte
	ringSize                             int64
	ring                                 []byte // as much as it has held
}

func (v *value) fields(c *state.Coder) {
	state.Int(c, 1, &v.headQuota)
	state.Int(c, 2, &v.ringQuota)
	for i := range v.total {
		state.Int(c, uint64(3+i), &v.total[i])
	}
	state.Int(c, 6, &v.first)
	state.Bytes(c, 7, &v.marks)
	state.Bytes(c, 8, &v.head)
	state.Text(c, 9, &v.lossy)
	state.Bytes(c, 10, &v.mem)
	state.Optional(c, 11, &v.spill, func(c *state.Coder, sp *spillValue) { sp.fields(c) })
}

func (sp *spillValue) fields(c *state.Coder) {
	state.Bool(c, 1, &sp.filed)
	state.Int(c, 2, &sp.slot)
	state.Int(c, 3, &sp.written)
	state.Int(c, 4, &sp.ringBase)
	state.Int(c, 5, &sp.ringPos)
	state.Int(c, 6, &sp.stopBase)
	state.Int(c, 7, &sp.gapStart)
	state.Int(c, 8, &sp.gapEnd)
	for i := range sp.dropped {
		state.Int(c, uint64(9+i), &sp.dropped[i])
	}
	state.Bytes(c, 12, &sp.tail)
	state.Int(c, 13, &sp.ringSize)
	state.Bytes(c, 14, &sp.ring)
}

// Value returns the complete state of a closed journal, for RestoreValue. It is
// nil for a journal that is running or released.
func (j *Journal) Value() []byte { return j.AppendValue(nil) }

// valueBuffer holds what AppendValue needs; it is pooled because every command
// makes one.
type valueBuffer struct {
	value
	coder       state.Coder
	marks, head []byte
}

var valueBuffers = sync.Pool{New: func() any { return new(valueBuffer) }}

// AppendValue appends Value to b.
func (j *Journal) AppendValue(b []byte) []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed || j.released {
		return b
	}
	buf := valueBuffers.Get().(*valueBuffer)
	defer valueBuffers.Put(buf)
	buf.marks, buf.head = appendMarks(buf.marks[:0], j.times, j.first), appendRuns(buf.head[:0], &j.head)
	v := &buf.value
	*v = value{
		headQuota: j.headQuota, ringQuota: j.ringQuota, total: j.total, first: j.first,
		marks: buf.marks, head: buf.head, mem: j.mem,
	}
	if j.lossy != nil {
		v.lossy = j.lossy.Error()
	}
	if sp := j.spill; sp != nil {
		v.spill = &spillValue{
			filed: sp.file != nil, slot: holder.Slot(sp.slot), written: sp.written, ringBase: sp.ringBase, ringPos: sp.ringPos,
			stopBase: sp.stopBase, gapStart: sp.gap.start, gapEnd: sp.gap.end, dropped: sp.dropped,
			tail: appendRuns(nil, &sp.tail), ringSize: int64(len(sp.ring)),
			// The part of the ring that was never used need not be stored.
			ring: sp.ring[:min(j.size-sp.stopBase, int64(len(sp.ring)))],
		}
	}
	buf.coder = state.Writer(slices.Grow(b, 64+len(j.mem)))
	v.fields(&buf.coder)
	b = buf.coder.Value()
	*v, buf.coder = value{}, state.Coder{} // so that the pool does not keep output alive
	return b
}

// appendRuns appends runs, each as the difference to the one before.
func appendRuns(b []byte, x *index) []byte {
	b = binary.AppendUvarint(b, uint64(x.n))
	last := int64(0)
	for i := range x.n {
		r := x.at(i)
		b = binary.AppendUvarint(b, uint64(newRun(r.start()-last, r.stream())))
		last = r.start()
	}
	return b
}

// appendMarks appends a table in the same way.
func appendMarks(b []byte, t *times, first uint32) []byte {
	if t == nil {
		return binary.AppendUvarint(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(t.step))
	b = binary.AppendUvarint(b, uint64(len(t.marks)))
	last := mark{at: first}
	for _, m := range t.marks {
		b = binary.AppendUvarint(b, uint64(m.offset-last.offset))
		b = binary.AppendUvarint(b, uint64(m.at-last.at))
		last = m
	}
	return b
}

// parseValue reads a Value, in this format or in format 2.
func parseValue(b []byte) (v value, err error) {
	if len(b) > 0 && b[0] == valueVersion2 {
		return parseValue2(b)
	}
	if state.Decode(b, v.fields) != nil || v.headQuota < 0 || v.ringQuota < 1 {
		return v, errDamaged
	}
	return v, nil
}

// CheckValue returns an error for a value that RestoreValue could not read.
func CheckValue(b []byte) error {
	v, err := parseValue(b)
	if err == nil {
		_, err = v.journal()
	}
	return err
}

// journal returns the closed journal of a value, without its spill file.
func (v *value) journal() (*Journal, error) {
	j := &Journal{closed: true, bounds: bounds{headQuota: v.headQuota, ringQuota: v.ringQuota}}
	if !j.valid() {
		return nil, errDamaged
	}
	j.total, j.first = v.total, v.first
	for _, n := range v.total {
		j.size += n // check detects an overflow
	}
	d := decoder{b: v.marks}
	j.times = d.marks(j.first)
	head := decoder{b: v.head}
	j.head = indexOf(head.runs())
	bad := d.bad || head.bad || len(d.b) > 0 || len(head.b) > 0
	if v.lossy != "" {
		j.lossy = lossyFor(v.lossy)
	}
	j.mem = exact(v.mem)
	if sv := v.spill; sv != nil {
		sp := &spill{
			slot: int64(sv.slot), written: sv.written, ringBase: sv.ringBase, ringPos: sv.ringPos, stopBase: sv.stopBase,
			gap: gap{sv.gapStart, sv.gapEnd}, dropped: sv.dropped,
		}
		tail := decoder{b: sv.tail}
		sp.tail = indexOf(tail.runs())
		bad = bad || tail.bad || len(tail.b) > 0
		if size := sv.ringSize; size > 0 && size <= tailMemory && int64(len(sv.ring)) <= size {
			sp.ring = make([]byte, size)
			copy(sp.ring, sv.ring)
		}
		j.spill = sp
	}
	if bad {
		return nil, errDamaged
	}
	return j, nil
}

// RestoreValue brings back the closed journal from which Value made b.
func (s *Store) RestoreValue(b []byte) (*Journal, error) {
	v, err := parseValue(b)
	if err != nil {
		return nil, err
	}
	j, err := v.journal()
	if err != nil {
		return nil, err
	}
	j.store = s
	if v.spill != nil && v.spill.filed {
		err = j.takeSpill()
	}
	if err == nil {
		err = j.check()
	}
	if err != nil {
		if j.spill != nil {
			j.spill.close()
		}
		return nil, err
	}
	j.count()
	return j, nil
}

// decoder reads values from the front of b. A missing value is 0 and sets bad.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) int() int64 {
	v, n := binary.Uvarint(d.b)
	return d.took(int64(v), n, v <= math.MaxInt64)
}

func (d *decoder) took(v int64, n int, ok bool) int64 {
	if n <= 0 || !ok {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// length reads the number of things that take at least one byte each.
func (d *decoder) length() int {
	n := d.int()
	if n > int64(len(d.b)) {
		d.b, d.bad = nil, true
		return 0
	}
	return int(n)
}

func (d *decoder) bytes() []byte {
	n := d.length()
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) runs() []run {
	n := d.length()
	if n == 0 {
		return nil
	}
	runs := make([]run, n)
	last := int64(0)
	for i := range runs {
		r := run(d.int())
		last += r.start()
		runs[i] = newRun(last, r.stream())
	}
	return runs
}

func (d *decoder) marks(first uint32) *times {
	t := &times{step: d.int()}
	if t.step == 0 {
		return nil
	}
	t.marks = make([]mark, d.length())
	last := mark{at: first}
	for i := range t.marks {
		last.offset += d.int()
		last.at += uint32(d.int())
		t.marks[i] = last
	}
	return t
}
