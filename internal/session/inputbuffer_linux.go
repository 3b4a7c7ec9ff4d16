package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// inputBuffer holds input that the command's pipe has not taken yet, in memory
// that the holder has too. An offset in it is one in all that the command was ever
// given. The pipe takes it by splice, which moves the position of the open file in
// the same step: a later process knows to the byte how far it came.
//
// The pipe does not copy: it refers to the same pages. So nothing is written a
// second time where something was, and only whole pages are given back.
type inputBuffer struct {
	fd    int
	moved int64 // the position of the open file: so much the pipe has taken
	end   int64 // so much is whole; behind it may be what a killed process began
	freed int64 // pages before it are given back
}

func newInputBuffer() (*inputBuffer, error) {
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &inputBuffer{fd: fd}, nil
}

// adoptInputBuffer takes over the buffer of an earlier process, which owns fd from
// now on. It is whole up to end, or, if end is not known, as far as it goes.
func adoptInputBuffer(fd int, end *int64) (*inputBuffer, error) {
	b := &inputBuffer{fd: fd}
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil {
		b.moved, err = unix.Seek(fd, 0, unix.SEEK_CUR)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	if b.end = st.Size; end != nil {
		b.end = max(*end, b.moved) // a program that noted no end takes all there is
	}
	if b.end > st.Size {
		return nil, errors.Join(fmt.Errorf("of %d bytes of input there are %d", b.end, st.Size), unix.Close(fd))
	}
	b.freed = b.moved / freeStep() * freeStep()
	return b, nil
}

// write puts data behind what is whole, and does not make it whole.
func (b *inputBuffer) write(data []byte) error { return writeAll(b.fd, data, b.end) }

func writeAll(fd int, data []byte, at int64) error {
	for len(data) > 0 {
		n, err := unix.Pwrite(fd, data, at)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		n = max(n, 0)
		data, at = data[n:], at+int64(n)
	}
	return nil
}

// moveTo has the pipe take at most so many bytes without waiting. It returns 0
// when the pipe is full.
func (b *inputBuffer) moveTo(pipe int, most int64) (int64, error) {
	for {
		n, err := unix.Splice(b.fd, nil, pipe, nil, int(min(most, maxSplice)), unix.SPLICE_F_NONBLOCK)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		case err == nil && n == 0:
			return 0, errors.New("what was buffered is gone")
		default:
			return max(n, 0), err
		}
	}
}

// spliceMost is more than a pipe takes at once.
const maxSplice = 1 << 20

// took says that the pipe has taken n bytes more.
func (b *inputBuffer) took(n int64) {
	b.moved += n
	step := freeStep()
	if to := b.moved / step * step; to-b.freed >= freeLeast {
		// One that can't be given back now goes with the buffer.
		_ = unix.Fallocate(b.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, b.freed, to-b.freed)
		b.freed = to
	}
}

// freeLeast is how much is given back at once, at least.
const freeLeast = 128 << 10

func (b *inputBuffer) close() { _ = unix.Close(b.fd) }

// freeStep is what memory may be given back in: what the kernel has as one piece.
// A part of a piece would be made zero while the pipe refers to it.
var freeStep = sync.OnceValue(func() int64 {
	const settings = "/sys/kernel/mm/transparent_hugepage/"
	some, _ := filepath.Glob(settings + "hugepages-*/shmem_enabled")
	for _, name := range append(some, settings+"shmem_enabled") {
		text, err := os.ReadFile(name)
		if err != nil || !hasHugePieces(string(text)) {
			continue
		}
		text, _ = os.ReadFile(settings + "hpage_pmd_size")
		if size, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && size > 0 {
			return size
		}
	}
	return int64(os.Getpagesize())
})

// hasHugePieces reports whether a setting of the kernel says that memory such as
// the buffer's may be in pieces of many pages.
func hasHugePieces(setting string) bool {
	for _, on := range []string{"[always]", "[within_size]", "[force]"} {
		if strings.Contains(setting, on) {
			return true
		}
	}
	return false
}
