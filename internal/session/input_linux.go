package session

import (
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
)

// input is a command's standard input: a memfd that holds all of it, or a pipe
// that exec.input writes to. Neither is ever on a disk, and the holder has both
// ends: the command goes on reading while no daemon is there.
//
// What exec.input is given goes into a buffer that is kept, is noted, and only then
// moves to the pipe. A daemon that is killed at any instruction leaves nothing half,
// and the next one knows what it has.
type input struct {
	keeper  holder.Keeper
	spawn   func(func())  // starts a goroutine
	persist func()        // notes the slots
	read    int           // end that the command reads, for the shell to open by path
	turn    turn          // of who adds to the buffer
	ended   chan struct{} // closed when nothing is taken any more

	mu             sync.Mutex
	slots          inputSlots
	pendingRelease []holder.Slot // not in use any more, but a note may name them
	pipe           *os.File      // writing end; nil when there is nothing to write to
	buffer         *inputBuffer  // nil: there was nothing to put into it
	eof            bool          // nothing comes after what is in the buffer
	ready          int64         // so much of the buffer is noted, and may move
	eofReady       bool          // that it ends there is noted too
	moving         bool          // somebody moves what is ready
	progress       chan struct{} // closed when some has moved; nil: nobody waits for it
	failed         error         // why the pipe takes nothing any more
	done           bool
}

// inputSlots are where the holder has a command's input; 0: it has no such.
type inputSlots struct{ read, write, buffer holder.Slot }

// newInput makes the command's stdin. With open it stays open after data.
func (e *Exec) newInput(data []byte, open bool) error {
	in := e.makeInput()
	err := in.open(data, open)
	if err == nil {
		err = in.keeper.Sync()
	}
	if err != nil {
		in.close()
		_, spent := in.slotsToPersist()
		in.dropSlots(spent)
		return err
	}
	e.stdin = in
	return nil
}

// adoptInput takes the command's stdin from before a restart. Of one that got nothing
// later than with the command, nothing more is known.
func (e *Exec) adoptInput(slots inputSlots, known *inputState) error {
	in := e.makeInput()
	in.slots = slots
	var end *int64
	if known != nil {
		in.eof, in.eofReady, end = known.eof, known.eof, &known.end
	}
	if err := in.adopt(end); err != nil {
		in.close() // what there is in the slots nobody has then
		return err
	}
	e.stdin = in
	return nil
}

func (e *Exec) makeInput() *input {
	p := e.session.pool
	return &input{keeper: p.cfg.Keeper, spawn: p.spawn, persist: func() { e.persist() }, read: -1, ended: make(chan struct{})}
}

func (in *input) open(data []byte, open bool) (err error) {
	if !open {
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
	if err := unix.SetNonblock(p[1], true); err != nil { // ours; the command's end blocks
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

// makeBuffer makes a buffer that is kept by the time the keeper is next in sync.
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

// path is how the command's shell opens it.
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
	// inputPiece is how much of an input that may come in pieces is buffered at
	// once: who takes over the keyboard has no more before it.
	inputPiece = 256 << 10
	// pipeBytes is what a pipe takes that nobody reads. What counts are bytes that
	// are unread, in the pipe or before it: many small pieces are more than a pipe
	// has places for.
	pipeBytes = 64 << 10
)

// size is how much the command was given, ever.
func (in *input) size() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.buffer == nil {
		return 0
	}
	return in.buffer.end
}

// atEOF reports whether nothing can come any more.
func (in *input) atEOF() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.eof
}

// errClosed returns an error if nothing can be added any more.
func (in *input) errClosed() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.pipe != nil && !in.eof && !in.done {
		return nil
	}
	return api.Errorf(api.CodeInvalidParams, "the command's stdin is closed").
		WithHint("start the command with stdin_open: true to write to it later")
}

// room waits until a part of what is to be added may be, and returns how much that
// is. It is the caller's turn.
func (in *input) room(ctx, fence context.Context, s *inputRequest, rest int) (n int, err error) {
	err = in.await(ctx, fence, func() bool {
		var held int64
		if in.buffer != nil {
			held = in.buffer.end - in.buffer.moved
		}
		if s.whole {
			n = rest
			return held == 0 || held+int64(rest) <= s.maxBuffer
		}
		n = min(rest, int(max(inputPiece-held, 0)))
		return n > 0 || rest == 0
	})
	return n, err
}

