package session

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
)

// input is a command's standard input: a memfd that holds all of it, or a pipe
// that exec.input writes to. Neither is ever on a disk, and the holder has both
// ends: the command goes on reading while no daemon is there.
type input struct {
	keep  holder.Keeper
	read  int           // end that the command reads, for the shell to open by path
	first int           // a memfd with what the pipe gets when the command starts; -1: nothing
	begun chan struct{} // closed when that is written: what comes later must wait
	once  sync.Once     // closes begun

	typing *typist // writes to pipe; nil as that

	mu    sync.Mutex
	slots inputSlots
	spent []holder.Slot // not in use any more, but a note may name them
	pipe  *os.File      // writing end; nil when there is nothing to write to
	done  bool
}

// inputSlots are where the holder has a command's input; 0: it has no such.
type inputSlots struct{ read, write, first holder.Slot }

// newInput makes a command's stdin. With open it stays open after data.
func newInput(keep holder.Keeper, data []byte, open bool) (*input, error) {
	in := &input{keep: keep, read: -1, first: -1}
	err := in.open(data, open)
	if err == nil {
		err = keep.Sync()
	}
	if err != nil {
		in.close()
		_, spent := in.noted()
		in.giveUp(spent)
		return nil, err
	}
	return in, nil
}

func (in *input) open(data []byte, open bool) (err error) {
	if !open {
		if in.read, err = memfdWith(data); err == nil {
			in.slots.read, err = in.keep.Keep(in.read)
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
	in.openPipe(p[1])
	if in.slots.read, err = in.keep.Keep(p[0]); err != nil {
		return err
	}
	if in.slots.write, err = in.keep.Keep(p[1]); err != nil || len(data) == 0 {
		in.begin()
		return err
	}
	if in.first, err = memfdWith(data); err != nil {
		return err
	}
	if _, err := unix.Seek(in.first, 0, 0); err != nil {
		return err
	}
	in.slots.first, err = in.keep.Keep(in.first)
	return err
}

func (in *input) openPipe(fd int) {
	in.begun = make(chan struct{})
	in.pipe = os.NewFile(uintptr(fd), "stdin")
	in.typing = newTypist(in.pipe)
}

// adoptInput takes a command's input from before a restart.
func adoptInput(keep holder.Keeper, slots inputSlots) (*input, error) {
	in := &input{keep: keep, slots: slots, read: -1, first: -1}
	err := in.take()
	if err != nil {
		in.close() // what there is in the slots nobody has then
		return nil, err
	}
	return in, nil
}

func (in *input) take() (err error) {
	if in.read, err = in.keep.Take(in.slots.read); err != nil || in.slots.write == 0 {
		return err
	}
	fd, err := in.keep.Take(in.slots.write)
	if err != nil {
		return err
	}
	in.openPipe(fd)
	if in.slots.first == 0 {
		in.begin()
		return nil
	}
	in.first, err = in.keep.Take(in.slots.first)
	return err
}

// path is how the command's shell opens it.
func (in *input) path() string { return in.keep.Path(in.slots.read) }

func memfdWith(data []byte) (int, error) {
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err != nil {
			return -1, errors.Join(err, unix.Close(fd))
		}
		data = data[n:]
	}
	return fd, nil
}

// begin lets what comes later through.
func (in *input) begin() {
	if in.begun != nil {
		in.once.Do(func() { close(in.begun) })
	}
}

// sendFirst moves what was given with the command, however much it is and
// however slowly it is read. It ends with the command at the latest. The place
// in the memfd is how far it came, for a later process too.
func (in *input) sendFirst() {
	defer in.begin()
	in.mu.Lock()
	pipe, first := in.pipe, in.first
	in.first = -1 // ours from now on
	in.mu.Unlock()
	if first < 0 {
		return
	}
	defer unix.Close(first)
	if pipe == nil {
		return
	}
	raw, err := pipe.SyscallConn()
	if err != nil {
		return // it was closed: the command has ended
	}
	_ = raw.Write(func(fd uintptr) bool { // a command that does not read is no error
		for {
			n, err := unix.Splice(first, nil, int(fd), nil, spliceMost, unix.SPLICE_F_NONBLOCK)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case errors.Is(err, unix.EINTR):
			case err != nil || n == 0:
				return true
			}
		}
	})
}

