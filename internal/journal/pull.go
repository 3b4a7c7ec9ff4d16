package journal

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

const (
	// pullSize is how much one pull through memory takes at most: the capacity
	// of a default pipe. A pipe that was found to be that full is enlarged.
	pullSize = 64 << 10

	// spliceSize is how much one splice moves at most. wmu is held meanwhile,
	// so it bounds how long the other stream's pump waits.
	spliceSize = 1 << 20
)

// AppendFrom makes one pull from fd, the reading end of a pipe in non-blocking
// mode, into the journal, and returns how many bytes it took: at most 1 MiB. It
// returns io.EOF at the end of the pipe, and unix.EAGAIN if the pipe is empty.
// A closed or released journal discards the bytes, so that a command that still
// writes is not blocked.
//
// Only one goroutine may pull from one fd: with two, bytes would be reordered.
//
// A pull is always a splice: a byte is either in the pipe or in a kept file,
// and the file's position, which the kernel moves with the bytes, says how many
// arrived. Read and write would be somewhat cheaper for producers that write a
// page at a time, but bytes that were read and not yet written would be lost if
// this process were killed.
func (j *Journal) AppendFrom(st Stream, fd int) (n int, err error) {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	return j.appendFrom(st, fd)
}

// appendFrom is AppendFrom. The caller must hold wmu.
func (j *Journal) appendFrom(st Stream, fd int) (n int, err error) {
	n, err = j.pull(st, fd)
	if errors.Is(err, errNoSplice) {
		n, err = j.pullBuffered(st, fd)
	}
	bit := uint8(1) << st
	if n >= pullSize && j.grownPipes&bit == 0 {
		j.grownPipes |= bit
		growPipe(fd)
	}
	return n, err
}

// errNoSplice means that splice can't be used.
var errNoSplice = errors.New("journal: no splice")

// pull splices the content of the pipe to where the next bytes go.
func (j *Journal) pull(st Stream, fd int) (n int, err error) {
	if j.closed || j.noSplice {
		return 0, errNoSplice
	}
	j.attachSegment()
	if j.segment.fd < 0 {
		return 0, errNoSplice
	}
	for {
		to, pos, room, err := j.place(st, fd)
		if err != nil {
			return 0, err
		}
		n, err := j.splice(st, fd, to, pos, room)
		switch {
		case n > 0:
			return n, nil
		case err == nil:
			return 0, io.EOF
		case errors.Is(err, unix.EAGAIN):
			return 0, err
		case errors.Is(err, unix.EINVAL) && to == toSpill:
			j.noSplice = true
			j.store.reportInexact(fmt.Errorf("journal: splice to spill file: %w", err))
			return 0, errNoSplice
		case errors.Is(err, unix.EBADF) || to == toSegment:
			return 0, errNoSplice // the read that follows returns the error
		}
		j.stop(fmt.Errorf("journal: splice to spill file: %w", err))
	}
}

