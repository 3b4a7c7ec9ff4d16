package cli

import (
	"bytes"
	"errors"
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
)

// personTerminal is the terminal of the person in front of this program. It is
// taken over once, by newPersonTerminal, and given back by close, which may be
// called from anywhere and again.
type localTerminal struct {
	in, out *os.File
	keys    chan []byte    // what is typed; closed when no more can come
	signals chan os.Signal // those that end this program
	resized chan os.Signal // the window has another size

	// interrupts has something in it when ctrl-c was typed. Unlike keys, it does
	// not wait until someone takes it.
	interrupts chan struct{}

	// left is closed when the terminal is given back, and awake can then be read:
	// keys that come after that are for whoever has the terminal next.
	closeWriter, closeReader *os.File

	cooked atomic.Bool // the terminal edits lines; then an empty read is the key for end of input

	mu            sync.Mutex
	saved         *term.State   // nil: as it was found
	closeSequence func() []byte // what is to be written before it is given back; nil: nothing
	closed        bool
}

// newPersonTerminal takes over the terminal that stdin and stdout are, and
// begins to read it. What else reads it loses keys.
func (a *app) newLocalTerminal() (*localTerminal, error) {
	in, isFile := a.stdin.(*os.File)
	out, isFileToo := a.stdout.(*os.File)
	if !isFile || !isFileToo || !isTerminal(in) || !isTerminal(out) {
		return nil, errors.New("stdin and stdout are not a terminal")
	}
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
	// A person who has gone must not kill this program before it has cleaned up.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGTTOU)
	t.start(t.read)
	return t, nil
}

// raw hands every key over as it is.
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

// lines lets the terminal edit lines and make signals of keys, as it was found.
func (t *localTerminal) makeCooked() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.saved == nil {
		return
	}
	t.cooked.Store(true)
	_ = term.Restore(int(t.in.Fd()), t.saved) // it fails when the terminal is gone
	t.saved = nil
}

// start runs fn beside the others. If it panics, the terminal is given back
// before the world ends, or nobody could read why.
func (t *localTerminal) start(fn func()) {
	go func() {
		defer t.restoreOnPanic()
		fn()
	}()
}

// rescue is deferred by whoever works while the terminal is taken over.
func (t *localTerminal) restoreOnPanic() {
	if cause := recover(); cause != nil {
		t.close()
		panic(cause)
	}
}

// keysAhead is how many reads wait to be taken. Few, because they are lost when
// the terminal is given back; some, so that a ctrl-c is read behind keys that are
// typed while this program waits for the daemon.
const maxBufferedReads = 16

// readBytes is what one read of a terminal gives at most.
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
			t.keys <- nil // the end of what is typed for now
		case err != nil:
			return
		}
	}
}

// await waits until something was typed; false means that the terminal was given
// back. It is select, because poll does not know terminals everywhere.
func (t *localTerminal) waitForInput() bool {
	in, awake := int(t.in.Fd()), int(t.closeReader.Fd())
	for {
		var ready unix.FdSet
		ready.Set(in)
		ready.Set(awake)
		_, err := unix.Select(max(in, awake)+1, &ready, nil, nil, nil)
		if !errors.Is(err, unix.EINTR) {
			return err != nil || !ready.IsSet(awake) // reading will tell what is wrong
		}
	}
}

// size is that of the terminal, within what a session's can have.
func (t *localTerminal) size() api.TTYSize {
	cols, rows, err := term.GetSize(int(t.out.Fd()))
	if err != nil || cols == 0 || rows == 0 {
		return api.TTYSize{Rows: 24, Cols: 80}
	}
	return api.TTYSize{Rows: min(rows, api.MaxTTYSide), Cols: min(cols, api.MaxTTYSide)}
}

func (t *localTerminal) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := t.out.Write(b); err != nil {
		return &writeError{err}
	}
	return nil
}

// onClose says what is to be written before the terminal is given back.
func (t *localTerminal) onClose(farewell func() []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeSequence = farewell
}

// farewellTime is how long a terminal that takes nothing, as one that was
// stopped by ctrl-s, is given to take what restores it.
const closeSequenceTimeout = time.Second

// close gives the terminal back as it was found.
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
			_ = t.write(t.closeSequence()) // it fails when the terminal is gone
		}()
		select {
		case <-written:
		case <-time.After(closeSequenceTimeout):
		}
	}
	if t.saved != nil {
		_ = term.Restore(int(t.in.Fd()), t.saved) // likewise
	}
}
