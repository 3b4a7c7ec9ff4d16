// Package nowait makes system calls that do not wait, such as reads and writes of
// sockets and pipes in non-blocking mode, without telling Go's scheduler. It would
// prepare for a wait: the first call after a pause wakes its monitor thread,
// which then looks every 20 µs whether a system call keeps a processor. In a daemon
// that passes short messages on, this took a fifth of the processor's time. One call
// of the ordinary kind is enough to wake it, so all that a short command does are of
// this kind.
//
// The monitor also interrupts goroutines that compute for long. So what moves more
// than a short message is announced to the scheduler as usual.
package nowait

import "io"

// shortBytes is the size of a short message. A goroutine that works on it is done
// before the scheduler would interrupt it.
const shortBytes = 64 << 10

// Reader reads a stream. It is for one goroutine at a time.
type Reader struct {
	stream io.Reader
	quick  *quick // nil: the stream is not in non-blocking mode
	long   bool   // the last read was not short
}

// NewReader returns a reader of a stream, which may be of any kind.
func NewReader(stream io.Reader) *Reader {
	return &Reader{stream: stream, quick: newQuick(stream, sysRead, true)}
}

func (r *Reader) Read(b []byte) (n int, err error) {
	ok := false
	if r.quick != nil && !r.long {
		n, ok, err = r.quick.read(b)
	}
	if !ok {
		n, err = r.stream.Read(b)
	}
	r.long = n >= min(len(b), shortBytes)
	return n, err
}

// Writer writes to a stream. It is for one goroutine at a time.
type Writer struct {
	stream io.Writer
	quick  *quick // nil: as in Reader
}

// NewWriter returns a writer to a stream, which may be of any kind.
func NewWriter(stream io.Writer) *Writer {
	return &Writer{stream: stream, quick: newQuick(stream, sysWrite, false)}
}

func (w *Writer) Write(b []byte) (int, error) {
	n, err := w.TryWrite(b)
	if err != nil || n == len(b) {
		return n, err
	}
	more, err := w.stream.Write(b[n:])
	return n + more, err
}

// TryWrite writes what the stream takes at once, which may be nothing.
func (w *Writer) TryWrite(b []byte) (n int, err error) {
	if w.quick == nil || len(b) > shortBytes {
		return 0, nil
	}
	return w.quick.write(b)
}
