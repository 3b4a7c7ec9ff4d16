package journal

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

const (
	// pullSize is what one pull through memory takes at most: all that a
	// default pipe holds.
	pullSize = 64 << 10

	// spliceSize is what one splice moves at most. wmu is held meanwhile, so
	// it bounds how long the other stream's pump waits.
	spliceSize = 1 << 20
)

// AppendFrom makes one pull from fd, the reading end of a pipe in non-blocking
// mode, into the journal, and returns how many bytes it took: at most 1 MiB. At
// the end of the pipe it returns io.EOF, and unix.EAGAIN when nothing is there
// now. A closed or released journal discards the bytes, so that a command that
// goes on writing is not blocked.
//
// Only one goroutine pulls from one fd: the bytes of two would change places.
//
// A pull that finds little goes through a buffer; one that follows a full one is
// a splice, if the journal is in a file. That is by measurement: of producers
// that write a page at a time, splicing every page takes a third more processor
// time than read and write (a splice keeps the pipe locked while it copies into
// the file, and allocates for every slot of the pipe), and the rate falls from
// that of cat to 0.7 of it. From 64 KiB on splice is the cheaper one, and touches
// no user memory.
func (j *Journal) AppendFrom(st Stream, fd int) (n int, err error) {
	if n := j.splice(st, fd); n > 0 {
		return n, nil
	}
	buf := j.store.bufs.Get().(*[pullSize]byte)
	defer j.store.bufs.Put(buf)
	n, err = read(fd, buf[:])
	if err != nil {
		return 0, err
	}

	j.wmu.Lock()
	defer j.wmu.Unlock()
	j.append(st, buf[:n])
	bit := uint8(1) << st
	if n < pullSize {
		j.hot &^= bit
		return n, nil
	}
	j.hot |= bit
	if j.big&bit == 0 {
		j.big |= bit
		growPipe(fd)
	}
	return n, nil
}

// splice moves what is in the pipe to the file if that is worth it, and returns
// 0 if it is not or can't be done: the caller then pulls through a buffer,
// which sorts out the end of the pipe too.
func (j *Journal) splice(st Stream, fd int) int {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	sp := j.spill
	if j.hot&(1<<st) == 0 || j.noSplice || j.closed || sp == nil || sp.ring != nil {
		return 0
	}
	// Knowing what is there, no more of the tail is dropped than is replaced.
	waiting := pipeWaiting(fd)
	if waiting < pullSize {
		return 0
	}
	pos, n := j.reserve(st, min(waiting, spliceSize))
	if n == 0 {
		j.stop(ErrTotalQuota)
		return 0
	}
	n, err := splicePipe(fd, int(sp.file.Fd()), pos, n)
	j.commit(st, n)
	switch {
	case err == nil || errors.Is(err, unix.EAGAIN):
	case errors.Is(err, unix.EINVAL):
		j.noSplice = true
	default:
		j.stop(fmt.Errorf("journal: splice to spill file: %w", err))
	}
	return max(n, 0)
}

// read makes one read from fd.
func read(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Read(fd, p)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, err
		case err != nil:
			return 0, fmt.Errorf("journal: read output: %w", err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}
