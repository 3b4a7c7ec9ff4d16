//go:build linux

// Package ledger is what a daemon must know again after it died: a map from
// keys to values, in memory that another process keeps.
//
// Every change is one record, appended by one write: it has happened when the
// write is done, and a write that was cut off never did, which its checksum
// tells. Where records go is mapped, so that to write one is no system call:
// there are several for every command. Nothing is ever on a disk.
//
// A record that a later one replaced, or whose key was deleted, is wiped at once:
// its place stays, its content is zero. Every later command can open this memory,
// and must not find texts and environments of commands that have ended. The places
// are left out when the ledger is written anew, once they are the larger part.
//
// The memory is sealed against being cut off, so that no command can make a
// mapping of it fault.
package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
)

const (
	// A record: checksum of the rest, its length, what it does, the length of
	// the key, the key, the value. Of a record that is gone the checksum is that
	// of the rest of the header alone, and key and value are zero.
	headerSize = 4 + 4 + 1 + 2
	opPut      = 1
	opDelete   = 2 // written by programs that did not wipe
	opWiped    = 3
	maxKey     = 1<<16 - 1

	// The first record is gone. In it, at endAt, is how far the records go, or
	// went before the last was written; 0: a program wrote that did not say.
	firstSize = endAt + 8
	endAt     = 16

	// minGarbage is what replaced records may take before the ledger is
	// written anew, however little it holds: a thousand short commands.
	minGarbage = 1 << 20
	// windowBytes is how much is mapped, from the page of the last record on.
	// Pages are 64 KiB at the most, so a record of maxMapped always fits; longer
	// ones are written as to a file.
	windowBytes = 128 << 10
	// behindBytes is how much is mapped before that: what is wiped with every
	// command are records of the last hundred.
	behindBytes = 128 << 10
	maxMapped   = 32 << 10
	// copyBytes is what is written at once then.
	copyBytes = 256 << 10

	// seals keep the memory from being cut off, and from being sealed further.
	seals = unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
)

var table = crc32.MakeTable(crc32.Castagnoli)

// ErrLost says that a ledger has nothing that can be read: it was cut off or
// overwritten.
var ErrLost = errors.New("nothing in it can be read")

// Ledger is safe for concurrent use.
type Ledger struct {
	keeper holder.Keeper // has it under holder.Root

	mu       sync.Mutex
	fd       int
	rewrites int   // how often it was written anew
	end      int64 // where the next record goes
	live     int64 // bytes of records that count
	records  map[string]location
	first    []byte // mapped memory: the first record
	window   []byte // mapped memory; nil: none
	from     int64  // where the window begins
	buf      []byte
	damage   []Damage
	failed   error // why nothing is written any more
}

// place is where the record of a key is.
type location struct {
	offset  int64
	size    int // of the whole record
	keySize int
}

// New makes an empty ledger, which is kept from now on.
func New(keep holder.Keeper) (*Ledger, error) {
	fd, err := newMemory()
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if err := keep.Replace(holder.Root, fd); err != nil {
		return nil, errors.Join(fmt.Errorf("ledger: %w", err), unix.Close(fd))
	}
	l := &Ledger{keeper: keep, fd: fd, end: firstSize, records: map[string]location{}}
	if err := l.mapFirst(); err != nil {
		return nil, errors.Join(fmt.Errorf("ledger: %w", err), unix.Close(fd))
	}
	return l, nil
}

// Open reads the ledger that is kept. The error is ErrLost if no record can be
// read. If some records can't be read, Damage returns where they are.
func Open(keep holder.Keeper) (*Ledger, error) {
	fd, err := keep.Take(holder.Root)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	l := &Ledger{keeper: keep, fd: fd, records: map[string]location{}}
	if err := l.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("ledger: %w", err), unix.Close(l.fd))
	}
	return l, nil
}

