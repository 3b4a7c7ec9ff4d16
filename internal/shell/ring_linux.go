package shell

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/nowait"
)

// ring is where reports wait until the shells have acted on them and saved what
// they learned. It is a held memfd into which the status pipe is moved by
// splice(2); how far it is filled is the position of its open file description,
// which the holder's copy shares. So a report is in the pipe or in the ring,
// whenever this process is killed.
//
// It is filled from its beginning again when what is in it is no longer needed. A
// report is identified by where it ends, counted over all laps.
type ring struct {
	heldFD
	mem       []byte
	head      *ringHead
	end       int // filled so far
	delivered int // delivered so far
}

// ringHead is at the beginning of the memfd.
type ringHead struct {
	base atomic.Uint64 // where this lap began, counted over all laps
	next atomic.Uint64 // where the next will begin; valid once the position is less
}

const (
	ringData = 64 // after the head
	// ringLap is after how many bytes a new lap begins: two thousand reports.
	ringLap = 64 << 10
	// ringSize is room for the reports that ten thousand shells have not acted
	// upon yet. Pages that were never filled cost nothing.
	ringSize = 4 << 20
)

// openRing makes an empty ring. It is sealed, so no process can shrink it while it
// is mapped.
func (k keeper) openRing() (*ring, error) {
	fd, err := unix.MemfdCreate("reports", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	if err = unix.Ftruncate(fd, ringSize); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err == nil {
		_, err = unix.Seek(fd, ringData, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("memfd: %w", err), unix.Close(fd))
	}
	h, err := k.keepFD(fd)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return mapRing(h)
}

// mapRing maps a held ring, as far as it is filled.
func mapRing(h heldFD) (*ring, error) {
	at, err := unix.Seek(h.fd, 0, 1)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(h.fd, 0, ringSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the reports: %w", err)
	}
	r := &ring{heldFD: h, mem: mem, head: (*ringHead)(unsafe.Pointer(&mem[0])), end: int(at), delivered: ringData}
	if base := r.head.base.Load(); r.head.next.Load() > base+uint64(r.end-ringData) {
		r.head.base.Store(r.head.next.Load()) // an earlier daemon was killed while it began a lap
	}
	return r, nil
}

func (r *ring) unmap() error { return unix.Munmap(r.mem) }

// pull moves what is in the pipe.
func (r *ring) pull(pipe int) (int, error) {
	n, err := nowait.Splice(pipe, r.fd, ringSize-r.end, 0)
	if n > 0 {
		r.end += n
	}
	return n, err
}

// each calls deliver with the lines that came since the last call, and where each
// of them ends.
func (r *ring) each(deliver func(line []byte, at uint64)) {
	for {
		n := bytes.IndexByte(r.mem[r.delivered:r.end], '\n')
		if n < 0 {
			return
		}
		line := r.mem[r.delivered : r.delivered+n]
		r.delivered += n + 1
		if n > 0 {
			deliver(line, r.head.base.Load()+uint64(r.delivered-ringData))
		}
	}
}

// needsLap reports whether it is time for a new lap.
func (r *ring) needsLap() bool { return r.end-ringData >= ringLap }

// full reports whether a new lap must begin now.
func (r *ring) full() bool { return r.end == ringSize }

// lap begins a new lap. An incomplete line at the end is discarded: real reports
// begin with a newline, so it belongs to a flood without one.
func (r *ring) lap() error {
	next := r.head.base.Load() + uint64(r.end-ringData)
	r.head.next.Store(next)
	if _, err := unix.Seek(r.fd, ringData, 0); err != nil {
		return err
	}
	r.head.base.Store(next)
	r.end, r.delivered = ringData, ringData
	return nil
}
