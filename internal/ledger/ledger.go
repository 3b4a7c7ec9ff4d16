//go:build linux

// Package ledger stores what a daemon must know after a restart: a map from
// keys to values, in memory that the holder process keeps.
//
// Every change is one record, appended by one write. A change has happened when
// the write is complete; a checksum detects a write that was interrupted, which
// counts as not made. The memory around the end is mapped, so that writing a
// record, of which there are several for every command, needs no system call.
// Nothing is ever written to disk.
//
// A record that a later one replaced, or whose key was deleted, is wiped at
// once: it keeps its place, but its content is zeroed. Every later command can
// open this memory, and must not find texts and environments of commands that
// have ended. Compaction removes wiped records once they make up most of the
// ledger.
//
// The memory is sealed against truncation, so that no command can make a
// mapping of it fault.
package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
)

const (
	// A record: checksum of the rest, length, operation, length of the key,
	// key, value. For a wiped record the checksum covers only the rest of the
	// header, and key and value are zero.
	headerSize = 4 + 4 + 1 + 2
	opPut      = 1
	opDelete   = 2 // written by versions that did not wipe
	opWiped    = 3
	maxKey     = 1<<16 - 1

	// The first record is a wiped one. At endAt it stores where the records
	// end, or ended before the last one was written; 0 if a version wrote it
	// that did not store this.
	firstSize = endAt + 8
	endAt     = 16

	// minGarbage is how much wiped records may take before the ledger is
	// compacted, however little it holds: about a thousand short commands.
	minGarbage = 1 << 20
	// windowBytes is how much is mapped, from the page of the last record on.
	// Pages are at most 64 KiB, so a record of maxMapped always fits; longer
	// records are written with pwrite.
	windowBytes = 128 << 10
	// behindBytes is how much is mapped before that: the records that a command
	// wipes are usually among the last hundred.
	behindBytes = 128 << 10
	maxMapped   = 32 << 10
	// copyBytes is how much compaction writes at once.
	copyBytes = 256 << 10

	// seals prevent truncation of the memory, and any further seals.
	seals = unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
)

var table = crc32.MakeTable(crc32.Castagnoli)

// ErrLost means that nothing in a ledger can be read: it was truncated or
// overwritten.
var ErrLost = errors.New("no record can be read")

// Ledger is a map from keys to values that survives this process. It is safe
// for concurrent use.
type Ledger struct {
	keeper holder.Keeper // keeps the memory under holder.Root

	mu       sync.Mutex
	fd       int
	rewrites int   // how often it was compacted or rewritten
	end      int64 // where the next record goes
	live     int64 // bytes of current records
	records  map[string]location
	first    []byte // mapped memory: the first record
	window   []byte // mapped memory; nil if none
	from     int64  // offset of the window
	buf      []byte
	damage   []Damage
	failed   error // why nothing can be written any more
}

// location is where the record of a key is.
type location struct {
	offset  int64
	size    int // of the whole record
	keySize int
}

// New creates an empty ledger and gives it to the keeper.
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

// Open reads the ledger that the keeper has. The error is ErrLost if no record
// can be read. If only some records can't be read, Damage returns where they
// are.
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
		// Written by a version that did not seal, wipe or store the end.
		return l.compact()
	}
	for _, p := range found.unwiped {
		if err := l.wipeFile(p); err != nil {
			return err
		}
	}
	// The rest of an interrupted write must not look like a record after the
	// next one.
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

// storeEnd stores where the records end, after they were written, so that a
// lost page at the end is detected. The caller must hold mu.
func (l *Ledger) storeEnd() { binary.LittleEndian.PutUint64(l.first[endAt:], uint64(l.end)) }

// Read returns the values in the ledger behind a descriptor, and the parts that
// can't be read. It changes nothing. A daemon may write to the ledger at the
// same time.
func Read(fd int) (values map[string][]byte, damage []Damage, err error) {
	for range 10 {
		mem, _, err := memoryOf(fd, false)
		if err != nil {
			return nil, nil, fmt.Errorf("ledger: %w", err)
		}
		found := replay(mem)
		// A ledger that was replaced by compaction is zeroed from the start on.
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

// Close releases this process's descriptor and mappings. The keeper still has
// the ledger.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = errors.New("closed")
	l.unmap()
	return errors.Join(unix.Munmap(l.first), unix.Close(l.fd))
}

// Damage returns the parts that could not be read.
func (l *Ledger) Damage() []Damage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.damage)
}

