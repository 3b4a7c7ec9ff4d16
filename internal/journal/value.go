package journal

import (
	"encoding/binary"
	"math"
)

// valueVersion begins every value.
const valueVersion = 1

// Value returns everything there is to a closed journal, for RestoreValue: small
// ones whole, of others the slot of the spill file. It is nil for one that is
// running or released.
func (j *Journal) Value() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed || j.released {
		return nil
	}
	b := make([]byte, 0, 64+len(j.mem))
	u := func(v int64) { b = binary.AppendUvarint(b, uint64(v)) }
	bytes := func(p []byte) {
		u(int64(len(p)))
		b = append(b, p...)
	}
	b = append(b, valueVersion)
	u(j.headQuota)
	u(j.ringQuota)
	for _, n := range j.total {
		u(n)
	}
	u(int64(j.first))
	b = appendMarks(b, j.times, j.first)
	b = appendRuns(b, &j.head)
	why := ""
	if j.lossy != nil {
		why = j.lossy.Error()
	}
	bytes([]byte(why))
	bytes(j.mem)
	sp := j.spill
	u(flag(sp != nil))
	if sp == nil {
		return b
	}
	u(flag(sp.file != nil))
	b = binary.AppendVarint(b, sp.slot)
	for _, n := range []int64{sp.written, sp.ringBase, sp.ringPos, sp.stopBase, sp.gap.start, sp.gap.end, sp.dropped[0], sp.dropped[1], sp.dropped[2]} {
		u(n)
	}
	b = appendRuns(b, &sp.tail)
	u(int64(len(sp.ring)))
	// What the ring has never held need not be kept.
	bytes(sp.ring[:min(j.size-sp.stopBase, int64(len(sp.ring)))])
	return b
}

// appendRuns adds runs, each as what it has more than the one before.
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

// appendMarks adds a table in the same way.
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

// RestoreValue brings back the closed journal that Value made b of.
func (s *Store) RestoreValue(b []byte) (*Journal, error) {
	d := decoder{b: b}
	j := &Journal{store: s, closed: true}
	version := d.byte()
	j.bounds = bounds{headQuota: d.int(), ringQuota: d.int()}
	if version != valueVersion || !j.good() {
		return nil, errDamaged
	}
	for st := range j.total {
		j.total[st] = d.int()
		j.size += j.total[st] // check notices when it runs over
	}
	j.first = uint32(min(d.int(), math.MaxUint32))
	j.times = d.marks(j.first)
	j.head = indexOf(d.runs())
	if why := d.bytes(); len(why) > 0 {
		j.lossy = lossyFor(string(why))
	}
	j.mem = exact(d.bytes())
	filed := false
	if d.int() != 0 {
		filed = d.int() != 0
		sp := &spill{slot: d.signed()}
		for _, n := range []*int64{&sp.written, &sp.ringBase, &sp.ringPos, &sp.stopBase, &sp.gap.start, &sp.gap.end, &sp.dropped[0], &sp.dropped[1], &sp.dropped[2]} {
			*n = d.int()
		}
		sp.tail = indexOf(d.runs())
		size := d.int()
		if content := d.bytes(); size > 0 && size <= tailMemory && int64(len(content)) <= size {
			sp.ring = make([]byte, size)
			copy(sp.ring, content)
		}
		j.spill = sp
	}
	if d.bad || len(d.b) > 0 {
		return nil, errDamaged
	}
	var err error
	if filed {
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

// decoder takes values off the front of b. What is not there is 0, and bad.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Uvarint(d.b)
	return d.took(int64(v), n, v <= math.MaxInt64)
}

func (d *decoder) signed() int64 {
	v, n := binary.Varint(d.b)
	return d.took(v, n, true)
}

func (d *decoder) took(v int64, n int, ok bool) int64 {
	if n <= 0 || !ok {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// length is an int of things that take at least a byte each.
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