// spliceMost is more than a pipe takes at once.
const spliceMost = 1 << 20

// send writes to the pipe, after what was given with the command, and closes it
// at eof.
func (in *input) send(ctx, fence context.Context, data []byte, eof bool) (int, error) {
	if in.begun != nil {
		select {
		case <-in.begun:
		case <-ctx.Done():
			return 0, api.Errorf(api.CodeInternal, "the caller stopped waiting: %w", ctx.Err())
		}
	}
	n, err := in.write(ctx, fence, data)
	if err == nil && eof {
		in.closePipe()
	}
	return n, err
}

// settle returns when what was being written when a fence was done has ended. As
// long as what was given with the command is on its way, which is nobody's
// typing, nobody else is writing.
func (in *input) settle() {
	if in.typing == nil {
		return
	}
	select {
	case <-in.begun:
		in.typing.settle()
	default:
	}
}

// write writes to the pipe until all is taken, the caller stops waiting or the
// fence is done.
func (in *input) write(ctx, fence context.Context, data []byte) (int, error) {
	in.mu.Lock()
	pipe, done := in.pipe, in.done
	in.mu.Unlock()
	if pipe == nil || done {
		return 0, api.Errorf(api.CodeInvalidParams, "the command's stdin is closed").
			WithHint("start the command with stdin_open: true to write to it later")
	}
	return in.typing.write(ctx, fence, data)
}

// typist writes to what a command reads, for one caller after the other.
type typist struct {
	to   *os.File
	turn chan struct{} // holds one: whose turn it is, takes it
}

func newTypist(to *os.File) *typist {
	w := &typist{to: to, turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w
}

// write writes until all is taken, the caller stops waiting, or the fence is
// done: somebody else types from then on.
func (w *typist) write(ctx, fence context.Context, data []byte) (int, error) {
	select {
	case <-w.turn:
		defer func() { w.turn <- struct{}{} }()
	case <-ctx.Done():
		return 0, api.Errorf(api.CodeInternal, "the caller stopped waiting: %w", ctx.Err())
	}
	if err := fence.Err(); err != nil {
		return 0, err
	}
	// A context has no descriptor to poll; its end is a deadline in the past.
	interrupt := func() { _ = w.to.SetWriteDeadline(time.Unix(1, 0)) }
	stopped, fenced := context.AfterFunc(ctx, interrupt), context.AfterFunc(fence, interrupt)
	n, err := w.to.Write(data)
	if a, b := stopped(), fenced(); !a || !b {
		_ = w.to.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		e := api.Errorf(api.CodeInvalidParams, "the command does not take its input: %w", err).With("bytes", n)
		return n, e.WithHint("exec.info says whether it is still running")
	}
	return n, nil
}

// settle returns when what was being written when a fence was done has ended.
func (w *typist) settle() {
	<-w.turn
	w.turn <- struct{}{}
}

func (in *input) closePipe() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.pipe != nil {
		_ = in.pipe.Close()
		in.pipe = nil
		in.spend(&in.slots.write)
	}
}

// spend says that one of the ends is not needed any more. Under mu.
func (in *input) spend(slot *holder.Slot) {
	if *slot != 0 {
		in.spent = append(in.spent, *slot)
		*slot = 0
	}
}

// noted returns what is to be noted of the input, and what may be given up when
// it is: a slot that a note names must not become another's.
func (in *input) noted() (slots inputSlots, spent []holder.Slot) {
	in.mu.Lock()
	defer in.mu.Unlock()
	spent, in.spent = in.spent, nil
	return in.slots, spent
}

func (in *input) giveUp(spent []holder.Slot) {
	for _, slot := range spent {
		in.keep.Drop(slot)
	}
}

// close ends the use of both ends.
func (in *input) close() {
	in.closePipe()
	in.begin() // of one that never ran, so that nobody waits for it
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.done {
		return
	}
	in.done = true
	for _, fd := range []int{in.read, in.first} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	in.spend(&in.slots.read)
	in.spend(&in.slots.first)
}
