package session

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
)

// input is a command's standard input: a memfd that holds all of it, or a pipe
// that exec.input writes to. Neither is ever on a disk.
type input struct {
	read  int           // end that the command reads, for the shell to open by path
	first []byte        // to be written to the pipe when the command starts
	begun chan struct{} // closed when that is written: what comes later must wait
	once  sync.Once     // closes begun

	typing *typist // writes to pipe; nil as that

	mu   sync.Mutex
	pipe *os.File // writing end; nil when there is nothing to write to
	done bool
}

// newInput makes a command's stdin. With open it stays open after data.
func newInput(data []byte, open bool) (*input, error) {
	if !open {
		fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, err
		}
		for len(data) > 0 {
			n, err := unix.Write(fd, data)
			if err != nil {
				return nil, errors.Join(err, unix.Close(fd))
			}
			data = data[n:]
		}
		return &input{read: fd}, nil
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(p[1], true); err != nil { // ours; the command's end blocks
		return nil, errors.Join(err, unix.Close(p[0]), unix.Close(p[1]))
	}
	in := &input{read: p[0], first: data, begun: make(chan struct{}), pipe: os.NewFile(uintptr(p[1]), "stdin")}
	in.typing = newTypist(in.pipe)
	if len(data) == 0 {
		in.begin()
	}
	return in, nil
}

// begin lets what comes later through.
func (in *input) begin() {
	if in.begun != nil {
		in.once.Do(func() { close(in.begun) })
	}
}

// sendFirst writes what was given with the command, however much it is and
// however slowly it is read. It ends with the command at the latest.
func (in *input) sendFirst() {
	defer in.begin()
	first := in.first
	in.first = nil
	_, _ = in.write(context.Background(), context.Background(), first) // a command that does not read is no error
}

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
	}
}

// close gives up both ends.
func (in *input) close() {
	in.closePipe()
	in.begin() // of one that never ran, so that nobody waits for it
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.done {
		in.done = true
		_ = unix.Close(in.read)
	}
}
