package nowait

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stream is what both a pipe and a socket have.
type stream interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
}

// pairs returns a writer and a reader for each kind of stream.
func pairs(t *testing.T) map[string]func() (w, r stream) {
	t.Helper()
	return map[string]func() (w, r stream){
		"pipe": func() (stream, stream) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			return w, r
		},
		"socket": func() (stream, stream) {
			l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			w, err := net.Dial("unix", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			r, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return w, r
		},
		"neither": func() (stream, stream) { return net.Pipe() },
	}
}

// each runs a test with the streams of each kind.
func each(t *testing.T, test func(t *testing.T, w, r stream)) {
	for kind, open := range pairs(t) {
		t.Run(kind, func(t *testing.T) {
			w, r := open()
			defer w.Close()
			defer r.Close()
			test(t, w, r)
		})
	}
}

func TestEveryByteArrives(t *testing.T) {
	each(t, func(t *testing.T, w, r stream) {
		var sent bytes.Buffer
		done := make(chan error, 1)
		for i := range 200 {
			sent.WriteString(strings.Repeat(string(rune('a'+i%26)), i*i*13%(3*shortBytes)+1))
		}
		go func() {
			out, rest := NewWriter(w), sent.Bytes()
			for i := 0; len(rest) > 0; i++ {
				n, err := out.Write(rest[:min(len(rest), i*i*17+1)])
				if err != nil {
					done <- err
					return
				}
				rest = rest[n:]
			}
			done <- w.Close()
		}()
		got, err := io.ReadAll(NewReader(r))
		if err != nil || !bytes.Equal(got, sent.Bytes()) {
			t.Errorf("%d bytes of %d, %v", len(got), sent.Len(), err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The errors are those of the stream itself.
func TestErrors(t *testing.T) {
	each(t, func(t *testing.T, w, r stream) {
		in, out := NewReader(r), NewWriter(w)
		_ = r.SetDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := in.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after the deadline: %v", err)
		}
		_ = w.SetDeadline(time.Unix(1, 0))
		if _, err := out.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("written after the deadline: %v", err)
		}
		_ = w.SetDeadline(time.Time{})
		_ = r.Close()
		if _, err := in.Read(make([]byte, 10)); !errors.Is(err, os.ErrClosed) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after close: %v", err)
		}
		if _, err := out.Write([]byte("x")); !errors.Is(err, unix.EPIPE) && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("to a closed stream: %v", err)
		}
	})
}

// A read that waits ends with the stream.
func TestCloseEndsARead(t *testing.T) {
	each(t, func(t *testing.T, _, r stream) {
		done := make(chan error, 1)
		go func() {
			_, err := NewReader(r).Read(make([]byte, 10))
			done <- err
		}()
		_ = r.Close()
		if err := <-done; err == nil {
			t.Error("no error")
		}
	})
}

// TryWrite does not wait for a reader.
func TestTryWriteDoesNotWait(t *testing.T) {
	each(t, func(t *testing.T, w, r stream) {
		out, total := NewWriter(w), 0
		for {
			n, err := out.TryWrite(make([]byte, 5000))
			if err != nil {
				t.Fatal(err)
			}
			if total += n; n == 0 {
				break
			}
		}
		if _, err := io.ReadFull(r, make([]byte, total)); err != nil {
			t.Errorf("of %d bytes: %v", total, err)
		}
	})
}