// All returns the keys that begin with a prefix, in order, and their values. All keys
// begin with "".
func (l *Ledger) All(prefix string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		l.mu.Lock()
		var keys []string
		for key := range l.records {
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		if len(keys) == 0 {
			l.mu.Unlock()
			return
		}
		slices.Sort(keys)
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

// View calls fn for every key and value, in no particular order. A value is the
// ledger's own memory and valid only until fn returns; fn must not use the
// ledger.
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

// Get returns the value of a key and whether it exists.
func (l *Ledger) Get(key string) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.get(key, nil)
}

// get returns the value of a key. mem is the mapped part of the memory. The
// caller must hold mu.
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

// Put sets the value of a key. An error means that the value could not be
// stored, for lack of memory: the next daemon will not see it.
func (l *Ledger) Put(key string, value []byte) error {
	if len(key) == 0 || len(key) > maxKey {
		return fmt.Errorf("ledger: invalid key length %d", len(key))
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
		// Wipe only now: a process that is killed in between leaves both
		// records, of which the later one counts. A record that can't be wiped
		// is still replaced.
		_ = l.wipe(before)
	}
	return l.compactIfNeeded()
}

// Delete removes a key. A key has only one record, so wiping that is enough.
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

// add appends one record. The caller must hold mu.
func (l *Ledger) add(key string, value []byte) (offset int64, size int, err error) {
	if l.failed != nil {
		return 0, 0, fmt.Errorf("ledger: %w", l.failed)
	}
	l.buf = appendRecord(l.buf[:0], opPut, key, value)
	size = len(l.buf)
	offset = l.end
	err = l.write(l.buf)
	if err != nil {
		// A partly written record must not be found after the next one.
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

// write writes at the end. The caller must hold mu.
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

// mapWindow maps the memory around the end. It allocates the memory first, and
// new memory is zero: no page can be missing later, and nothing in it looks
// like a record.
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
		_ = unix.Munmap(l.window) // can't fail: it is mapped
		l.window = nil
	}
}

// wipe erases a record. If the process is killed meanwhile, the op byte, which
// is written first, marks the record as wiped. The caller must hold mu.
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

// opAt is the offset of the operation in a record.
const opAt = 8

// wipeFile is wipe for a record that is not mapped, because it is not one of
// the last.
func (l *Ledger) wipeFile(p location) error {
	l.buf = appendWiped(l.buf[:0], p.size, p.keySize)
	long := p.size > maxMapped
	if !long {
		l.buf = slices.Grow(l.buf, p.size)[:p.size]
		clear(l.buf[headerSize:])
	}
	// The operation is written first and the checksum last.
	err := writeFull(l.fd, l.buf[opAt:], p.offset+opAt)
	if err == nil && long {
		err = fallocate(l.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, p.offset+headerSize, int64(p.size-headerSize))
	}
	if err != nil {
		return err
	}
	return writeFull(l.fd, l.buf[:4], p.offset)
}

// zeroFrom zeroes everything from an offset on.
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

// appendWiped appends the header of a wiped record.
func appendWiped(b []byte, size, keySize int) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	b = append(b, opWiped)
	b = binary.LittleEndian.AppendUint16(b, uint16(keySize))
	binary.LittleEndian.PutUint32(b[start:], wipedSum(b[start:]))
	return b
}

// wipedSum returns the checksum of a wiped record.
func wipedSum(rec []byte) uint32 { return crc32.Checksum(rec[4:headerSize], table) }

// compactIfNeeded compacts the ledger when most of it is wiped records. The
// caller must hold mu.
func (l *Ledger) compactIfNeeded() error {
	if garbage := l.end - l.live; garbage < minGarbage || garbage < l.live {
		return nil
	}
	_ = l.compact() // on error the ledger is larger than necessary, but correct
	return nil
}

// compact copies the current records to new memory, which replaces the old
// memory. The caller must hold mu.
func (l *Ledger) compact() error { return l.rewriteWith(l.copyTo) }

// rewriteWith is compact with another function that writes the records.
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
	_ = unix.Munmap(l.first) // it is mapped, unless an older version wrote this ledger
	// A process that has the old memory open must find nothing there. (If it is
	// not sealed it may have been truncated: then it is empty already.)
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

// replaceMemory gives new memory to the keeper and verifies that the keeper has
// it, because the caller wipes the old memory next.
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
		return errors.New("holder still has the old memory")
	}
	return nil
}

// copyTo writes the current records to fd. It skips records that were
// overwritten and adds them to damage.
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
