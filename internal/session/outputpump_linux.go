package session

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
)

// capture moves one stream of a command from a pipe into the journal. Nobody
// waits for end of file, since a process left behind may hold the pipe for
// days.
//
// Output is moved as it comes only when a command has run for some
// milliseconds. Most are over sooner, and what they wrote fits into their
// pipes; a goroutine and a place in the poller for each of two streams would
// cost more than the command. One that fills its pipe sooner waits once.
type outputPump struct {
	exec   *Exec
	stream journal.Stream

	mu       sync.Mutex // one pull at a time: the order of bytes is the pipe's
	pipe     *outputPipe
	file     *os.File // the reading end in the poller, once there is a pump
	sealed   bool     // nobody opens the pipe any more: its end is that of the stream
	eof      bool     // nothing more comes, or is wanted
	clean    bool     // and nobody has the pipe any more
	released bool     // and it is another's, or closed
}

func newOutputPump(e *Exec, stream journal.Stream) (*outputPump, error) {
	out, err := e.session.pool.outputPipes.Take()
	if err != nil {
		return nil, err
	}
	return &outputPump{exec: e, stream: stream, pipe: out}, nil
}

// slot is where the holder has the pipe; 0: it is not used any more.
func (c *outputPump) slot() holder.Slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eof {
		return 0
	}
	return c.pipe.slot
}

// path is how the command's shell opens its end.
func (c *outputPump) path() string { return c.pipe.path }

// inherited opens a writing end to be a program's own, for one that is started
// with it.
func (c *outputPump) inherited() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.pipe.open()
	return c.pipe.write, err
}

// startPump begins to move output as it comes, until the last writer is gone.
func (c *outputPump) startPump() {
	c.mu.Lock()
	if c.eof || c.file != nil {
		c.mu.Unlock()
		return
	}
	c.file = os.NewFile(uintptr(c.pipe.read), "output")
	file := c.file
	raw, err := file.SyscallConn()
	if err != nil {
		c.finish(false)
		_ = file.Close()
		return
	}
	c.mu.Unlock()
	c.exec.session.pool.spawn(func() {
		_ = raw.Read(func(uintptr) bool { return c.pull(-1) }) // an error means woken by finish
		_ = file.Close()
	})
}

// pull moves what the pipe holds, at most limit bytes unless that is negative,
// and says whether the end was reached. The lock is given up between steps, so
// that a settle is not kept out by a writer that never pauses.
func (c *outputPump) pull(limit int) (eof bool) {
	for limit != 0 {
		n, done, empty := c.step()
		if done || empty {
			return done
		}
		if limit > 0 {
			limit = max(0, limit-n)
		}
	}
	return false
}

func (c *outputPump) step() (n int, eof, empty bool) {
	c.mu.Lock()
	if c.eof {
		c.mu.Unlock()
		return 0, true, false
	}
	n, err := c.exec.journal.AppendFrom(c.stream, c.pipe.read)
	switch {
	case n > 0:
		c.exec.lastByte.Store(time.Now().UnixNano())
		c.mu.Unlock()
		return n, false, false
	case errors.Is(err, unix.EAGAIN), errors.Is(err, io.EOF) && !c.sealed:
		c.mu.Unlock()
		return 0, false, true
	}
	c.finish(errors.Is(err, io.EOF))
	return 0, true, false
}

// finish ends the stream: clean, if nobody has the pipe any more. The second of
// two streams to finish closes the journal. It is called with mu held, and gives
// it up. The pump closes its file itself, when it is out of it: to close it here
// would wait for the pump, which may wait for mu.
func (c *outputPump) finish(clean bool) {
	c.eof, c.clean = true, clean && c.file == nil
	if c.file != nil {
		_ = c.file.SetReadDeadline(time.Unix(1, 0)) // wakes the pump
		c.pipe.read = -1                            // the pump's
	}
	c.mu.Unlock()
	if c.exec.streams.Add(-1) == 0 {
		c.exec.outputEnded()
	}
}

// giveUp gives up the pipe of a stream that has ended, once it is noted that it
// has: as long as a note names the pipe it must not become another command's.
func (c *outputPump) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released {
		return
	}
	c.released = true
	if outlets := c.exec.session.pool.outputPipes; c.clean {
		outlets.Put(c.pipe)
	} else {
		outlets.Drop(c.pipe)
	}
}

// seal says that nobody opens the pipe any more. A pump that has found nobody
// there is not told: it starts later, or there is a writing end of our own, or a
// pull follows.
func (c *outputPump) seal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
	if !c.eof {
		c.pipe.closeWrite()
	}
}

// unpumped is the pipe of a stream that goes on and has no pump; -1: it has.
func (c *outputPump) pollFD() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eof || c.file != nil {
		return -1
	}
	return c.pipe.read
}

// finishClean ends a sealed stream whose pipe is empty and at its end.
func (c *outputPump) finishClean() {
	c.mu.Lock()
	if c.eof {
		c.mu.Unlock()
		return
	}
	c.finish(true)
}

// settle moves what is in the pipe of a sealed stream now. If a process still
// holds the pipe, its output goes on into the journal.
func (c *outputPump) drain() {
	if !c.pull(maxPipeBytes) {
		c.startPump()
	}
}

// pipeMost is more than a pipe holds that was not enlarged by the journal, and
// as much as one that was: all that can be in it when the command ends. A
// writer left behind may go on writing, and is not waited for.
const maxPipeBytes = 256<<10 + 1

// abort ends the stream without waiting for the end of the pipe.
func (c *outputPump) abort() {
	c.seal()
	c.mu.Lock()
	if c.eof {
		c.mu.Unlock()
		return
	}
	c.finish(false)
}
