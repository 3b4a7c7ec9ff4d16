package exec

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

// inputBuffer has input that the command's pipe has not taken yet, in memory that
// the holder has too. Its offsets count all that the command was ever sent. Input
// moves to the pipe by splice, which advances the position of the open file in the
// same step, so a later process knows to the byte how far it came.
//
// The pipe does not copy the data but refers to the same pages. So no offset is
// ever written twice, and only whole pages are freed.
type inputBuffer struct {
	fd    int
	moved int64 // position of the open file: what the pipe has taken
	end   int64 // of complete data; a killed process may have written more behind it
	freed int64 // pages before it are freed
}

func newInputBuffer() (*inputBuffer, error) {
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &inputBuffer{fd: fd}, nil
}

// adoptInputBuffer takes over the buffer of an earlier process, and owns fd from
// then on. Its data is complete up to end, nil if that is unknown: then all of it
// is.
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
		b.end = max(*end, b.moved) // a program that persisted no end takes all there is
	}
	if b.end > st.Size {
		return nil, errors.Join(fmt.Errorf("input buffer has %d of %d bytes", st.Size, b.end), unix.Close(fd))
	}
	b.freed = b.moved / freeStep() * freeStep()
	return b, nil
}

// write writes data behind the end, which it does not move.
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

// moveTo moves at most that many bytes to the pipe without blocking. It returns 0
// when the pipe is full.
func (b *inputBuffer) moveTo(pipe int, most int64) (int64, error) {
	for {
		n, err := unix.Splice(b.fd, nil, pipe, nil, int(min(most, maxSplice)), unix.SPLICE_F_NONBLOCK)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		case err == nil && n == 0:
			return 0, errors.New("buffered input is missing")
		default:
			return max(n, 0), err
		}
	}
}

// maxSplice is more than a pipe takes at once.
const maxSplice = 1 << 20

// took advances the position by n bytes that the pipe has taken, and frees pages.
func (b *inputBuffer) took(n int64) {
	b.moved += n
	step := freeStep()
	if to := b.moved / step * step; to-b.freed >= freeLeast {
		// A page that can't be freed now is freed with the buffer.
		_ = unix.Fallocate(b.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, b.freed, to-b.freed)
		b.freed = to
	}
}

// freeLeast is the least that is freed at once.
const freeLeast = 128 << 10

func (b *inputBuffer) close() { _ = unix.Close(b.fd) }

// freeStep is the unit in which memory can be freed: the size of a page, or of a
// huge page if the kernel uses them for such memory. Freeing a part of one would
// zero it while the pipe refers to it.
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

// hasHugePieces reports whether a setting of the kernel allows huge pages for
// memory such as the buffer's.
func hasHugePieces(setting string) bool {
	for _, on := range []string{"[always]", "[within_size]", "[force]"} {
		if strings.Contains(setting, on) {
			return true
		}
	}
	return false
}