// place returns where the next bytes of st go: the file, the position in it, and
// the room there. Bytes that go to the data of the live segment or to the head of
// the file overwrite nothing. Elsewhere they overwrite the oldest ones, so place
// first checks how many are in the pipe, and drops no more than that.
func (j *Journal) place(st Stream, fd int) (to, pos int64, room int, err error) {
	if j.spill == nil {
		if room := j.memoryRoom(st); room > 0 {
			return toSegment, dataAt + j.segment.base + int64(len(j.mem)), int(min(room, spliceSize)), nil
		}
	}
	want := spliceSize
	if !j.headOpen(st) {
		if want = min(pipeWaiting(fd), spliceSize); want == 0 {
			return 0, 0, 0, pipeState(fd)
		}
	}
	if j.spill == nil {
		j.toFile()
	} else if j.spill.ring != nil {
		j.tryResume()
	}
	if j.spill.ring == nil {
		pos, room = j.reserve(st, want)
		if room > 0 {
			return toSpill, pos, room, nil
		}
		j.stop(ErrTotalQuota)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	pos, room = j.reserveRing(st, want)
	return toSegment, ringAt + pos, room, nil
}

// headOpen reports whether bytes of st go to the head of the file, and the head
// has room.
func (j *Journal) headOpen(st Stream) bool {
	sp, s := j.spill, j.store
	return sp != nil && sp.ring == nil && sp.ringBase == never && j.size < j.headQuota &&
		(j.head.ends(st) || s.indexMayGrow(j.head.n)) && s.spilled.Load() < s.cfg.TotalQuota
}

// splice moves up to room bytes from the pipe to a position of a file, and
// makes them visible. Whenever this process is killed, the moved bytes are
// those between the saved position and the position that the file then has.
func (j *Journal) splice(st Stream, fd int, to, pos int64, room int) (int, error) {
	out, at := j.segment.fd, &j.segment.pos
	if to == toSpill {
		out, at = int(j.spill.file.Fd()), &j.spill.pos
	}
	if *at != pos {
		reached(beforeSeek)
		if _, err := unix.Seek(out, pos, io.SeekStart); err != nil {
			return 0, err
		}
		*at = pos
	}
	reached(beforeSave)
	j.saveWith(int64(st)+1, to, pos)
	reached(afterSave)
	// A pipe of the default size has little, and the memory that it goes to makes no
	// one wait.
	short := to == toSegment && j.grownPipes&(1<<st) == 0
	n, err := splicePipe(fd, out, room, short)
	reached(afterSplice)
	if n <= 0 {
		j.save()
		return 0, err
	}
	*at += int64(n)
	j.arrived(st, to, n)
	reached(afterCommit)
	return n, nil
}

// arrived makes n bytes of st visible that were moved to their place. The
// caller must hold wmu.
func (j *Journal) arrived(st Stream, to int64, n int) {
	if to == toSpill {
		j.commit(st, n)
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.spill == nil {
		j.mem = j.mem[:len(j.mem)+n]
	}
	j.publish(st, n)
}

// pullBuffered pulls through memory: where splice is refused, or the bytes are
// discarded.
func (j *Journal) pullBuffered(st Stream, fd int) (int, error) {
	buf := j.store.bufs.Get().(*[pullSize]byte)
	defer j.store.bufs.Put(buf)
	n, err := read(fd, buf[:])
	if err != nil {
		return 0, err
	}
	j.append(st, buf[:n])
	return n, nil
}

// AppendFromTerminal is AppendFrom for a terminal's master, as bytes of TTY.
// The kernel can't splice from a terminal to a file directly, only through a
// pipe: stageR and stageW are the ends of a non-blocking pipe that belongs to
// this terminal alone and is kept like the journal. Bytes that a killed process
// left in it come first.
//
// At the end of the terminal it returns io.EOF.
func (j *Journal) AppendFromTerminal(master, stageR, stageW int) (n int, err error) {
	j.wmu.Lock()
	defer j.wmu.Unlock()
	if !j.stageEmpty {
		n, err := j.appendFrom(TTY, stageR)
		if n > 0 || !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
		j.stageEmpty = true
	}
	// This takes no more than the pipe has room for, and the pipe is empty.
	n, err = splicePipe(master, stageW, pullSize, false)
	switch {
	case n > 0:
		j.stageEmpty = false
		moved, err := j.appendFrom(TTY, stageR)
		j.stageEmpty = moved == n
		return moved, err
	case err == nil || errors.Is(err, unix.EIO):
		return 0, io.EOF // EIO: no process has the other side open
	case errors.Is(err, unix.EAGAIN):
		return 0, err
	case errors.Is(err, unix.EINVAL):
		j.store.reportInexact(fmt.Errorf("journal: splice from terminal: %w", err))
		n, err := j.pullBuffered(TTY, master)
		if errors.Is(err, unix.EIO) {
			err = io.EOF
		}
		return n, err
	}
	return 0, fmt.Errorf("journal: splice output of terminal: %w", err)
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
