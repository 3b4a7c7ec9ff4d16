package journal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pipe returns a pipe whose reading end is non-blocking.
func pipe(t testing.TB) (r int, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := syscall.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		t.Fatal(err)
	}
	w = os.NewFile(uintptr(fds[1]), "pipe")
	t.Cleanup(func() {
		unix.Close(fds[0])
		w.Close()
	})
	return fds[0], w
}

// pump pulls from fd until its end, as the daemon does, but waits with poll.
func pump(j *Journal, st Stream, fd int) error {
	return drain(fd, func() (int, error) { return j.AppendFrom(st, fd) })
}

// drain pulls until the end of fd, and waits in between.
func drain(fd int, pull func() (int, error)) error {
	for {
		switch _, err := pull(); {
		case err == io.EOF:
			return nil
		case errors.Is(err, unix.EAGAIN):
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if err != nil && err != unix.EINTR {
				return err
			}
		case err != nil:
			return err
		}
	}
}

// numbered returns n bytes of which any few determine their offset.
func numbered(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>(8*(i%3))) ^ byte(i%3)<<6
	}
	return b
}

func TestAppendFrom(t *testing.T) {
	text := numbered(3 << 20)
	tests := []struct {
		name string
		cfg  Config
	}{
		{"memory", Config{ExecMemory: 8 << 20}},
		{"memory, then file", Config{}},
		{"file", Config{ExecMemory: 1}},
		{"file with a ring", Config{ExecQuota: 1_000_001}},
		{"ring smaller than a pull", Config{ExecQuota: 10_001}},
		{"total quota", Config{TotalQuota: 700_001}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := newJournal(t, tt.cfg)
			fd, w := pipe(t)
			if n, err := j.AppendFrom(Stdout, fd); n != 0 || !errors.Is(err, unix.EAGAIN) {
				t.Errorf("empty pipe: %d, %v; want EAGAIN", n, err)
			}
			go func() {
				w.Write(text)
				w.Close()
			}()
			if err := pump(j, Stdout, fd); err != nil {
				t.Fatal(err)
			}
			if n, err := j.AppendFrom(Stdout, fd); n != 0 || err != io.EOF {
				t.Errorf("after the end: %d, %v; want EOF", n, err)
			}
			if j.Size() != int64(len(text)) {
				t.Fatalf("Size = %d, want %d", j.Size(), len(text))
			}
			held := int64(0)
			for _, chunk := range readAll(t, j, 0, 100_000) {
				held += int64(len(chunk.Data))
				if chunk.Gap == 0 && !bytes.Equal(chunk.Data, text[chunk.Offset:chunk.End()]) {
					t.Fatalf("bytes from %d to %d differ", chunk.Offset, chunk.End())
				}
			}
			quota := min(j.store.cfg.ExecQuota, j.store.cfg.TotalQuota)
			if held < min(quota, j.Size()) {
				t.Errorf("%d bytes held, want %d", held, quota)
			}
		})
	}
}

func TestAppendFromDiscardsAfterClose(t *testing.T) {
	j := newJournal(t, Config{})
	fd, w := pipe(t)
	j.Release()
	w.WriteString("abc")
	if n, err := j.AppendFrom(Stdout, fd); n != 3 || err != nil {
		t.Errorf("got %d, %v; want 3 bytes taken", n, err)
	}
	if got := j.Size(); got != 0 {
		t.Errorf("Size = %d, want 0", got)
	}
}

func TestAppendFromBadDescriptor(t *testing.T) {
	j := newJournal(t, Config{})
	if n, err := j.AppendFrom(Stdout, -1); n != 0 || !errors.Is(err, unix.EBADF) {
		t.Errorf("got %d, %v; want EBADF", n, err)
	}
}