// ensureBuffer makes the buffer for the first input, and notes where it is. It is the
// caller's turn.
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

// put writes a piece to the buffer, of which it is no part before extend. It is the
// caller's turn.
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
	return api.Errorf(api.CodeInternal, "keep the input: %w", err).
		WithHint("the daemon is out of memory or descriptors: try again, or destroy sessions that are not needed")
}

// extend says that n bytes more are whole, and whether they are the last. What it
// says may move once it is noted: see release.
func (in *input) extend(n int, eof bool) (end int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.buffer.end += int64(n)
	in.eof = in.eof || eof
	return in.buffer.end
}

// release lets what is whole move.
func (in *input) commit() {
	in.mu.Lock()
	in.ready, in.eofReady = in.buffer.end, in.eof
	in.mu.Unlock()
	in.startMove()
}

// awaitTaken waits until no more is unread, up to an offset, than a pipe takes.
func (in *input) awaitTaken(ctx, fence context.Context, to int64) error {
	return in.await(ctx, fence, func() bool {
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

// await waits until there is enough, of which it asks under mu.
func (in *input) await(ctx, fence context.Context, enough func() bool) error {
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
		case <-fence.Done():
			return fence.Err()
		case <-ctx.Done():
			return errCallerLeft(ctx)
		}
	}
}

// errEnded returns an error if the pipe takes nothing any more. Under mu.
func (in *input) errEnded() error {
	why := in.failed
	if in.done {
		why = errors.New("the command has ended")
	}
	if why == nil {
		return nil
	}
	return errNotTaken(why)
}

func errNotTaken(why error) *api.Error {
	return api.Errorf(api.CodeInvalidParams, "the command does not take its input: %w", why).
		WithHint("exec.info says whether it is still running")
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

// flow has the pipe take what is ready. What it does not take at once it takes
// when the command has read, beside the caller.
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
	_ = raw.Write(func(fd uintptr) bool { // an error says the same
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

// move moves what is ready, and reports whether there is nothing more to do.
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

// wake wakes who waits for something to move. Under mu.
func (in *input) wake() {
	if in.progress != nil {
		close(in.progress)
		in.progress = nil
	}
}

// closeAtEnd closes the pipe if it has taken all that there will ever be.
func (in *input) closeAtEnd() {
	in.mu.Lock()
	end := in.eofReady && in.pipe != nil && (in.buffer == nil || in.buffer.moved == in.ready)
	in.mu.Unlock()
	if end && in.closePipe() {
		in.persist() // only then is the end given up that the holder has
	}
}

// closePipe reports whether it was open.
func (in *input) closePipe() bool {
	in.mu.Lock()
	pipe := in.pipe
	in.pipe = nil
	if pipe != nil {
		in.retire(&in.slots.write)
	}
	in.mu.Unlock()
	if pipe != nil {
		_ = pipe.Close() // not under mu: it waits for move
	}
	return pipe != nil
}

// spend says that one of the ends is not needed any more. Under mu.
func (in *input) retire(slot *holder.Slot) {
	if *slot != 0 {
		in.pendingRelease = append(in.pendingRelease, *slot)
		*slot = 0
	}
}

// noted returns the slots that are to be noted, and those that may be given up when
// they are: a slot that a note names must not become another's.
func (in *input) slotsToPersist() (slots inputSlots, spent []holder.Slot) {
	in.mu.Lock()
	defer in.mu.Unlock()
	spent, in.pendingRelease = in.pendingRelease, nil
	return in.slots, spent
}

func (in *input) dropSlots(spent []holder.Slot) {
	for _, slot := range spent {
		in.keeper.Drop(slot)
	}
}

// close ends the use of all of it.
func (in *input) close() {
	in.closePipe()
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.done {
		return
	}
	in.done = true
	close(in.ended)
	if in.read >= 0 {
		_ = unix.Close(in.read)
	}
	in.retire(&in.slots.read)
	if in.buffer != nil {
		in.buffer.close()
		in.retire(&in.slots.buffer)
	}
}
