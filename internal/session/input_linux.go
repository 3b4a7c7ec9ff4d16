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
	read  int    // end that the command reads, for the shell to open by path
	first []byte // to be written to the pipe when the command starts

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
	return &input{read: p[0], first: data, pipe: os.NewFile(uintptr(p[1]), "stdin")}, nil
}

// sendFirst writes what was given with the command, however much it is and
// however slowly it is read. It ends with the command at the latest.
func (in *input) sendFirst() {
	first := in.first
	in.first = nil
	_, _ = in.send(context.Background(), first, false) // a command that does not read is no error
}

// send writes to the pipe until all is taken or the caller stops waiting.
func (in *input) send(ctx context.Context, data []byte, eof bool) (int, error) {
	in.mu.Lock()
	pipe, done := in.pipe, in.done
	in.mu.Unlock()
	if pipe == nil || done {
		return 0, api.Errorf(api.CodeInvalidParams, "the command's stdin is closed").
			WithHint("start the command with stdin_open: true to write to it later")
	}
	// A context has no descriptor to poll; its end is a deadline in the past.
	stop := context.AfterFunc(ctx, func() { _ = pipe.SetWriteDeadline(time.Unix(1, 0)) })
	n, err := pipe.Write(data)
	if !stop() {
		_ = pipe.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		e := api.Errorf(api.CodeInvalidParams, "the command does not take its input: %w", err).With("bytes", n)
		return n, e.WithHint("exec.info says whether it is still running")
	}
	if eof {
		in.closePipe()
	}
	return n, nil
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
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.done {
		in.done = true
		_ = unix.Close(in.read)
	}
}
