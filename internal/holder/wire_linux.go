package holder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// kind is the type of a record.
type kind uint8

// Sent by the daemon; the first three carry or release descriptors.
const (
	wantKeep     kind = iota + 1 // a slot, with a descriptor; flags: keepNew
	wantDrop                     // a slot
	wantTake                     // a slot → gotTake with the descriptor
	wantSync                     // → gotSync
	wantGroup                    // num: pid → gotGroup
	wantTrack                    // num: pid → gotExit, when it has ended
	wantForget                   // num: pid of a process whose exit is recorded
	wantCount                    // → gotCount
	wantExitMode                 // value: exit code, flags: an ExitMode
)

// Sent by the holder.
const (
	gotHello kind = iota + 65 // num: pid of the holder, value: oom_score_adj for the daemon, id: the host's number, flags: helloRestarted, extra: last generation that was used
	gotSlot                   // a slot that is in use
	gotTrack                  // num: a pid that is tracked and alive
	gotReady                  // end of the hello
	gotTake                   // value: errno; with a descriptor if it is 0
	gotSync
	gotGroup   // value: errno
	gotExit    // num: pid, value: wait status, extra: CPU time in nanoseconds
	gotCount   // extra: number of untracked processes that were reaped
	gotRefused // a slot, value: errno, flags: kind of the refused request
)

// Used only in the state that a holder passes to the program it executes, see
// reexec. The kinds are tags: a program skips those that it does not know, and
// works without those that an older version did not write. Numbers are never
// reused for another meaning.
const (
	savedHeader     kind = iota + 129 // num: pid of the holder, value: oom_score_adj for the daemon, id: the host's number, extra: number of untracked processes that were reaped
	savedRecent                       // like gotExit, for an untracked process
	savedCleaner                      // num: pid of the cleaner, value: writing end of its pipe
	savedEnd                          // end of the state
	savedGeneration                   // extra: last generation that was used
)

// ExitMode says what happens to the sessions of a daemon that exits on purpose.
type ExitMode uint8

// The exit modes.
const (
	Stop    ExitMode = iota // the sessions have ended, and the holder exits too
	Detach                  // the holder keeps the sessions without a daemon until SIGUSR1 asks for one
	Restart                 // the holder starts another daemon at once, from the program that is now at its path
)

const (
	helloRestarted = 1 // in gotHello: there was a daemon before this one
	keepNew        = 1 // in wantKeep: the number is free, and nothing is replaced
)

// errnoStale is the errno that stands for ErrStale.
const errnoStale = unix.ESTALE

// slotRecord returns a record about a slot.
func slotRecord(k kind, slot Slot) record {
	return record{kind: k, num: int32(slot.Number()), extra: slot.Generation()}
}

// slot returns the slot that a record is about, and a negative number if it is
// out of range.
func (r record) slot() Slot {
	if r.num < 0 || r.num > maxNumber || r.extra < 0 || r.extra > maxGeneration {
		return -1
	}
	return newSlot(int(r.num), r.extra)
}

// maxGeneration is the largest generation that fits in a Slot.
const maxGeneration = 1<<(63-numberBits) - 1

// lostFD stands for a descriptor that came with a packet but could not be
// received, because this process had no free number for it.
const lostFD = -2

// record is one message. All have the same size, so no parsing is needed.
type record struct {
	kind  kind
	flags uint8
	id    uint32 // of a request, chosen by the sender
	num   int32
	value int32
	extra int64
}

const (
	recordSize = 24
	// packetRecords bounds how many records one packet holds; only the hello
	// has many, and its packets are about a page long.
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

// errMalformed ends a connection: both ends are the same binary, so a malformed
// message is a bug.
var errMalformed = errors.New("malformed message")

// packetReader reads from one end of a connection. It is not safe for
// concurrent use.
type packetReader struct {
	conn int
	buf  [packetRecords * recordSize]byte
	oob  [64]byte // room for more than the one descriptor that is allowed
}

// next reads a packet and calls each for its records. fd is -1 if no descriptor
// came with it, lostFD if the descriptor could not be received; otherwise each
// owns it. next returns io.EOF when the other end is gone.
func (p *packetReader) next(each func(record, int) error) error {
	n, nrights, flags, _, err := unix.Recvmsg(p.conn, p.buf[:], p.oob[:], unix.MSG_CMSG_CLOEXEC)
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case errors.Is(err, unix.ECONNRESET):
		// The other end closed without having read everything. The kernel reports
		// that once, before what the other end sent; EOF follows that.
		return nil
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
		fd = lostFD // no free number; the request it came with can be refused
	case flags&unix.MSG_CTRUNC != 0:
		what = "a descriptor was lost in transit; is the limit of open files too low?"
	case flags&unix.MSG_TRUNC != 0 || n%recordSize != 0:
		what = fmt.Sprintf("%d bytes are not a whole number of records", n)
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

// parseFDs returns the descriptors that came with a packet.
func parseFDs(oob []byte) (fds []int) {
	if len(oob) == 0 {
		return nil // the common case
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil // written by the kernel; truncation is reported by MSG_CTRUNC
	}
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// send writes one packet, waiting for buffer space.
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
