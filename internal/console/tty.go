package console

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/vt"
)

// localTerminal is the terminal that this program runs on. It is taken over
// once, by newLocalTerminal, and restored by close, which may be called from
// any goroutine and repeatedly.
type localTerminal struct {
	in, out *os.File
	keys    chan []byte    // typed keys; closed when no more can come
	signals chan os.Signal // signals that end this program
	resized chan os.Signal // the window size has changed

	// interrupts holds a value once ctrl-c was typed. Unlike keys, it never
	// blocks the reader.
	interrupts chan struct{}

	// closeWriter is closed when the terminal is restored, which makes
	// closeReader readable: later keys belong to the terminal's next user.
	closeWriter, closeReader *os.File

	cooked atomic.Bool // the terminal edits lines; an empty read then means end of input

	mu            sync.Mutex
	saved         *term.State   // state to restore; nil if unchanged
	closeSequence func() []byte // returns what to write before restoring; may be nil
	closed        bool
}

// newLocalTerminal takes over the terminal that in and out are, and starts to
// read it. Other readers of the terminal lose keys.
func newLocalTerminal(in, out *os.File) (*localTerminal, error) {
	awake, left, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	t := &localTerminal{
		in: in, out: out, keys: make(chan []byte, maxBufferedReads),
		signals: make(chan os.Signal, 4), resized: make(chan os.Signal, 1), interrupts: make(chan struct{}, 1),
		closeWriter: left, closeReader: awake,
	}
	if err := t.makeRaw(); err != nil {
		return nil, errors.Join(err, awake.Close(), left.Close())
	}
	signal.Notify(t.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	signal.Notify(t.resized, syscall.SIGWINCH)
	// If the user has gone, SIGPIPE must not kill this program before it has
	// cleaned up.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGTTOU)
	t.start(t.read)
	return t, nil
}

// makeRaw passes every key on unchanged.
func (t *localTerminal) makeRaw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.saved != nil {
		return nil
	}
	t.cooked.Store(false)
	state, err := term.MakeRaw(int(t.in.Fd()))
	t.saved = state
	return err
}

// makeCooked restores the original mode, in which the terminal edits lines and
// turns keys into signals.
func (t *localTerminal) makeCooked() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.saved == nil {
		return
	}
	t.cooked.Store(true)
	_ = term.Restore(int(t.in.Fd()), t.saved) // it fails if the terminal is gone
	t.saved = nil
}

// start runs fn in a goroutine. If fn panics, the terminal is restored first,
// so that the message is readable.
func (t *localTerminal) start(fn func()) {
	go func() {
		defer t.restoreOnPanic()
		fn()
	}()
}

// restoreOnPanic must be deferred by goroutines that run while the terminal is
// taken over.
func (t *localTerminal) restoreOnPanic() {
	if cause := recover(); cause != nil {
		t.close()
		panic(cause)
	}
}

// maxBufferedReads is how many reads are buffered. Few, because they are lost
// when the terminal is restored; some, so that a ctrl-c is seen behind keys
// that are typed while this program waits for the daemon.
const maxBufferedReads = 16

// readBytes is the most that one read of a terminal returns.
const readBytes = 4 << 10

func (t *localTerminal) read() {
	defer close(t.keys)
	defer t.closeReader.Close()
	buf := make([]byte, readBytes)
	for t.waitForInput() {
		n, err := t.in.Read(buf)
		switch {
		case n > 0:
			if !t.cooked.Load() && bytes.IndexByte(buf[:n], interruptKey) >= 0 {
				notify(t.interrupts)
			}
			t.keys <- bytes.Clone(buf[:n])
		case errors.Is(err, io.EOF) && t.cooked.Load():
			t.keys <- nil // end of input
		case err != nil:
			return
		}
	}
}

// waitForInput waits until there is input to read, and returns false if the
// terminal has been restored. It uses select, because poll does not support
// terminals everywhere.
func (t *localTerminal) waitForInput() bool {
	in, awake := int(t.in.Fd()), int(t.closeReader.Fd())
	for {
		var ready unix.FdSet
		ready.Set(in)
		ready.Set(awake)
		_, err := unix.Select(max(in, awake)+1, &ready, nil, nil, nil)
		if !errors.Is(err, unix.EINTR) {
			return err != nil || !ready.IsSet(awake) // read reports the error
		}
	}
}

// size returns the terminal's size, limited to what a session supports.
func (t *localTerminal) size() api.TTYSize { return Size(t.out) }

// Size returns the size of the terminal that f is, limited to what a session
// supports, or the usual size if f is no terminal.
func Size(f *os.File) api.TTYSize {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || cols == 0 || rows == 0 {
		return api.TTYSize{Rows: 24, Cols: 80}
	}
	return api.TTYSize{Rows: min(rows, vt.MaxTTYSide), Cols: min(cols, vt.MaxTTYSide)}
}

func (t *localTerminal) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := t.out.Write(b); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// onClose sets what to write before the terminal is restored.
func (t *localTerminal) onClose(farewell func() []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeSequence = farewell
}

// closeSequenceTimeout is how long to wait for a terminal that accepts no
// output, for example after ctrl-s, to take the close sequence.
const closeSequenceTimeout = time.Second

// close restores the terminal.
func (t *localTerminal) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	t.closeWriter.Close()
	if t.closeSequence != nil {
		written := make(chan struct{})
		go func() {
			defer close(written)
			_ = t.write(t.closeSequence()) // it fails if the terminal is gone
		}()
		select {
		case <-written:
		case <-time.After(closeSequenceTimeout):
		}
	}
	if t.saved != nil {
		_ = term.Restore(int(t.in.Fd()), t.saved) // as above
	}
}

// notify leaves a value in c, which has room for one, without waiting.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
