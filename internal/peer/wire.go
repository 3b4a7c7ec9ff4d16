package peer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terminal-runtime/trl/internal/nowait"
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

// prompt is a wire that can send without waiting.
type prompt interface {
	// Begin sends as much of a message as it can without waiting, and returns the
	// rest, which the caller must pass to Finish before it sends anything else, unless
	// it is empty.
	Begin(message []byte) (rest []byte, err error)
	Finish(rest []byte) error
}

// limited is a wire that can limit what it receives.
type limited interface {
	// AllowMessage allows messages of up to n bytes from now on, instead of those that
	// need no permission. 0 allows only these.
	AllowMessage(n int)
}

// Lines splits a byte stream into lines of any length.
type Lines struct {
	in  *bufio.Reader
	max atomic.Int64 // of a line in bytes

	// A line longer than the buffer of in.
	long   []byte    // its beginning, up to maxKeptLine
	parts  []*[]byte // the rest
	length int       // of both
}

// BufferBytes is the read buffer of a wire: large enough for most answers, and for
// most chunks of a busy stream.
const BufferBytes = 256 << 10

// NewLines returns the lines of r. A line of more than limit bytes is an error; 0
// means no limit.
func NewLines(r io.Reader, limit int) *Lines {
	l := &Lines{in: bufio.NewReaderSize(nowait.NewReader(r), BufferBytes)}
	l.SetLimit(limit)
	return l
}

// SetLimit replaces the limit of NewLines. It may be called at any time.
func (l *Lines) SetLimit(limit int) {
	if limit == 0 {
		limit = math.MaxInt
	}
	l.max.Store(int64(limit))
}

// Next returns the next line with its newline. It is valid until the next call.
func (l *Lines) Next() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	l.long, l.length = l.long[:0], 0
	for errors.Is(err, bufio.ErrBufferFull) {
		if err := l.keep(line); err != nil {
			return nil, err
		}
		line, err = l.in.ReadSlice('\n')
	}
	if keepErr := l.keep(line); keepErr != nil {
		return nil, keepErr
	}
	if l.length == len(l.long) {
		return l.long, err
	}
	whole := make([]byte, 0, l.length)
	whole = append(whole, l.long...)
	for _, part := range l.parts {
		whole = append(whole, *part...)
	}
	l.dropParts()
	return whole, err
}

// maxKeptLine is the size of the buffer for long lines that is kept for the next
// one. Chunks of a busy stream fit; the largest results do not.
const maxKeptLine = 1 << 20

var errLongLine = errors.New("a message is longer than the limit")

// keep appends a part of a long line, of at most BufferBytes. What does not fit into
// the buffer is kept in parts that are used again: a place that sends long lines all
// the time must not cost more than one of them.
func (l *Lines) keep(part []byte) error {
	l.length += len(part)
	if limit := l.max.Load(); int64(l.length) > limit {
		l.long = nil
		l.dropParts()
		return fmt.Errorf("%w of %d bytes", errLongLine, limit)
	}
	if need := len(l.long) + len(part); len(l.parts) == 0 && need <= maxKeptLine {
		if need > cap(l.long) {
			l.long = append(make([]byte, 0, min(max(2*cap(l.long), 2*BufferBytes), maxKeptLine)), l.long...)
		}
		l.long = append(l.long, part...)
		return nil
	}
	kept := lineParts.Get().(*[]byte)
	*kept = append((*kept)[:0], part...)
	l.parts = append(l.parts, kept)
	return nil
}

// dropParts makes the parts available to other lines.
func (l *Lines) dropParts() {
	for _, part := range l.parts {
		lineParts.Put(part)
	}
	l.parts = nil
}

// lineParts are the unused parts of long lines.
var lineParts = sync.Pool{New: func() any {
	part := make([]byte, 0, BufferBytes)
	return &part
}}

// lineWire is a byte stream with one message per line.
type lineWire struct {
	conn  io.ReadWriteCloser
	out   *nowait.Writer
	lines *Lines
}

// NewLineWire returns a wire over a byte stream with one message per line.
// Closing the wire closes conn, which must unblock its Read.
func NewLineWire(conn io.ReadWriteCloser) Wire {
	return &lineWire{conn: conn, out: nowait.NewWriter(conn), lines: NewLines(conn, 0)}
}

// NewLimitedWire is NewLineWire for a peer that is not trusted: a message of more
// than limit bytes is an error, unless AllowMessage allows it.
func NewLimitedWire(conn io.ReadWriteCloser, limit int) Wire {
	return &limitedWire{lineWire{conn: conn, out: nowait.NewWriter(conn), lines: NewLines(conn, limit)}, limit}
}

// limitedWire is a lineWire with a limit for each message.
type limitedWire struct {
	lineWire
	limit int
}

// AllowMessage implements limited.
func (w *limitedWire) AllowMessage(n int) { w.lines.SetLimit(max(n, w.limit)) }

func (w *lineWire) Send(message []byte) error { return w.Finish(append(message, '\n')) }

func (w *lineWire) Begin(message []byte) (rest []byte, err error) {
	message = append(message, '\n')
	n, err := w.out.TryWrite(message)
	return message[n:], err
}

func (w *lineWire) Finish(rest []byte) error {
	_, err := w.out.Write(rest)
	return err
}

func (w *lineWire) Receive() ([]byte, error) { return w.lines.Next() }

func (w *lineWire) Close() error { return w.conn.Close() }

func (w *lineWire) SetReceiveTimeout(d time.Duration) bool {
	c, ok := w.conn.(interface{ SetReadDeadline(time.Time) error })
	return ok && c.SetReadDeadline(time.Now().Add(d)) == nil
}
