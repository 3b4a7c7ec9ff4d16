package session

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

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
type capture struct {
	exec   *execution
	stream journal.Stream

	mu    sync.Mutex // one pull at a time: the order of bytes is the pipe's
	read  int
	write int      // for the shell to open by path; -1 when given up
	file  *os.File // the reading end in the poller, once there is a pump
	eof   bool     // nothing more comes, or is wanted
}

func newCapture(e *execution, stream journal.Stream) (*capture, error) {
	var p [2]int
	// A shell opens its end by path, which gives it flags of its own: no program
	// finds its stdout non-blocking.
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	return &capture{exec: e, stream: stream, read: p[0], write: p[1]}, nil
}

// inherited makes the writing end fit to be a program's own, for one that is
// started with it.
func (c *capture) inherited() error { return unix.SetNonblock(c.write, false) }

// startPump begins to move output as it comes, until the last writer is gone.
func (c *capture) startPump() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eof || c.file != nil {
		return
	}
	c.file = os.NewFile(uintptr(c.read), "output")
	file := c.file
	raw, err := file.SyscallConn()
	if err != nil {
		c.finish()
		_ = file.Close()
		return
	}
	c.exec.session.pool.begin(func() {
		_ = raw.Read(func(uintptr) bool { return c.pull(-1) }) // an error means woken by finish
		_ = file.Close()
	})
}

// pull moves what the pipe holds, at most limit bytes unless that is negative,
// and says whether the end was reached. The lock is given up between steps, so
// that a settle is not kept out by a writer that never pauses.
func (c *capture) pull(limit int) (eof bool) {
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

func (c *capture) step() (n int, eof, empty bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eof {
		return 0, true, false
	}
	n, err := c.exec.journal.AppendFrom(c.stream, c.read)
	if n > 0 {
		c.exec.lastByte.Store(time.Now().UnixNano())
		return n, false, false
	}
	if errors.Is(err, unix.EAGAIN) {
		return 0, false, true
	}
	c.finish()
	return 0, true, false
}

// finish gives up the reading end; the second of two streams to finish closes
// the journal. Under mu. The pump closes its file itself, when it is out of it:
// to close it here would wait for the pump, which may wait for mu.
func (c *capture) finish() {
	c.eof = true
	if c.file != nil {
		_ = c.file.SetReadDeadline(time.Unix(1, 0)) // wakes the pump
	} else {
		_ = unix.Close(c.read)
	}
	if c.exec.streams.Add(-1) == 0 {
		c.exec.journal.Close()
	}
}

// closeWrite gives up the writing end.
func (c *capture) closeWrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.write >= 0 {
		_ = unix.Close(c.write)
		c.write = -1
	}
}

// settle gives up the writing end and moves what is in the pipe now. If a
// process still holds the pipe, its output goes on into the journal.
func (c *capture) settle() {
	c.closeWrite()
	if !c.pull(pipeMost) {
		c.startPump()
	}
}

// pipeMost is more than a pipe holds that was not enlarged by the journal, and
// as much as one that was: all that can be in it when the command ends. A
// writer left behind may go on writing, and is not waited for.
const pipeMost = 256<<10 + 1

// abort ends the stream without waiting for the end of the pipe.
func (c *capture) abort() {
	c.closeWrite()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.eof {
		c.finish()
	}
}
