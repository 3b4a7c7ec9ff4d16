package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// The output of a command that fills its pipe is spliced, from an enlarged
// pipe.
func TestFullPipeIsSpliced(t *testing.T) {
	j := newJournal(t, Config{ExecMemory: 1})
	fd, w := pipe(t)
	text := numbered(pullSize + pipeSize)
	fill := func(p []byte) {
		t.Helper()
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	fill(text[:pullSize])
	if n, err := j.AppendFrom(Stdout, fd); n != pullSize || err != nil {
		t.Fatal(n, err)
	}
	if got, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err != nil || got != pipeSize {
		trltest.Need(t, fmt.Errorf("a pipe of %d bytes, not %d (%w)", pipeSize, got, err))
	}
	fill(text[pullSize:])
	if n, err := j.AppendFrom(Stdout, fd); n != pipeSize || err != nil {
		t.Fatalf("%d bytes, %v; want %d at once", n, err, pipeSize)
	}
	if h, _, _, err := j.HeadTail(Stdout, len(text), 0); err != nil || !bytes.Equal(h, text) {
		t.Errorf("content differs (%v)", err)
	}
}

// A file that splice refuses, here because it is in append mode, is written to
// instead.
func TestSpliceRefused(t *testing.T) {
	j := newJournal(t, Config{ExecMemory: 1})
	fd, w := pipe(t)
	text := numbered(3 * pullSize)
	for i := 0; i < len(text); i += pullSize {
		if _, err := w.Write(text[i:][:pullSize]); err != nil {
			t.Fatal(err)
		}
		if n, err := j.AppendFrom(Stdout, fd); n != pullSize || err != nil {
			t.Fatal(n, err)
		}
		if _, err := unix.FcntlInt(j.spill.file.Fd(), unix.F_SETFL, unix.O_APPEND); err != nil {
			t.Fatal(err)
		}
	}
	if !j.noSplice || j.Lossy() != nil {
		t.Errorf("noSplice = %v, Lossy = %v", j.noSplice, j.Lossy())
	}
	if h, _, _, err := j.HeadTail(Stdout, len(text), 0); err != nil || !bytes.Equal(h, text) {
		t.Errorf("content differs (%v)", err)
	}
}

// fullDir returns a directory on a separate file system that holds size bytes.
func fullDir(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		trltest.Need(t, fmt.Errorf("a file system to fill: %w", err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestDiskFull(t *testing.T) {
	text := numbered(3 << 20)
	tests := []struct {
		name string
		feed func(t *testing.T, j *Journal)
	}{
		{"append", func(_ *testing.T, j *Journal) {
			for i := 0; i < len(text); i += 10_000 {
				j.Append(Stdout, text[i:min(i+10_000, len(text))])
			}
		}},
		{"pull", func(t *testing.T, j *Journal) {
			fd, w := pipe(t)
			go func() {
				w.Write(text)
				w.Close()
			}()
			if err := pump(j, Stdout, fd); err != nil {
				t.Error(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := NewStore(Config{Dir: fullDir(t, "1m")})
			defer s.Close()
			j := s.New()
			defer j.Release()
			tt.feed(t, j)
			checkLossy(t, j, text, unix.ENOSPC, 1<<20-pipeSize, tailMemory)
			if got := s.Stats(); got.Lossy != 1 || got.SpilledBytes > 1<<20 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// On a device that refuses every byte, everything written before stays.
func TestDeviceFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	trltest.Need(t, err)
	j := newJournal(t, Config{})
	j.Append(Stdout, []byte("abc"))
	j.toFile()
	j.spill.file.Close()
	j.spill.file = full
	j.Append(Stderr, []byte("def"))
	if err := j.Lossy(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("Lossy = %v, want ENOSPC", err)
	}
	if h, _, omitted, err := j.HeadTail(Stderr, 9, 9); err != nil || string(h) != "def" || omitted != 0 {
		t.Errorf("HeadTail = %q, %d omitted, %v", h, omitted, err)
	}
}
