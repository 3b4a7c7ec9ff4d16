//go:build linux

package ledger

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Damage is a part of a ledger that can't be read although it contained
// records: other records follow it, or it lies before the stored end. (Anything
// after the end is an interrupted write of a killed process.)
type Damage struct {
	Offset, Size int64
	Key          string // whose record it may have been; "" if unknown
}

// String describes the damage for a log.
func (d Damage) String() string {
	if d.Key == "" {
		return fmt.Sprintf("%d bytes at %d", d.Size, d.Offset)
	}
	return fmt.Sprintf("%d bytes at %d, possibly %q", d.Size, d.Offset, d.Key)
}

// replayResult is the result of reading all records of a ledger.
type replayResult struct {
	any     bool // there is at least one record, wiped or not
	records map[string]location
	live    int64 // bytes of records
	end     int64 // where the next record goes
	unwiped []location
	damage  []Damage
}

// replay reads all records of a ledger. It ignores what follows the last
// record: that was never acknowledged.
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

// storedEnd returns where the records end according to the first record; 0 if
// that does not say.
func storedEnd(mem []byte) int64 {
	if first := recordAt(mem, 0); first.state != isWiped || first.size != firstSize {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(mem[endAt:]))
}

// add processes one record.
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

// The states of a record.
const (
	isInvalid     = iota
	isWhole       // a current or replaced record
	isWiped       // a wiped record
	isPartlyWiped // a record whose wiping was interrupted
)

// record is a parsed record header.
type record struct {
	state  int
	offset int64
	size   int
	op     byte

	keySize int
	key     []byte // a slice of the memory
}

// header parses the header at an offset and reports whether it is plausible.
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

// recordAt returns the record at an offset and its state.
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

// nextRecord returns the offset of the first record after an offset at which
// there is none, and false if there is no other record.
func nextRecord(mem []byte, at int64) (int64, bool) {
	if rec, ok := header(mem, at); ok {
		// If its length is right, the next record is found without mistaking
		// the content of a value for a record.
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

// leadsToRecord reports whether there is a record at an offset, or nothing but
// zeros from there on. It verifies a length that no checksum covers.
func leadsToRecord(mem []byte, at int64) bool {
	return recordAt(mem, at).state != isInvalid || isZero(mem[at:])
}

// isRecord reports whether the checksum of the record is right.
func isRecord(rec record) bool { return rec.state == isWhole || rec.state == isWiped }

// isRecordOf reports whether rec is the complete record of a key.
func isRecordOf(key string, rec []byte) bool {
	r := recordAt(rec, 0)
	return r.state == isWhole && r.size == len(rec) && r.op == opPut && string(r.key) == key
}

// keyOf returns the key of a damaged record, or "" if it does not look like
// one.
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
