package journal

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// laneSeals keep a lane the size it is: its mapping can't be cut off under us.
const segmentSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// mapLane returns a new file in memory, mapped. Pages that are not used cost
// nothing.
func (s *Store) mapSegment() (*liveSegment, error) {
	fd, err := unix.MemfdCreate("trl-journal", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("journal: make a file in memory: %w", err)
	}
	size := s.newBounds.segmentSize()
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("journal: size a file in memory: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, segmentSeals); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("journal: seal a file in memory: %w", err)
	}
	return s.mapFile(fd, size)
}

// remapLane is mapLane of a lane that was made before a restart. It owns fd.
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
	l, err := s.mapFile(fd, int(st.Size))
	if err != nil {
		return nil, err
	}
	if b := l.header.bounds; !b.valid() || st.Size != int64(b.segmentSize()) {
		l.close()
		return nil, errNoSegment
	}
	return l, nil
}

func (s *Store) mapFile(fd, size int) (*liveSegment, error) {
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("journal: map a file in memory: %w", err)
	}
	return s.layoutSegment(fd, mem), nil
}

// clear gives back the pages of a lane, but the first.
func (l *liveSegment) clear() error {
	return unix.Fallocate(l.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, headAt, int64(len(l.mem)-headAt))
}

func (l *liveSegment) close() {
	if l.fd >= 0 {
		_ = unix.Munmap(l.mem)
		_ = unix.Close(l.fd)
	}
}

// clockNow is the clock that the times of Go count by, which goes on when this
// process does not.
func clockNow() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
