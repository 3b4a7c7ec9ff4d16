//go:build linux

package ledger

import (
	"errors"

	"golang.org/x/sys/unix"
)

// newMemory creates a ledger without records. It starts with a wiped record, so
// that memory that was overwritten with zeros is not mistaken for an empty
// ledger.
func newMemory() (fd int, err error) {
	fd, err = unix.MemfdCreate("ledger", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, err
	}
	err = writeFull(fd, append(appendWiped(nil, firstSize, 0), make([]byte, firstSize-headerSize)...), 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// isSealed reports whether the memory is sealed against truncation.
func isSealed(fd int) bool {
	has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil && has&unix.F_SEAL_SHRINK != 0
}

// memoryOf returns the whole content of a ledger. If it could be truncated
// meanwhile, it is copied instead of mapped.
func memoryOf(fd int, sealed bool) (mem []byte, release func(), err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, nil, err
	}
	if st.Size == 0 {
		return nil, func() {}, nil
	}
	if sealed {
		mem, err = unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
		return mem, func() { _ = unix.Munmap(mem) }, err
	}
	mem = make([]byte, st.Size)
	n, err := readMost(fd, mem, 0)
	return mem[:n], func() {}, err
}

func punch(fd int, offset int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size <= offset {
		return err
	}
	return fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, st.Size-offset)
}

func fallocate(fd int, mode uint32, offset, size int64) error {
	for {
		if err := unix.Fallocate(fd, mode, offset, size); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
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
	n, err := readMost(fd, b, at)
	if err == nil && n < len(b) {
		err = errors.New("unexpected end of memory")
	}
	return err
}

// readMost reads until b is full or the memory ends.
func readMost(fd int, b []byte, at int64) (n int, err error) {
	for n < len(b) {
		got, err := unix.Pread(fd, b[n:], at+int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return n, err
		case got == 0:
			return n, nil
		default:
			n += got
		}
	}
	return n, nil
}
