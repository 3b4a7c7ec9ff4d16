package exec

import (
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// input is a command's standard input: a memfd that has all of it, or a pipe that
// exec.input writes to. Neither is ever on a disk, and the holder has both ends, so
// the command can go on reading while no daemon runs.
//
// What exec.input sends goes into a buffer that the holder has too, is persisted,
// and only then moves to the pipe. The daemon can be killed at any instruction: no
// input is sent in part, and the next daemon continues from the buffer.
type input struct {
	keeper  holder.Keeper
	spawn   func(func())  // starts a goroutine
	persist func()        // persists the slots
	read    int           // end that the command reads; the shell opens it by path
	turn    arrival.Turn  // of callers that add to the buffer
	ended   chan struct{} // closed when nothing is taken any more

	mu             sync.Mutex
	slots          inputSlots
	pendingRelease []holder.Slot // unused, but the ledger may still name them
	pipe           *os.File      // writing end; nil when there is nothing to write to
	buffer         *inputBuffer  // nil means that nothing was buffered yet
	eof            bool          // nothing comes after what is in the buffer
	ready          int64         // the buffer is persisted, and may move, up to here
	eofReady       bool          // eof is persisted too
	moving         bool          // a goroutine moves what is ready
	progress       chan struct{} // closed when something has moved; nil if no caller waits for that
	failed         error         // why the pipe takes nothing any more
	done           bool
	accepted       int64 // input up to here was accepted from callers
	unread         int64 // what the command did not read of that; set by close
}

// open makes the input with data in it. If it stays open for exec.input it is a
// pipe, otherwise a memfd.
func (in *input) open(data []byte, staysOpen bool) (err error) {
	if !staysOpen {
		if in.read, err = memfdWith(data); err == nil {
			in.slots.read, err = in.keeper.Keep(in.read)
		}
		return err
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	in.read = p[0]
	if err := unix.SetNonblock(p[1], true); err != nil { // our end only; the command's end blocks
		return errors.Join(err, unix.Close(p[1]))
	}
	in.pipe = os.NewFile(uintptr(p[1]), "stdin")
	if in.slots.read, err = in.keeper.Keep(p[0]); err != nil {
		return err
	}
	if in.slots.write, err = in.keeper.Keep(p[1]); err != nil || len(data) == 0 {
		return err
	}
	if in.buffer, in.slots.buffer, err = in.makeBuffer(); err != nil {
		return err
	}
	if err := in.buffer.write(data); err != nil {
		return err
	}
	in.buffer.end, in.ready = int64(len(data)), int64(len(data))
	return nil
}

// makeBuffer makes a buffer. The holder has it after the next Sync of the keeper.
func (in *input) makeBuffer() (*inputBuffer, holder.Slot, error) {
	buffer, err := newInputBuffer()
	if err != nil {
		return nil, 0, err
	}
	slot, err := in.keeper.Keep(buffer.fd)
	if err != nil {
		buffer.close()
		return nil, 0, err
	}
	return buffer, slot, nil
}

// adopt takes the input of an earlier daemon from the holder. end is where its
// buffer ends according to the ledger, nil if that is unknown.
func (in *input) adopt(end *int64) (err error) {
	if in.read, err = in.keeper.Take(in.slots.read); err != nil || in.slots.write == 0 {
		return err
	}
	fd, err := in.keeper.Take(in.slots.write)
	if err != nil {
		return err
	}
	in.pipe = os.NewFile(uintptr(fd), "stdin")
	if in.slots.buffer == 0 {
		return nil
	}
	if fd, err = in.keeper.Take(in.slots.buffer); err != nil {
		return err
	}
	if in.buffer, err = adoptInputBuffer(fd, end); err != nil {
		return err
	}
	in.ready = in.buffer.end
	return nil
}

// path returns the path by which the command's shell opens it.
func (in *input) path() string { return in.keeper.Path(in.slots.read) }

func memfdWith(data []byte) (int, error) {
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if err := writeAll(fd, data, 0); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

const (
	// inputPiece is how much of an input that may be split is buffered at once: a
	// client that takes over the keyboard waits for no more than that.
	inputPiece = 256 << 10
	// pipeBytes is how much an unread pipe takes. Unread bytes count, in the pipe
	// or before it: many small writes fill a pipe before its bytes do.
	pipeBytes = 64 << 10
)

// size returns how many bytes the command was ever sent.
func (in *input) size() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.buffer == nil {
		return 0
	}
	return in.buffer.end
}

// atEOF reports whether no more input can come.
func (in *input) atEOF() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.eof
}

// errClosed returns an error if no more input can be added.
func (in *input) errClosed() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.pipe != nil && !in.eof && !in.done {
		return nil
	}
	return api.Errorf(api.CodeInvalidParams, "the command's stdin is closed").
		WithHint("start the command with stdin_open: true to write to it later")
}