func (l *Ledger) open() error {
	sealed := isSealed(l.fd)
	mem, release, err := memoryOf(l.fd, sealed)
	if err != nil {
		return err
	}
	defer release()
	found := replay(mem)
	if !found.any {
		return ErrLost
	}
	l.records, l.live, l.end, l.damage = found.records, found.live, found.end, found.damage
	if first := recordAt(mem, 0); !sealed || first.size != firstSize {
		// Of a program that did not seal or wipe, or not say how far records go.
		return l.compact()
	}
	for _, p := range found.unwiped {
		if err := l.wipeFile(p); err != nil {
			return err
		}
	}
	// What a cut write left must not look like a record after the next one.
	if !isZero(mem[found.end:]) {
		if err := l.zeroFrom(found.end); err != nil {
			return err
		}
	}
	return l.mapFirst()
}

// mapFirst maps the first record.
func (l *Ledger) mapFirst() (err error) {
	l.first, err = unix.Mmap(l.fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return err
}

// sayEnd says how far the records go, once they do: a page that is lost at the end
// is noticed. The caller holds mu.
func (l *Ledger) storeEnd() { binary.LittleEndian.PutUint64(l.first[endAt:], uint64(l.end)) }

// Read returns what is in the ledger behind a descriptor, and what of it can't be
// read, and changes nothing. A daemon may write to it meanwhile.
func Read(fd int) (values map[string][]byte, damage []Damage, err error) {
	for range 10 {
		mem, _, err := memoryOf(fd, false)
		if err != nil {
			return nil, nil, fmt.Errorf("ledger: %w", err)
		}
		found := replay(mem)
		// One that was written anew is wiped, from the beginning on.
		var head [headerSize]byte
		n, err := readMost(fd, head[:], 0)
		if err != nil {
			return nil, nil, fmt.Errorf("ledger: %w", err)
		}
		if !found.any || isZero(head[:n]) {
			return nil, nil, fmt.Errorf("ledger: %w", ErrLost)
		}
		values, damage = make(map[string][]byte, len(found.records)), found.damage
		for key, p := range found.records {
			values[key] = mem[p.offset+int64(headerSize+len(key)) : p.offset+int64(p.size)]
		}
		if len(damage) == 0 {
			break
		}
		// It may be a record that was wiped while it was read.
	}
	return values, damage, nil
}

// Close gives up this process's hold of the memory.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = errors.New("closed")
	l.unmap()
	return errors.Join(unix.Munmap(l.first), unix.Close(l.fd))
}

// Damage returns what could not be read.
func (l *Ledger) Damage() []Damage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.damage)
}

// All is what the ledger holds, in the order of the keys.
func (l *Ledger) All() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		l.mu.Lock()
		keys := slices.Sorted(maps.Keys(l.records))
		copies := l.rewrites
		mem, release, err := memoryOf(l.fd, true)
		l.mu.Unlock()
		if err != nil {
			mem, release = nil, func() {}
		}
		defer release()
		for _, key := range keys {
			l.mu.Lock()
			if l.rewrites != copies {
				mem = nil
			}
			value, ok := l.get(key, mem)
			l.mu.Unlock()
			if ok && !yield(key, value) {
				return
			}
		}
	}
}

// View calls fn with all that the ledger holds, in no order. A value is the
// ledger's own memory, and good until fn returns; fn must not use the ledger.
func (l *Ledger) View(fn func(key string, value []byte)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	mem, release, err := memoryOf(l.fd, true)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	defer release()
	for key, p := range l.records {
		fn(key, mem[p.offset+int64(headerSize+len(key)):p.offset+int64(p.size)])
	}
	return nil
}

// Get returns the value of a key.
func (l *Ledger) Get(key string) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.get(key, nil)
}

// get returns the value of a key. mem is the memory, as far as it is mapped. The
// caller holds mu.
func (l *Ledger) get(key string, mem []byte) ([]byte, bool) {
	p, ok := l.records[key]
	if !ok {
		return nil, false
	}
	rec := make([]byte, p.size)
	if end := p.offset + int64(p.size); end <= int64(len(mem)) {
		copy(rec, mem[p.offset:end])
	} else if readFull(l.fd, rec, p.offset) != nil {
		return nil, false
	}
	if !isRecordOf(key, rec) {
		return nil, false
	}
	return rec[headerSize+len(key):], true
}

