// Package stdio is the byte stream between a relay and its caller: the relay's
// standard input and output, with heartbeats on them. The relay uses it itself, or
// passes the two descriptors to the daemon (pass.go), which then uses it in the
// relay's place.
package stdio

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/nowait"
	"github.com/terminal-runtime/trl/internal/peer"
)

// Timing says when heartbeats are sent and expected. Zero values are those of the
// contract; tests set others.
type Timing struct {
	Interval time.Duration // without a byte to the caller until a heartbeat is sent
	Silence  time.Duration // without a byte from the caller until it counts as gone
	Poll     time.Duration // how often Beat looks whether something is due
}

// beatPoll is how often Beat looks whether a heartbeat is due. A caller that has
// closed standard input is looked for this often too.
const beatPoll = time.Second

func (t *Timing) setDefaults() {
	if t.Interval == 0 {
		*t = Timing{Interval: peer.HeartbeatInterval, Silence: peer.SilenceLimit, Poll: beatPoll}
	}
}

// Files is the byte stream. One goroutine may read while others write and one runs
// Beat.
type Files struct {
	in, out *os.File
	reader  *nowait.Reader // of in
	writer  *nowait.Writer // to out
	timing  Timing

	lineStart bool        // used only by Read: the last byte was the end of a line
	beating   atomic.Bool // the caller sends heartbeats
	heard     atomic.Bool // the caller has sent something since Beat looked
	inClosed  atomic.Bool // standard input has ended

	mu      sync.Mutex // serializes writes; guards the fields below
	midLine bool       // the last byte written was not the end of a line
	wrote   bool       // something was written since Beat looked
}

// New returns the stream that reads from in and writes to out. It owns both.
func New(in, out *os.File, timing Timing) *Files {
	timing.setDefaults()
	return &Files{in: in, out: out, reader: nowait.NewReader(in), writer: nowait.NewWriter(out), timing: timing, lineStart: true}
}

// Read reads what the caller sends, heartbeats included.
func (f *Files) Read(b []byte) (int, error) {
	n, err := f.reader.Read(b)
	if n > 0 {
		f.heard.Store(true)
		if f.lineStart && b[0] == '\n' {
			f.beating.Store(true)
		}
		f.lineStart = b[n-1] == '\n'
	}
	if err != nil {
		f.inClosed.Store(true)
	}
	return n, err
}

// Write sends b, which may be a part of a line, to the caller.
func (f *Files) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.writer.Write(b)
	f.midLine, f.wrote = !bytes.HasSuffix(b[:n], []byte("\n")), true
	return n, err
}

// SetReadDeadline limits current and later reads.
func (f *Files) SetReadDeadline(t time.Time) error { return f.in.SetReadDeadline(t) }

// SetWriteDeadline limits current and later writes, but not heartbeats.
func (f *Files) SetWriteDeadline(t time.Time) error { return f.out.SetWriteDeadline(t) }

// SyscallConn returns the descriptor that is written to.
func (f *Files) SyscallConn() (syscall.RawConn, error) { return f.out.SyscallConn() }

// Close closes both files. It may be called more than once.
func (f *Files) Close() error { return errors.Join(f.in.Close(), f.out.Close()) }

// ErrSilent is the error of a caller that has stopped sending heartbeats.
var ErrSilent = errors.New("no heartbeat from the caller")

// Beat sends heartbeats. It returns ErrSilent when the caller has stopped sending
// its own, and another error when the caller can't be written to, or when wait, which
// pauses for the given time, returns one. A caller that never sent a heartbeat, such
// as a person at a terminal, may be silent for as long as it likes.
func (f *Files) Beat(wait func(time.Duration) error) error {
	last := time.Now()
	heardAt, wroteAt := last, last
	for {
		if err := wait(f.timing.Poll); err != nil {
			return err
		}
		now := time.Now()
		// After a long pause this process was stopped: the caller may have been too.
		if f.heard.Swap(false) || now.Sub(last) > 2*f.timing.Interval {
			heardAt = now
		}
		last = now
		if f.beating.Load() && !f.inClosed.Load() && now.Sub(heardAt) > f.timing.Silence {
			return ErrSilent
		}
		if !f.mu.TryLock() {
			wroteAt = now // a write is under way
			continue
		}
		if f.wrote {
			f.wrote, wroteAt = false, now
		}
		var err error
		if due := now.Sub(wroteAt) >= f.timing.Interval || f.inClosed.Load(); due && !f.midLine {
			wroteAt = now
			err = f.beatOnce()
		}
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// beatOnce sends a heartbeat, unless a full pipe says that the caller has yet to
// read what was sent before. It ignores the deadline for writes, which may belong to
// an earlier one. The caller must hold mu.
func (f *Files) beatOnce() error {
	raw, err := f.out.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if _, failed = unix.Write(int(fd), []byte("\n")); errors.Is(failed, unix.EAGAIN) || errors.Is(failed, unix.EINTR) {
			failed = nil
		}
	})
	return errors.Join(err, failed)
}
