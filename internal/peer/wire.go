package peer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"
)

// Wire sends and receives whole messages, each one JSON object. One goroutine
// sends and one receives; Close ends both.
type Wire interface {
	Send(message []byte) error
	// Receive returns the next message, which may be blank. It is valid until the
	// next call.
	Receive() ([]byte, error)
	Close() error
	// SetReceiveTimeout limits how long Receive waits from now on. It returns
	// false if that is not possible.
	SetReceiveTimeout(d time.Duration) bool
}

// Lines splits a byte stream into lines of any length.
type Lines struct {
	in   *bufio.Reader
	max  int    // of a line in bytes; 0 means any
	long []byte // a line longer than the buffer of in
}

// BufferBytes is the read buffer of a wire: large enough for most answers, and for
// most chunks of a busy stream.
const BufferBytes = 256 << 10

// NewLines returns the lines of r. A line of more than limit bytes is an error; 0
// means no limit.
func NewLines(r io.Reader, limit int) *Lines {
	return &Lines{in: bufio.NewReaderSize(r, BufferBytes), max: limit}
}

// Next returns the next line with its newline. It is valid until the next call.
func (l *Lines) Next() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	l.long = l.long[:0]
	for errors.Is(err, bufio.ErrBufferFull) {
		if l.max > 0 && len(l.long)+len(line) > l.max {
			l.long = nil
			return nil, fmt.Errorf("a message is longer than %d bytes", l.max)
		}
		l.long = append(l.long, line...)
		line, err = l.in.ReadSlice('\n')
	}
	l.long = append(l.long, line...)
	whole := l.long
	if cap(l.long) > maxKeptLine {
		l.long = nil // the caller has the only reference
	}
	return whole, err
}

// maxKeptLine is the size of a buffer for long lines that is kept for the next
// one. Chunks of a busy stream fit; the largest results do not.
const maxKeptLine = 2 << 20

// lineWire is a byte stream with one message per line.
type lineWire struct {
	conn  io.ReadWriteCloser
	lines *Lines
}

// NewLineWire returns a wire over a byte stream with one message per line.
// Closing the wire closes conn, which must unblock its Read.
func NewLineWire(conn io.ReadWriteCloser) Wire {
	return &lineWire{conn: conn, lines: NewLines(conn, 0)}
}

func (w *lineWire) Send(message []byte) error {
	_, err := w.conn.Write(append(message, '\n'))
	return err
}

func (w *lineWire) Receive() ([]byte, error) { return w.lines.Next() }

func (w *lineWire) Close() error { return w.conn.Close() }

func (w *lineWire) SetReceiveTimeout(d time.Duration) bool {
	c, ok := w.conn.(interface{ SetReadDeadline(time.Time) error })
	return ok && c.SetReadDeadline(time.Now().Add(d)) == nil
}
