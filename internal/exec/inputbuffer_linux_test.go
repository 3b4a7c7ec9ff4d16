package exec

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestInputBufferGivesBack: pages that the pipe has taken are freed, and the reader
// gets what was written.
func TestInputBufferGivesBack(t *testing.T) {
	b, err := newInputBuffer()
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var want, got bytes.Buffer
	for i := range 100 {
		piece := make([]byte, 40_000+i)
		_, _ = rand.Read(piece)
		want.Write(piece)
		if err := b.write(piece); err != nil {
			t.Fatal(err)
		}
		b.end += int64(len(piece))
		for b.moved < b.end {
			n, err := b.moveTo(int(w.Fd()), b.end-b.moved)
			if err != nil {
				t.Fatal(err)
			}
			b.took(n) // before it is read
			if _, err := io.CopyN(&got, r, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Error("what was read is not what was written")
	}
	var st unix.Stat_t
	if err := unix.Fstat(b.fd, &st); err != nil {
		t.Fatal(err)
	}
	if held, most := st.Blocks*512, freeLeast+freeStep()+pageBytes; held > most {
		t.Errorf("%d bytes are held of %d that were read, at most %d should be", held, st.Size, most)
	}
}

const pageBytes = 64 << 10 // the largest page size

// TestAdoptInputBuffer: a buffer of an earlier process is adopted to the byte,
// without what that process had not persisted.
func TestAdoptInputBuffer(t *testing.T) {
	for name, c := range map[string]struct {
		end  *int64
		want string // after "more" was added; "" means that it is refused
	}{
		"noted":             {new(int64(6)), "cdefmore"},
		"not noted":         {nil, "cdefghmore"},     // all of it came with the command
		"taken by another":  {new(int64(1)), "more"}, // by a program that persisted no end
		"shorter than said": {new(int64(9)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			left, err := newInputBuffer()
			if err != nil {
				t.Fatal(err)
			}
			if err := left.write([]byte("abcdefgh")); err != nil {
				t.Fatal(err)
			}
			if n, err := left.moveTo(int(w.Fd()), 2); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			b, err := adoptInputBuffer(left.fd, c.end)
			if c.want == "" {
				if err == nil {
					t.Error("it was accepted as complete")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer b.close()
			if err := b.write([]byte("more")); err != nil {
				t.Fatal(err)
			}
			b.end += 4
			n, err := b.moveTo(int(w.Fd()), b.end-b.moved)
			if err != nil || n != b.end-b.moved {
				t.Fatal(n, err)
			}
			got := make([]byte, 100)
			read, err := r.Read(got)
			if err != nil || string(got[:read]) != "ab"+c.want {
				t.Errorf("%q, %v", got[:read], err)
			}
		})
	}
}
