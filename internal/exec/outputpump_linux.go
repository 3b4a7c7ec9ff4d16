package exec

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

// outputPump moves one stream of a command from a pipe into the journal. It never
// waits for end of file, since a process left behind may hold the pipe for days.
//
// Output is moved as it comes only when a command has run for a few milliseconds.
// Most commands are over sooner, and what they wrote fits into their pipes; a
// goroutine and a poller entry for each of two streams would cost more than the
// command. A command that fills its pipe sooner is blocked once.
type outputPump struct {
	env    *Env
	owner  pumpOwner
	to     *journal.Journal
	stream journal.Stream

	mu       sync.Mutex // allows one pull at a time, to keep the order of bytes
	pipe     *outputPipe
	file     *os.File // the reading end in the poller, once a goroutine reads it
	sealed   bool     // no process opens the pipe any more: its end is that of the stream
	eof      bool     // nothing more comes, or is wanted
	clean    bool     // and no process has the pipe open
	released bool     // and it was reused or closed
}

// pumpOwner is the command whose output a pump moves.
type pumpOwner interface {
	// Touch is called when output was moved.
	Touch()
	// streamEnded is called once, when nothing more comes.
	streamEnded()
}

func newOutputPump(env *Env, owner pumpOwner, to *journal.Journal, stream journal.Stream) (*outputPump, error) {
	pipe, err := env.pipes.Take()
	if err != nil {
		return nil, err
	}
	return &outputPump{env: env, owner: owner, to: to, stream: stream, pipe: pipe}, nil
}

// adoptOutputPump takes over the pipe of a command from before a restart.
func adoptOutputPump(env *Env, owner pumpOwner, to *journal.Journal, stream journal.Stream, slot holder.Slot) (*outputPump, error) {
	pipe, err := adoptOutputPipe(env.cfg.Keeper, slot)
	if err != nil {
		return nil, err
	}
	env.pipes.Adopt()
	return &outputPump{env: env, owner: owner, to: to, stream: stream, pipe: pipe}, nil
}

// slot returns the holder's slot of the pipe, 0 if it is no longer used.
func (c *outputPump) slot() holder.Slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eof {
		return 0
	}
	return c.pipe.slot
}

// path returns the path by which the command's shell opens its end.
func (c *outputPump) path() string { return c.pipe.path }

// inherited opens a writing end for a program that inherits it.
func (c *outputPump) inherited() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.pipe.open()
	return c.pipe.write, err
}

// startPump starts to move output as it comes, until the last writer is gone.
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
	c.env.cfg.Spawn(func() {
		_ = raw.Read(func(uintptr) bool { return c.pull(-1) }) // an error means that finish woke it
		_ = file.Close()
	})
}

// pull moves what is in the pipe, at most limit bytes unless limit is negative, and
// reports whether the end was reached. It releases the lock between steps, so that
// a writer which never pauses does not block drain.
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
	n, err := c.to.AppendFrom(c.stream, c.pipe.read)
	switch {
	case n > 0:
		c.owner.Touch()
		c.mu.Unlock()
		return n, false, false
	case errors.Is(err, unix.EAGAIN), errors.Is(err, io.EOF) && !c.sealed:
		c.mu.Unlock()
		return 0, false, true
	}
	c.finish(errors.Is(err, io.EOF))
	return 0, true, false
}

// finish ends the stream. clean means that no process has the pipe open any more.
// The caller must hold mu; finish releases it. The goroutine of startPump closes
// its file itself: closing it here would wait for that goroutine, which may wait
// for mu.
func (c *outputPump) finish(clean bool) {
	c.eof, c.clean = true, clean && c.file == nil
	if c.file != nil {
		_ = c.file.SetReadDeadline(time.Unix(1, 0)) // wakes the goroutine
		c.pipe.read = -1                            // that goroutine closes it
	}
	c.mu.Unlock()
	c.owner.streamEnded()
}

// release releases the pipe of a stream that has ended, once that is persisted: a
// pipe that the ledger names must not be reused.
func (c *outputPump) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released {
		return
	}
	c.released = true
	if c.clean {
		c.env.pipes.Put(c.pipe)
	} else {
		c.env.pipes.Drop(c.pipe)
	}
}

// seal marks the pipe as one that no further process opens. A running pump need not
// know: it starts later, or this process has a writing end open, or a pull follows.
func (c *outputPump) seal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
	if !c.eof {
		c.pipe.closeWrite()
	}
}

// pollFD returns the pipe of a stream that has not ended and has no goroutine that
// reads it, else -1.
func (c *outputPump) pollFD() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eof || c.file != nil {
		return -1
	}
	return c.pipe.read
}

// finishClean ends a sealed stream whose pipe is empty and has no writer.
func (c *outputPump) finishClean() {
	c.mu.Lock()
	if c.eof {
		c.mu.Unlock()
		return
	}
	c.finish(true)
}

// drain moves what is in the pipe of a sealed stream now. If a process still has
// the pipe open, its output goes on into the journal.
func (c *outputPump) drain() {
	if !c.pull(maxPipeBytes) {
		c.startPump()
	}
}

// maxPipeBytes is more than a pipe holds, enlarged by the journal or not: all that
// can be in it when the command ends. A process left behind may go on writing and
// is not waited for.
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
