//go:build linux

package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Rewrite atomically replaces the whole content of the ledger: if the process
// is killed meanwhile, the ledger stays as it was.
func (l *Ledger) Rewrite(values map[string][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.rewriteWith(func(fd int, records map[string]location) (end int64, err error) {
		end = firstSize
		var buf []byte
		for _, key := range slices.Sorted(maps.Keys(values)) {
			buf = appendRecord(buf[:0], opPut, key, values[key])
			if err := writeFull(fd, buf, end); err != nil {
				return 0, err
			}
			records[key] = location{end, len(buf), len(key)}
			end += int64(len(buf))
		}
		return end, nil
	})
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

// Copy returns a descriptor of memory with the current content of the ledger,
// for Read in another process. It fails if a record was overwritten.
func (l *Ledger) Copy() (fd int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fd, err = newMemory(); err != nil {
		return -1, fmt.Errorf("ledger: %w", err)
	}
	known := len(l.damage)
	_, err = l.copyTo(fd, map[string]location{})
	if err == nil && len(l.damage) > known {
		err = fmt.Errorf("records were overwritten: %v", l.damage[known:])
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("ledger: %w", err), unix.Close(fd))
	}
	return fd, nil
}
