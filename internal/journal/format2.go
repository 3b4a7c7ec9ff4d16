package journal

import (
	"encoding/binary"
	"math"

	"github.com/terminal-runtime/trl/internal/holder"
)

// valueVersion2 is the first byte of a value in format 2, whose fields have no
// tags. No value with tags starts with it.
const valueVersion2 = 1

// parseValue2 reads a value of format 2.
func parseValue2(b []byte) (value, error) {
	d := decoder{b: b[1:]}
	v := value{headQuota: d.int(), ringQuota: d.int()}
	for st := range v.total {
		v.total[st] = d.int()
	}
	v.first = uint32(min(d.int(), math.MaxUint32))
	v.marks = d.part(func() { d.marks(0) })
	v.head = d.part(func() { d.runs() })
	v.lossy = string(d.bytes())
	v.mem = d.bytes()
	if d.int() != 0 {
		sp := &spillValue{filed: d.int() != 0, slot: holder.Slot(d.signed())}
		for _, n := range []*int64{&sp.written, &sp.ringBase, &sp.ringPos, &sp.stopBase, &sp.gapStart, &sp.gapEnd, &sp.dropped[0], &sp.dropped[1], &sp.dropped[2]} {
			*n = d.int()
		}
		sp.tail = d.part(func() { d.runs() })
		sp.ringSize = d.int()
		sp.ring = d.bytes()
		v.spill = sp
	}
	if d.bad || len(d.b) > 0 {
		return v, errDamaged
	}
	return v, nil
}

// part returns the bytes that read consumes.
func (d *decoder) part(read func()) []byte {
	before := d.b
	read()
	if d.bad {
		return nil
	}
	return before[:len(before)-len(d.b)]
}

// signed reads a zigzag varint.
func (d *decoder) signed() int64 {
	v, n := binary.Varint(d.b)
	return d.took(v, n, true)
}
