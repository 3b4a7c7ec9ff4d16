// Package gauge helps tests that measure: they compare operations by ratios within
// one run, in rounds that are interleaved, and print one line with their figures.
package gauge

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// attempts is how often a goal may be missed: other work on the machine makes
	// everything slower, never faster. It comes in bursts of seconds.
	attempts = 12
	// Pause is the pause between two attempts.
	Pause = time.Second
)

// Short calls are measured in rounds of about 100 ms instead.
const (
	// RoundsLeast is how many rounds there are even if the goal is met before.
	RoundsLeast = 20
	// Rounds is how many rounds there are at most.
	Rounds = 400
)

// Tries repeats a measurement until it meets its goal.
func Tries(t *testing.T, measure func(t *testing.T) error) {
	t.Helper()
	var err error
	for range attempts {
		if err = measure(t); err == nil {
			return
		}
		t.Log("missed: ", err)
		time.Sleep(Pause) // pace: what slows the machine comes in bursts
	}
	t.Error(err)
}

// Series has the durations of one operation, in rounds.
type Series struct {
	N  int // calls per round
	Do func() error
	// Best is the median of the quietest round: other load on the machine only
	// adds to a time.
	Best time.Duration
	Last time.Duration // the median of the last round
	All  []time.Duration
}

// Round makes the calls of one round.
func (s *Series) Round() error {
	took := make([]time.Duration, s.N)
	for i := range took {
		began := time.Now()
		if err := s.Do(); err != nil {
			return err
		}
		took[i] = time.Since(began)
	}
	s.All = append(s.All, took...)
	s.Last = Median(took)
	if s.Best == 0 || s.Last < s.Best {
		s.Best = s.Last
	}
	return nil
}

// Ratio returns a divided by b.
func Ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// Median returns the median of some durations, which it sorts.
func Median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// Figures prints the one line with the test's figures.
func Figures(t *testing.T, format string, args ...any) {
	t.Helper()
	fmt.Printf("must: %s: %s\n", t.Name(), fmt.Sprintf(format, args...))
}

// Lines is a minimal client: it sends a line and reads a line.
type Lines struct {
	Conn net.Conn
	In   *bufio.Reader
}

// DialLines connects to a socket. The caller must close Conn.
func DialLines(socket string) (*Lines, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return &Lines{Conn: conn, In: bufio.NewReaderSize(conn, 64<<10)}, nil
}

// Ask writes a line, newline included, and returns the next line, which is valid
// until the next Ask.
func (l *Lines) Ask(line []byte) ([]byte, error) {
	if _, err := l.Conn.Write(line); err != nil {
		return nil, err
	}
	answer, err := l.In.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		var rest []byte
		rest, err = l.In.ReadBytes('\n')
		answer = append(bytes.Clone(answer), rest...)
	}
	return answer, err
}

// answerTime is how long a Direct waits for an answer.
const answerTime = time.Minute

// Direct is a minimal client that waits in system calls, as one written in C does.
// Lines waits in the poller of Go: each answer then wakes a thread that finds the
// goroutine, and where processors are few that is a good part of a short call.
type Direct struct {
	file *os.File // open as long as fd is used
	fd   int
	buf  []byte
}

// DialDirect connects to a socket. The caller must close the Direct.
func DialDirect(socket string) (*Direct, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	file, err := conn.File()
	if err := errors.Join(err, conn.Close()); err != nil {
		return nil, err
	}
	d := &Direct{file: file, fd: int(file.Fd()), buf: make([]byte, 64<<10)}
	limit := unix.NsecToTimeval(answerTime.Nanoseconds())
	err = errors.Join(unix.SetNonblock(d.fd, false), unix.SetsockoptTimeval(d.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit))
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close closes the connection.
func (d *Direct) Close() error { return d.file.Close() }

// Ask writes a line, newline included, and returns the next line, which is valid
// until the next Ask. Only answers may arrive, one for each line.
func (d *Direct) Ask(line []byte) ([]byte, error) {
	for len(line) > 0 {
		n, err := unix.Write(d.fd, line)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("write a line: %w", err)
		}
		line = line[max(n, 0):]
	}
	for got := 0; ; {
		if got == len(d.buf) {
			d.buf = append(d.buf, make([]byte, len(d.buf))...)
		}
		n, err := unix.Read(d.fd, d.buf[got:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, fmt.Errorf("read an answer: %w", err)
		case n == 0:
			return nil, io.ErrUnexpectedEOF
		}
		if got += n; d.buf[got-1] == '\n' {
			return d.buf[:got], nil
		}
	}
}

// Asker is Lines or Direct.
type Asker interface {
	Ask(line []byte) ([]byte, error)
}

// RunLine returns the request that runs true in a session.
func RunLine(session string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"exec.run","params":{"session_id":%q,"command":"true"}}`+"\n", session)
}

// AskTrue runs true over a connection.
func AskTrue(a Asker, line []byte) error {
	answer, err := a.Ask(line)
	if err == nil && !bytes.Contains(answer, []byte(`"exit_code":0,`)) {
		err = fmt.Errorf("answer %s", answer)
	}
	return err
}