// room waits until some of rest bytes may be added, and returns how many. The
// caller must have the turn.
func (in *input) room(ctx, epoch context.Context, s *InputRequest, rest int) (n int, err error) {
	err = in.await(ctx, epoch, func() bool {
		var held int64
		if in.buffer != nil {
			held = in.buffer.end - in.buffer.moved
		}
		if s.Whole {
			n = rest
			return held == 0 || held+int64(rest) <= s.MaxBuffer
		}
		n = min(rest, int(max(inputPiece-held, 0)))
		return n > 0 || rest == 0
	})
	return n, err
}

// ensureBuffer makes the buffer for the first input and persists its slot. The
// caller must have the turn.
func (in *input) ensureBuffer() error {
	in.mu.Lock()
	has := in.buffer != nil
	in.mu.Unlock()
	if has {
		return nil
	}
	buffer, slot, err := in.makeBuffer()
	if err != nil {
		return errNotKept(err)
	}
	if err = in.keeper.Sync(); err == nil {
		in.mu.Lock()
		if !in.done {
			in.buffer, in.slots.buffer = buffer, slot
		}
		err = in.errEnded()
		in.mu.Unlock()
	}
	if err != nil {
		buffer.close()
		in.keeper.Drop(slot)
		return errNotKept(err)
	}
	in.persist()
	return nil
}

// put writes a piece behind the end of the buffer; extend makes it a part of it.
// The caller must have the turn.
func (in *input) put(piece []byte) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if err := in.errEnded(); err != nil {
		return err
	}
	if err := in.buffer.write(piece); err != nil {
		return errNotKept(err)
	}
	return nil
}

func errNotKept(err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	return api.Errorf(api.CodeInternal, "store the input: %w", err).
		WithHint("the daemon is out of memory or descriptors: try again, or destroy sessions that are not needed")
}

// extend adds n bytes that were put to the buffer, and sets whether they are the
// last. They may move once this is persisted: see commit.
func (in *input) extend(n int, eof bool) (end int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.buffer.end += int64(n)
	in.eof = in.eof || eof
	return in.buffer.end
}

// commit lets everything in the buffer move.
func (in *input) commit() {
	in.mu.Lock()
	in.ready, in.eofReady = in.buffer.end, in.eof
	in.mu.Unlock()
	in.startMove()
}

// awaitTaken waits until at most as much as fits into a pipe is unread, up to an
// offset.
func (in *input) awaitTaken(ctx, epoch context.Context, to int64) error {
	return in.await(ctx, epoch, func() bool {
		if in.buffer == nil || in.buffer.moved >= to {
			return true
		}
		if in.done {
			return false
		}
		unread, err := unix.IoctlGetInt(in.read, unix.TIOCINQ) // the kernel's FIONREAD
		return err == nil && to-in.buffer.moved+int64(unread) <= pipeBytes
	})
}

// await waits until enough returns true. It calls enough with mu held.
func (in *input) await(ctx, epoch context.Context, enough func() bool) error {
	for {
		in.mu.Lock()
		if enough() {
			in.mu.Unlock()
			return nil
		}
		if err := in.errEnded(); err != nil {
			in.mu.Unlock()
			return err
		}
		if in.progress == nil {
			in.progress = make(chan struct{})
		}
		moved := in.progress
		in.mu.Unlock()
		select {
		case <-moved:
		case <-in.ended:
		case <-epoch.Done():
			return epoch.Err()
		case <-ctx.Done():
			return arrival.ErrCallerLeft(ctx)
		}
	}
}

// errEnded returns an error if the pipe takes nothing any more. The caller must
// hold mu.
func (in *input) errEnded() error {
	why := in.failed
	if in.done {
		why = errors.New("the command has ended")
	}
	if why == nil {
		return nil
	}
	return terminal.ErrNotTaken(why)
}

// accept records that the input up to an offset is accepted: its caller gets no
// error.
func (in *input) accept(to int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.accepted = max(in.accepted, to)
}

