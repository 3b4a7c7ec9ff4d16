//go:build linux

package ledger

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
)

// Rewrite replaces all that the ledger holds, in one step: a process that is
// killed meanwhile leaves the ledger as it was.
func (l *Ledger) Rewrite(records map[string][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	fd, err := newMemory()
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	places := make(map[string]place, len(records))
	var buf []byte
	var end int64
	for _, key := range slices.Sorted(maps.Keys(records)) {
		buf = appendRecord(buf[:0], opPut, key, records[key])
		if err = writeFull(fd, buf, end); err != nil {
			break
		}
		places[key] = place{end, len(buf)}
		end += int64(len(buf))
	}
	if err == nil {
		err = l.keep.Replace(holder.Root, fd)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("ledger: %w", err), unix.Close(fd))
	}
	l.unmap()
	_ = unix.Close(l.fd)
	l.fd, l.end, l.live, l.records = fd, end, end, places
	return nil
}

// Copy returns a descriptor of memory that holds what the ledger holds now, for
// Read in another process.
func (l *Ledger) Copy() (fd int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fd, err = newMemory(); err != nil {
		return -1, fmt.Errorf("ledger: %w", err)
	}
	if _, err = l.copyTo(fd, map[string]place{}); err != nil {
		return -1, errors.Join(fmt.Errorf("ledger: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// Read returns what the memory behind a descriptor holds, in the order of the
// keys. It changes nothing.
func Read(fd int) (iter.Seq2[string, []byte], error) {
	l := &Ledger{fd: fd, records: map[string]place{}}
	if err := l.replay(); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return l.All(), nil
}
