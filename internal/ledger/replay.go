//go:build linux

package ledger

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Damage is a part of a ledger that can't be read, with records behind it or with
// records once: the ledger says how far they go. (What is behind those is what a
// killed process was writing.)
type Damage struct {
	Offset, Size int64
	Key          string // whose record it may have been; "" if unknown
}

// String describes the damage for a log.
func (d Damage) String() string {
	if d.Key == "" {
		return fmt.Sprintf("%d bytes at %d", d.Size, d.Offset)
	}
	return fmt.Sprintf("%d bytes at %d, which may be %q", d.Size, d.Offset, d.Key)
}

// found is what a walk through a ledger has found.
type replayResult struct {
	any     bool // there are records, or were
	records map[string]location
	live    int64 // bytes of these
	end     int64 // where the next record goes
	unwiped []location
	damage  []Damage
}

// replay goes through the records of a ledger. What is behind the last one was
// never acknowledged.
func replay(mem []byte) replayResult {
	f := replayResult{records: map[string]location{}}
	for {
		rec := recordAt(mem, f.end)
		if rec.state == isPartlyWiped && !leadsToRecord(mem, f.end+int64(rec.size)) {
			rec.state = isInvalid // its length may be wrong
		}
		if rec.state == isInvalid {
			next, ok := nextRecord(mem, f.end)
			if !ok {
				if said := storedEnd(mem); said > f.end {
					f.damage = append(f.damage, Damage{Offset: f.end, Size: said - f.end})
				}
				return f
			}
			f.damage = append(f.damage, Damage{Offset: f.end, Size: next - f.end, Key: keyOf(mem[f.end:next])})
			f.end = next
			continue
		}
		f.any = true
		f.add(rec)
		f.end += int64(rec.size)
	}
}

// saidEnd returns how far the records go, as the first one says; 0: it does not.
func storedEnd(mem []byte) int64 {
	if first := recordAt(mem, 0); first.state != isWiped || first.size != firstSize {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(mem[endAt:]))
}

// take takes in one record.
func (f *replayResult) add(rec record) {
	here := location{rec.offset, rec.size, rec.keySize}
	if rec.state != isWhole {
		if rec.state == isPartlyWiped {
			f.unwiped = append(f.unwiped, here)
		}
		return
	}
	key := string(rec.key)
	if before, ok := f.records[key]; ok {
		f.unwiped = append(f.unwiped, before)
		f.live -= int64(before.size)
		delete(f.records, key)
	}
	if rec.op == opPut {
		f.records[key] = here
		f.live += int64(rec.size)
	}
}

// What there may be at a place in a ledger.
const (
	isInvalid     = iota
	isWhole       // a record
	isWiped       // one that was wiped
	isPartlyWiped // one whose wiping was cut off
)

// record is one change.
type record struct {
	state  int
	offset int64
	size   int
	op     byte

	keySize int
	key     []byte // part of the memory
}

// header returns the record of which there may be a header at an offset.
func header(mem []byte, at int64) (rec record, ok bool) {
	if int64(len(mem))-at < headerSize {
		return record{}, false
	}
	b := mem[at:]
	size := int64(binary.LittleEndian.Uint32(b[4:]))
	keySize := int(binary.LittleEndian.Uint16(b[opAt+1:]))
	rec = record{offset: at, size: int(size), op: b[opAt], keySize: keySize}
	ok = size >= int64(headerSize+keySize) && size <= int64(len(b)) && (rec.op == opPut || rec.op == opDelete || rec.op == opWiped) && (keySize > 0 || rec.op == opWiped)
	return rec, ok
}

// recordAt returns what is at an offset.
func recordAt(mem []byte, at int64) record {
	rec, ok := header(mem, at)
	if !ok {
		return record{}
	}
	b := mem[at : at+int64(rec.size)]
	sum := binary.LittleEndian.Uint32(b)
	switch {
	case rec.op == opWiped && sum == wipedSum(b):
		rec.state = isWiped
	case rec.op == opWiped:
		rec.state = isPartlyWiped
	case sum == crc32.Checksum(b[4:], table):
		rec.state = isWhole
		rec.key = b[headerSize : headerSize+rec.keySize]
	}
	return rec
}

// resume returns where records go on behind a place at which there is none;
// false: they do not.
func nextRecord(mem []byte, at int64) (int64, bool) {
	if rec, ok := header(mem, at); ok {
		// If its length is right it is known where to look, and what a value
		// holds is not taken for a record.
		next := at + int64(rec.size)
		if isRecord(recordAt(mem, next)) {
			return next, true
		}
		if isZero(mem[next:]) {
			return 0, false
		}
	}
	for at++; int64(len(mem))-at >= headerSize; at++ {
		if op := mem[at+opAt]; op != opPut && op != opDelete && op != opWiped {
			continue
		}
		if isRecord(recordAt(mem, at)) {
			return at, true
		}
	}
	return 0, false
}

// leads reports whether a length that no checksum covers led to a record, or to
// the end.
func leadsToRecord(mem []byte, at int64) bool {
	return recordAt(mem, at).state != isInvalid || isZero(mem[at:])
}

// isRecord reports whether a checksum says so.
func isRecord(rec record) bool { return rec.state == isWhole || rec.state == isWiped }

// isRecordOf reports whether rec is the whole record of a key.
func isRecordOf(key string, rec []byte) bool {
	r := recordAt(rec, 0)
	return r.state == isWhole && r.size == len(rec) && r.op == opPut && string(r.key) == key
}

// keyOf returns the key of a damaged record, if it looks like one.
func keyOf(b []byte) string {
	rec, ok := header(b, 0)
	if !ok || rec.op == opWiped {
		return ""
	}
	key := b[headerSize : headerSize+rec.keySize]
	for _, c := range key {
		if c < ' ' || c > '~' {
			return ""
		}
	}
	return string(key)
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