// Put sets the value of a key. An error says that it could not be noted, for
// want of memory: a daemon that dies now will not know of it.
func (l *Ledger) Put(key string, value []byte) error {
	if len(key) == 0 || len(key) > maxKey {
		return fmt.Errorf("ledger: a key of %d bytes", len(key))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	offset, size, err := l.add(key, value)
	if err != nil {
		return err
	}
	before, ok := l.records[key]
	l.live += int64(size - before.size)
	l.records[key] = location{offset, size, len(key)}
	if ok {
		// Only now: a process that is killed in between leaves both, of which the
		// later counts. One that can't be wiped is replaced all the same.
		_ = l.wipe(before)
	}
	return l.compactIfNeeded()
}

// Delete takes a key out. Its record is the only one it has, so that to wipe it
// is all there is to do.
func (l *Ledger) Delete(key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.records[key]
	if !ok {
		return nil
	}
	if l.failed != nil {
		return fmt.Errorf("ledger: %w", l.failed)
	}
	if err := l.wipe(p); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	l.live -= int64(p.size)
	delete(l.records, key)
	return l.compactIfNeeded()
}

// add appends one record. The caller holds mu.
func (l *Ledger) add(key string, value []byte) (offset int64, size int, err error) {
	if l.failed != nil {
		return 0, 0, fmt.Errorf("ledger: %w", l.failed)
	}
	l.buf = appendRecord(l.buf[:0], opPut, key, value)
	size = len(l.buf)
	offset = l.end
	err = l.write(l.buf)
	if err != nil {
		// What there is of it must not be found behind the next record.
		err = errors.Join(err, l.zeroFrom(l.end))
		return 0, 0, fmt.Errorf("ledger: %w", err)
	}
	l.end += int64(size)
	l.storeEnd()
	if cap(l.buf) > copyBytes {
		l.buf = nil
	}
	return offset, size, nil
}

// write writes at the end. The caller holds mu.
func (l *Ledger) write(b []byte) error {
	if l.window == nil || l.end+int64(len(b)) > l.from+int64(len(l.window)) {
		l.unmap()
		if len(b) > maxMapped {
			return writeFull(l.fd, b, l.end)
		}
		if err := l.mapWindow(); err != nil {
			return err
		}
	}
	copy(l.window[l.end-l.from:], b)
	return nil
}

// mapWindow maps the memory around the end. It is provided for first, and what
// is new of it is zero: no page is missing later, and nothing there is a record.
func (l *Ledger) mapWindow() error {
	page := l.end &^ int64(os.Getpagesize()-1)
	if err := fallocate(l.fd, 0, page, windowBytes); err != nil {
		return err
	}
	from := max(0, page-behindBytes)
	window, err := unix.Mmap(l.fd, from, int(page-from)+windowBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	l.window, l.from = window, from
	return nil
}

func (l *Ledger) unmap() {
	if l.window != nil {
		_ = unix.Munmap(l.window) // it was mapped
		l.window = nil
	}
}

// wipe makes a record gone. A process that is killed meanwhile leaves one that is
// known to be gone by its first byte that is changed. The caller holds mu.
func (l *Ledger) wipe(p location) error {
	if at := p.offset - l.from; l.window != nil && at >= 0 && at+int64(p.size) <= int64(len(l.window)) {
		rec := l.window[at : at+int64(p.size)]
		rec[opAt] = opWiped
		clear(rec[headerSize:])
		binary.LittleEndian.PutUint32(rec, wipedSum(rec))
		return nil
	}
	return l.wipeFile(p)
}

// opAt is where in a record is what it does.
const opAt = 8

// wipeFile is wipe of a record that is not mapped: it is not one of the last.
func (l *Ledger) wipeFile(p location) error {
	l.buf = appendWiped(l.buf[:0], p.size, p.keySize)
	long := p.size > maxMapped
	if !long {
		l.buf = slices.Grow(l.buf, p.size)[:p.size]
		clear(l.buf[headerSize:])
	}
	// What does it is written first, and the checksum last.
	err := writeFull(l.fd, l.buf[opAt:], p.offset+opAt)
	if err == nil && long {
		err = fallocate(l.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, p.offset+headerSize, int64(p.size-headerSize))
	}
	if err != nil {
		return err
	}
	return writeFull(l.fd, l.buf[:4], p.offset)
}

// zeroFrom makes everything from an offset on zero.
func (l *Ledger) zeroFrom(offset int64) error { return punch(l.fd, offset) }

func appendRecord(b []byte, op byte, key string, value []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(headerSize+len(key)+len(value)))
	b = append(b, op)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, key...)
	b = append(b, value...)
	binary.LittleEndian.PutUint32(b[start:], crc32.Checksum(b[start+4:], table))
	return b
}