// taken returns how much the pipe has taken.
func (in *input) taken() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.buffer == nil {
		return 0
	}
	return in.buffer.moved
}

// startMove moves what is ready to the pipe. What the pipe does not take at once a
// goroutine moves when the command has read.
func (in *input) startMove() {
	in.mu.Lock()
	pipe := in.pipe
	start := pipe != nil && !in.moving
	in.moving = in.moving || start
	in.mu.Unlock()
	if !start {
		return
	}
	raw, err := pipe.SyscallConn()
	if err != nil {
		return // it was closed: the command has ended
	}
	var all bool
	_ = raw.Write(func(fd uintptr) bool { // an error means the same
		all = in.move(int(fd))
		return true
	})
	if all {
		in.closeAtEnd()
		return
	}
	in.spawn(func() {
		if raw.Write(func(fd uintptr) bool { return in.move(int(fd)) }) == nil {
			in.closeAtEnd()
		}
	})
}

// move moves what is ready, and reports whether nothing is left to do.
func (in *input) move(pipe int) (all bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for !in.done && in.failed == nil && in.buffer != nil && in.buffer.moved < in.ready {
		n, err := in.buffer.moveTo(pipe, in.ready-in.buffer.moved)
		switch {
		case err != nil:
			in.failed = err
		case n == 0:
			return false
		}
		in.buffer.took(n)
		in.wake()
	}
	in.moving = false
	return true
}

// wake wakes callers that wait for progress. The caller must hold mu.
func (in *input) wake() {
	if in.progress != nil {
		close(in.progress)
		in.progress = nil
	}
}

// closeAtEnd closes the pipe if it has taken everything and no more can come.
func (in *input) closeAtEnd() {
	in.mu.Lock()
	end := in.eofReady && in.pipe != nil && (in.buffer == nil || in.buffer.moved == in.ready)
	in.mu.Unlock()
	if end && in.closePipe() {
		in.persist() // only after that may the holder drop its end
	}
}

// closePipe closes the pipe and reports whether it was open.
func (in *input) closePipe() bool {
	in.mu.Lock()
	pipe := in.pipe
	in.pipe = nil
	if pipe != nil {
		in.retire(&in.slots.write)
	}
	in.mu.Unlock()
	if pipe != nil {
		_ = pipe.Close() // not under mu: Close waits for move
	}
	return pipe != nil
}

// retire marks a slot as unused. The caller must hold mu.
func (in *input) retire(slot *holder.Slot) {
	if *slot != 0 {
		in.pendingRelease = append(in.pendingRelease, *slot)
		*slot = 0
	}
}

// slotsToPersist returns the slots to persist, and those that may be dropped after
// that: a slot that the ledger names must not be reused.
func (in *input) slotsToPersist() (slots inputSlots, unused []holder.Slot) {
	in.mu.Lock()
	defer in.mu.Unlock()
	unused, in.pendingRelease = in.pendingRelease, nil
	return in.slots, unused
}

func (in *input) dropSlots(unused []holder.Slot) {
	for _, slot := range unused {
		in.keeper.Drop(slot)
	}
}

// close closes everything.
func (in *input) close() {
	in.closePipe()
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.done {
		return
	}
	in.done = true
	close(in.ended)
	if in.buffer != nil && in.read >= 0 {
		piped, _ := unix.IoctlGetInt(in.read, unix.TIOCINQ) // it does not fail for a pipe
		in.unread = max(0, in.accepted-in.buffer.moved) + int64(piped)
	}
	if in.read >= 0 {
		_ = unix.Close(in.read)
	}
	in.retire(&in.slots.read)
	if in.buffer != nil {
		in.buffer.close()
		in.retire(&in.slots.buffer)
	}
}

// InputRequest is one call of exec.input.
type InputRequest struct {
	Data      []byte
	EOF       bool
	Whole     bool   // all of the data, or nothing
	At        *int64 // offset of its first byte; nil means after what there is
	KeyHash   uint64 // hash of its key; 0 means that it has none
	Sum       uint32 // checksum of its params
	MaxBuffer int64  // how many bytes the buffer may hold
	// ShellIsAlone reports whether the command runs in its shell alone, with no
	// process of its own. It is called on a terminal only.
	ShellIsAlone func() bool

	Sent      int   // bytes of Data that the command was sent
	Next      int64 // offset after the last of them
	Uncertain bool  // a daemon died while it typed them
}
