package journal

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// segmentSeals fix the size of a live segment: it can't be truncated while it
// is mapped.
const segmentSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// mapSegment returns a new mapped memfd. Unused pages cost nothing.
func (s *Store) mapSegment() (*liveSegment, error) {
	fd, err := unix.MemfdCreate("trl-journal", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("journal: create memfd: %w", err)
	}
	size := s.newBounds.segmentSize()
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("journal: resize memfd: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, segmentSeals); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("journal: seal memfd: %w", err)
	}
	return s.mapFile(fd, size)
}

// remapSegment is mapSegment for a segment that was created before a restart.
// It takes ownership of fd.
func (s *Store) remapSegment(fd int) (*liveSegment, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil || seals&segmentSeals != segmentSeals || st.Size < dataAt || st.Size > dataAt+slack+maxSegmentMemory {
		_ = unix.Close(fd)
		return nil, errNoSegment
	}
	seg, err := s.mapFile(fd, int(st.Size))
	if err != nil {
		return nil, err
	}
	if b := seg.header.bounds; !b.valid() || st.Size != int64(b.segmentSize()) {
		seg.close()
		return nil, errNoSegment
	}
	return seg, nil
}

func (s *Store) mapFile(fd, size int) (*liveSegment, error) {
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("journal: map memfd: %w", err)
	}
	return s.layoutSegment(fd, mem), nil
}

// clear returns the pages of a live segment, except the first, to the system.
func (seg *liveSegment) clear() error {
	return unix.Fallocate(seg.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, headAt, int64(len(seg.mem)-headAt))
}

func (seg *liveSegment) close() {
	if seg.fd >= 0 {
		_ = unix.Munmap(seg.mem)
		_ = unix.Close(seg.fd)
	}
}

// clockNow returns the time of the monotonic clock that Go uses. It continues
// across restarts of this process.
func clockNow() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
