package holder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// kind says what a record is about.
type kind uint8

// From the daemon; the first three carry or free descriptors.
const (
	wantKeep     kind = iota + 1 // a slot, with a descriptor; flags: keepNew
	wantDrop                     // a slot
	wantTake                     // a slot → gotTake with the descriptor
	wantSync                     // → gotSync
	wantGroup                    // num: pid → gotGroup
	wantTrack                    // num: pid → gotExit, when it has ended
	wantForget                   // num: pid, whose exit is recorded
	wantCount                    // → gotCount
	wantExitMode                 // value: exit code, flags: a Parting
)

// From the holder.
const (
	gotHello kind = iota + 65 // num: pid of the holder, value: oom_score_adj to have, id: the host's number, flags: helloAgain, extra: the last generation that was used
	gotSlot                   // a slot that is in use
	gotTrack                  // num: a pid that is tracked and alive
	gotReady                  // the hello ends
	gotTake                   // value: errno; with a descriptor if it is 0
	gotSync
	gotGroup   // value: errno
	gotExit    // num: pid, value: wait status, extra: nanoseconds of processor time
	gotCount   // extra: how many untracked processes were reaped
	gotRefused // a slot, value: errno, flags: the kind of what was refused
)

// Only in what a holder leaves to the program it becomes, see renew. The kinds
// are tags: a program skips those that it does not know, and does without those
// that an earlier one did not write. Numbers are never given another meaning.
const (
	savedHeader     kind = iota + 129 // num: pid of the holder, value: oom_score_adj of the others, id: the host's number, extra: how many untracked processes were reaped
	savedRecent                       // as gotExit, of an untracked process
	savedCleaner                      // num: pid of the undertaker, value: writing end of its pipe
	savedEnd                          // nothing follows
	savedGeneration                   // extra: the last generation that was used
)

// Parting says what is to become of the sessions of a daemon that ends on
// purpose.
type ExitMode uint8

// The ways to part.
const (
	Stop    ExitMode = iota // they have ended, and the holder ends too
	Detach                  // they are kept without a daemon until SIGUSR1 asks for one
	Restart                 // another daemon follows at once, of the program that is now in its place
)

const (
	helloRestarted = 1 // of gotHello: there was a daemon before this one
	keepNew        = 1 // of wantKeep: the number is free, and nothing is replaced
)

// errOther is the errno of ErrOther.
const errnoStale = unix.ESTALE

// slotRecord is a record about a slot.
func slotRecord(k kind, slot Slot) record {
	return record{kind: k, num: int32(slot.Number()), extra: slot.Generation()}
}

// slot returns the slot that a record is about, and a negative number for one
// that can't be.
func (r record) slot() Slot {
	if r.num < 0 || r.num > maxNumber || r.extra < 0 || r.extra > maxGeneration {
		return -1
	}
	return newSlot(int(r.num), r.extra)
}

// maxGeneration is the last that a Slot has room for.
const maxGeneration = 1<<(63-numberBits) - 1

// lostFD stands for a descriptor that came with a packet and that this process
// had no number left for.
const lostFD = -2

// record is one message. All are of one size, so there is nothing to parse.
type record struct {
	kind  kind
	flags uint8
	id    uint32 // of a question, chosen by who asks
	num   int32
	value int32
	extra int64
}

const (
	recordSize = 24
	// packetRecords bounds how many records travel in one packet; only hello
	// has many, and a packet then is as long as a page.
	packetRecords = 170
)

func (r record) append(b []byte) []byte {
	b = append(b, byte(r.kind), r.flags, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, r.id)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.num))
	b = binary.LittleEndian.AppendUint32(b, uint32(r.value))
	return binary.LittleEndian.AppendUint64(b, uint64(r.extra))
}

func readRecord(b []byte) record {
	return record{
		kind: kind(b[0]), flags: b[1],
		id:    binary.LittleEndian.Uint32(b[4:]),
		num:   int32(binary.LittleEndian.Uint32(b[8:])),
		value: int32(binary.LittleEndian.Uint32(b[12:])),
		extra: int64(binary.LittleEndian.Uint64(b[16:])),
	}
}

// errMalformed ends a connection: both ends are one binary, so one of them is
// out of its mind.
var errMalformed = errors.New("malformed message")

// packets reads from one end of a connection. It belongs to one goroutine.
type packetReader struct {
	conn int
	buf  [packetRecords * recordSize]byte
	oob  [64]byte // room for more than the one descriptor that may come
}

// next reads a packet. fd is -1 if none came with it, lostFD if it could not be
// received, and the caller's else.
// io.EOF means that the other end is gone.
func (p *packetReader) next(each func(record, int) error) error {
	n, nrights, flags, _, err := unix.Recvmsg(p.conn, p.buf[:], p.oob[:], unix.MSG_CMSG_CLOEXEC)
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case errors.Is(err, unix.ECONNRESET):
		return io.EOF
	case err != nil:
		return fmt.Errorf("receive: %w", err)
	case n == 0 && nrights == 0:
		return io.EOF
	}
	fds := parseFDs(p.oob[:nrights])
	fd := -1
	if len(fds) == 1 {
		fd = fds[0]
	}
	what := ""
	switch {
	case flags&unix.MSG_CTRUNC != 0 && len(fds) == 0 && n == recordSize:
		fd = lostFD // there was no number for it; what it came with can be refused
	case flags&unix.MSG_CTRUNC != 0:
		what = "a descriptor was lost on its way; is the limit of open files too low?"
	case flags&unix.MSG_TRUNC != 0 || n%recordSize != 0:
		what = fmt.Sprintf("%d bytes are no whole number of records", n)
	case len(fds) > 1 || fd >= 0 && n != recordSize:
		what = fmt.Sprintf("%d descriptors came with %d records", len(fds), n/recordSize)
	}
	if what != "" {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return fmt.Errorf("%w: %s", errMalformed, what)
	}
	for at := 0; at < n; at += recordSize {
		if err := each(readRecord(p.buf[at:]), fd); err != nil {
			return err
		}
	}
	return nil
}

// descriptors returns what came with a packet.
func parseFDs(oob []byte) (fds []int) {
	if len(oob) == 0 {
		return nil // as most do
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil // the kernel wrote it; what was cut short is told by MSG_CTRUNC
	}
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// send writes one packet and waits for room.
func send(conn int, packet []byte, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	for {
		err := unix.Sendmsg(conn, packet, rights, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