// appendGone adds the header of a record that is gone.
func appendWiped(b []byte, size, keySize int) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	b = append(b, opWiped)
	b = binary.LittleEndian.AppendUint16(b, uint16(keySize))
	binary.LittleEndian.PutUint32(b[start:], wipedSum(b[start:]))
	return b
}

// goneSum is the checksum of a record that is gone.
func wipedSum(rec []byte) uint32 { return crc32.Checksum(rec[4:headerSize], table) }

// tidy writes the ledger anew when most of it is replaced. The caller holds mu.
func (l *Ledger) compactIfNeeded() error {
	if garbage := l.end - l.live; garbage < minGarbage || garbage < l.live {
		return nil
	}
	_ = l.compact() // else it is larger than it need be, and right
	return nil
}

// writeAnew writes the records that count to new memory, which takes the place
// of this one. The caller holds mu.
func (l *Ledger) compact() error { return l.rewriteWith(l.copyTo) }

// writeAnewBy is writeAnew with another function that writes the records.
func (l *Ledger) rewriteWith(write func(fd int, records map[string]location) (end int64, err error)) error {
	fd, err := newMemory()
	if err != nil {
		return err
	}
	records := make(map[string]location, len(l.records))
	end, err := write(fd, records)
	if err == nil {
		err = l.replaceMemory(fd)
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	l.unmap()
	_ = unix.Munmap(l.first) // it was mapped, unless this is a ledger of another program
	// Whoever has the old one open finds nothing there. (One that is not sealed
	// may have been cut off: then there is nothing.)
	_ = punch(l.fd, 0)
	_ = unix.Close(l.fd)
	l.fd, l.end, l.records, l.live = fd, end, records, 0
	for _, p := range records {
		l.live += int64(p.size)
	}
	l.rewrites++
	if l.failed = l.mapFirst(); l.failed == nil {
		l.storeEnd()
	}
	return l.failed
}

// replaceBy puts other memory in the place of the ledger's, and makes sure that
// it is there: the old one is wiped then.
func (l *Ledger) replaceMemory(fd int) error {
	if err := l.keeper.Replace(holder.Root, fd); err != nil {
		return err
	}
	kept, err := l.keeper.Take(holder.Root)
	if err != nil {
		return err
	}
	defer unix.Close(kept)
	var ours, theirs unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &ours), unix.Fstat(kept, &theirs)); err != nil {
		return err
	}
	if ours.Ino != theirs.Ino || ours.Dev != theirs.Dev {
		return errors.New("the holder has kept the old one")
	}
	return nil
}

// copyTo writes the records that count. It leaves out what was overwritten and
// adds it to damage.
func (l *Ledger) copyTo(fd int, records map[string]location) (end int64, err error) {
	end = firstSize
	buf := make([]byte, 0, copyBytes)
	flush := func() error {
		err := writeFull(fd, buf, end)
		end += int64(len(buf))
		buf = buf[:0]
		return err
	}
	for key, p := range l.records {
		at := len(buf)
		buf = slices.Grow(buf, p.size)[:at+p.size]
		if err := readFull(l.fd, buf[at:], p.offset); err != nil {
			return 0, err
		}
		if !isRecordOf(key, buf[at:]) {
			l.damage = append(l.damage, Damage{Offset: p.offset, Size: int64(p.size), Key: key})
			buf = buf[:at]
			continue
		}
		records[key] = location{end + int64(at), p.size, p.keySize}
		if len(buf) >= copyBytes {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	err = flush()
	return end, err
}
