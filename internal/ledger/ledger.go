//go:build linux

// Package ledger is what a daemon must know again after it died: a map from
// keys to values, in memory that another process keeps.
//
// Every change is one record, appended by one write: it has happened when the
// write is done, and a write that was cut off never did, which its checksum
// tells. Where records go is mapped, so that to write one is no system call:
// there are several for every command. Nothing is ever on a disk. Records that
// later ones have replaced are left out when the ledger is written anew, once
// they are the larger part.
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
	// the key, the key, the value.
	headerSize = 4 + 4 + 1 + 2
	opPut      = 1
	opDelete   = 2
	maxKey     = 1<<16 - 1

	// minGarbage is what replaced records may take before the ledger is
	// written anew, however little it holds: a thousand short commands.
	minGarbage = 1 << 20
	// windowBytes is how much is mapped, from the page of the last record on.
	// Pages are 64 KiB at the most, so a record of maxMapped always fits; longer
	// ones are written as to a file.
	windowBytes = 128 << 10
	maxMapped   = 32 << 10
	// copyBytes is what is written at once then.
	copyBytes = 256 << 10
)

var table = crc32.MakeTable(crc32.Castagnoli)

// Ledger is safe for concurrent use.
type Ledger struct {
	keep holder.Keeper // has it under holder.Root

	mu      sync.Mutex
	fd      int
	end     int64 // where the next record goes
	live    int64 // bytes of records that count
	records map[string]place
	window  []byte // mapped memory; nil: none
	from    int64  // where the window begins
	buf     []byte
	failed  error // why nothing is written any more
}

// place is where the record of a key is.
type place struct {
	offset int64
	size   int // of the whole record
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
	return &Ledger{keep: keep, fd: fd, records: map[string]place{}}, nil
}

// Open reads the ledger again that is kept.
func Open(keep holder.Keeper) (*Ledger, error) {
	fd, err := keep.Take(holder.Root)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	l := &Ledger{keep: keep, fd: fd, records: map[string]place{}}
	err = l.replay()
	if err == nil {
		// What a cut write left must not look like a record after the next one.
		err = unix.Ftruncate(fd, l.end)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ledger: %w", err), unix.Close(fd))
	}
	return l, nil
}

// Close gives up this process's hold of the memory.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = errors.New("closed")
	l.unmap()
	return unix.Close(l.fd)
}

// replay goes through the records up to the first that is not whole. What is
// behind that was never acknowledged.
func (l *Ledger) replay() error {
	var st unix.Stat_t
	if err := unix.Fstat(l.fd, &st); err != nil {
		return err
	}
	r := reader{fd: l.fd, size: st.Size}
	for {
		rec, ok, err := r.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		key := string(rec.key)
		l.live -= int64(l.records[key].size)
		delete(l.records, key)
		if rec.op == opPut {
			l.records[key] = place{rec.offset, rec.size}
			l.live += int64(rec.size)
		}
	}
	l.end = r.at
	return nil
}

// newMemory returns empty memory for a ledger.
func newMemory() (int, error) { return unix.MemfdCreate("ledger", unix.MFD_CLOEXEC) }

// All is what the ledger holds, in the order of the keys.
func (l *Ledger) All() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		l.mu.Lock()
		keys := slices.Sorted(maps.Keys(l.records))
		l.mu.Unlock()
		for _, key := range keys {
			if value, ok := l.Get(key); ok && !yield(key, value) {
				return
			}
		}
	}
}

// Get returns the value of a key.
func (l *Ledger) Get(key string) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.records[key]
	if !ok {
		return nil, false
	}
	rec := make([]byte, p.size)
	if err := readFull(l.fd, rec, p.offset); err != nil {
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
	offset, size, err := l.add(opPut, key, value)
	if err != nil {
		return err
	}
	l.live += int64(size - l.records[key].size)
	l.records[key] = place{offset, size}
	return l.tidy()
}

// Delete takes a key out.
func (l *Ledger) Delete(key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.records[key]
	if !ok {
		return nil
	}
	if _, _, err := l.add(opDelete, key, nil); err != nil {
		return err
	}
	l.live -= int64(p.size)
	delete(l.records, key)
	return l.tidy()
}

// add appends one record. The caller holds mu.
func (l *Ledger) add(op byte, key string, value []byte) (offset int64, size int, err error) {
	if l.failed != nil {
		return 0, 0, fmt.Errorf("ledger: %w", l.failed)
	}
	l.buf = appendRecord(l.buf[:0], op, key, value)
	size = len(l.buf)
	offset = l.end
	if err := l.write(l.buf); err != nil {
		// The next record overwrites what there is of this one.
		return 0, 0, fmt.Errorf("ledger: %w", err)
	}
	l.end += int64(size)
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
	from := l.end &^ int64(os.Getpagesize()-1)
	for {
		err := unix.Fallocate(l.fd, 0, from, windowBytes)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	window, err := unix.Mmap(l.fd, from, windowBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
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

// tidy writes the ledger anew when most of it is replaced. The caller holds mu.
func (l *Ledger) tidy() error {
	if garbage := l.end - l.live; garbage < minGarbage || garbage < l.live {
		return nil
	}
	fd, err := newMemory()
	if err != nil {
		return nil // it is larger than it need be, and right
	}
	records := make(map[string]place, len(l.records))
	end, err := l.copyTo(fd, records)
	if err == nil {
		err = l.keep.Replace(holder.Root, fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil
	}
	l.unmap()
	_ = unix.Close(l.fd)
	l.fd, l.end, l.live, l.records = fd, end, end, records
	return nil
}

// copyTo writes the records that count.
func (l *Ledger) copyTo(fd int, records map[string]place) (end int64, err error) {
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
		records[key] = place{end + int64(at), p.size}
		if len(buf) >= copyBytes {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	err = flush()
	return end, err
}

func writeFull(fd int, b []byte, at int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(fd, b, at)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

func readFull(fd int, b []byte, at int64) error {
	for len(b) > 0 {
		n, err := unix.Pread(fd, b, at)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return errors.New("it ends early")
		default:
			b, at = b[n:], at+int64(n)
		}
	}
	return nil
}

// record is one change.
type record struct {
	offset int64
	size   int
	op     byte
	key    []byte // good until the next record is read
}

// reader reads records one after the other.
type reader struct {
	fd   int
	size int64
	at   int64
	buf  []byte
}

// next returns the next whole record; false: there is none.
func (r *reader) next() (record, bool, error) {
	var head [headerSize]byte
	if r.size-r.at < headerSize {
		return record{}, false, nil
	}
	if err := readFull(r.fd, head[:], r.at); err != nil {
		return record{}, false, err
	}
	size := int64(binary.LittleEndian.Uint32(head[4:]))
	keySize := int64(binary.LittleEndian.Uint16(head[9:]))
	if size < headerSize+keySize || size > r.size-r.at || keySize == 0 || head[8] != opPut && head[8] != opDelete {
		return record{}, false, nil
	}
	r.buf = slices.Grow(r.buf[:0], int(size))[:size]
	if err := readFull(r.fd, r.buf, r.at); err != nil {
		return record{}, false, err
	}
	if crc32.Checksum(r.buf[4:], table) != binary.LittleEndian.Uint32(r.buf) {
		return record{}, false, nil
	}
	rec := record{offset: r.at, size: int(size), op: head[8], key: r.buf[headerSize : headerSize+keySize]}
	r.at += size
	return rec, true, nil
}
