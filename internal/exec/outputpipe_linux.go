package exec

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/freelist"
	"github.com/terminal-runtime/trl/internal/holder"
)

// outputPipe is a pipe that a command writes to. The holder has its reading end,
// and the shell opens the writing end by the path of that, which works while no
// daemon runs too. The pipe reports end of file until the shell has opened it, and
// whenever it has no writer: a reader must know when that counts. Keeping a writing
// end open here would avoid that, and cost a short command two system calls per
// stream.
//
// When a command is over and nothing has the pipe open any more, the next command
// reuses it: so a short command needs no message to the holder.
type outputPipe struct {
	slot  holder.Slot
	path  string // by which a shell opens it
	read  int    // non-blocking
	write int    // for a program that inherits it; -1 means none
}

func newOutputPipes(keep holder.Keeper) *freelist.List[*outputPipe] {
	return &freelist.List[*outputPipe]{
		More: 2, // stdout and stderr
		Make: func() (*outputPipe, error) { return newOutputPipe(keep) },
		End: func(o *outputPipe) {
			keep.Drop(o.slot)
			o.close()
		},
	}
}

func newOutputPipe(keep holder.Keeper) (*outputPipe, error) {
	var p [2]int
	// A shell opens its end by path and so gets its own file flags: no program
	// finds its stdout non-blocking.
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	o := &outputPipe{read: p[0], write: -1}
	err := unix.Close(p[1])
	if err == nil {
		o.slot, err = keep.Keep(o.read)
	}
	if err == nil {
		err = keep.Sync()
	}
	if err != nil {
		keep.Drop(o.slot)
		o.close()
		return nil, err
	}
	o.path = keep.Path(o.slot)
	return o, nil
}

// open opens a writing end in this process.
func (o *outputPipe) open() error {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(o.read), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	o.write = fd
	return nil
}

// closeWrite closes this process's writing end.
func (o *outputPipe) closeWrite() {
	if o.write >= 0 {
		_ = unix.Close(o.write)
		o.write = -1
	}
}

func (o *outputPipe) close() {
	o.closeWrite()
	_ = unix.Close(o.read)
}

// adoptOutputPipe takes over a pipe of an earlier process.
func adoptOutputPipe(keep holder.Keeper, slot holder.Slot) (*outputPipe, error) {
	fd, err := keep.Take(slot)
	if err != nil {
		return nil, err
	}
	return &outputPipe{slot: slot, path: keep.Path(slot), read: fd, write: -1}, nil
}
