package shell

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
)

// kept is a descriptor of which the keeper has a copy. Shells open it by path,
// whether this process lives or not.
type heldFD struct {
	fd   int // our own; -1 if only its path is needed
	slot holder.Slot
	path string
}

// none is no descriptor at all.
var noFD = heldFD{fd: -1, slot: -1}

func (k heldFD) valid() bool { return k.slot >= 0 }

// keep gives a copy of fd to the keeper. Its path is good after a sync.
func (h *Driver) keepFD(fd int) (heldFD, error) {
	slot, err := h.keeper.Keep(fd)
	if err != nil {
		return noFD, err
	}
	return heldFD{fd: fd, slot: slot, path: h.keeper.Path(slot)}, nil
}

// keepOnly keeps fd and closes our own.
func (h *Driver) keepAndClose(fd int) (heldFD, error) {
	k, err := h.keepFD(fd)
	k.fd = -1
	return k, errors.Join(err, unix.Close(fd))
}

// given is what an earlier daemon has kept, without a descriptor of our own.
func (h *Driver) heldSlot(slot holder.Slot) heldFD {
	if slot <= 0 {
		return noFD
	}
	return heldFD{fd: -1, slot: slot, path: h.keeper.Path(slot)}
}

// taken is what an earlier daemon has kept.
func (h *Driver) takeHeld(slot holder.Slot) (heldFD, error) {
	fd, err := h.keeper.Take(slot)
	if err != nil {
		return noFD, fmt.Errorf("take what was kept: %w", err)
	}
	return heldFD{fd: fd, slot: slot, path: h.keeper.Path(slot)}, nil
}

// drop gives up a descriptor and its copy.
func (h *Driver) drop(k heldFD) {
	if k.fd >= 0 {
		_ = unix.Close(k.fd)
	}
	if k.valid() {
		h.keeper.Drop(k.slot)
	}
}

// kit is what a shell needs in order to leave a copy of itself: a pipe on which
// the copy sleeps, and a memfd into which the shell's traps are written. A kit
// that was not used is as good as new.
type copyFDs struct {
	wake  heldFD // reading end: a copy opens it for both
	traps heldFD
}

func (h *Driver) openCopyFDs() (*copyFDs, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	wake, err := h.keepAndClose(p[0])
	if err = errors.Join(err, unix.Close(p[1])); err != nil {
		h.drop(wake)
		return nil, err
	}
	traps, err := h.keepMemfd("traps", "")
	if err != nil {
		h.drop(wake)
		return nil, err
	}
	return &copyFDs{wake: wake, traps: traps}, nil
}

func (h *Driver) closeCopyFDs(k *copyFDs) {
	h.drop(k.wake)
	h.drop(k.traps)
}

// readTraps returns what the shell wrote into the kit before it forked.
func (k *copyFDs) readTraps() []byte {
	var out []byte
	buf := make([]byte, 4096)
	for {
		n, err := unix.Pread(k.traps.fd, buf, int64(len(out)))
		if n <= 0 || err != nil {
			return out
		}
		out = append(out, buf[:n]...)
	}
}

// text is a memfd that holds what one shell reads by path, as long as it may.
// It is never on a disk.
type script struct {
	heldFD
	size int // of the file, if it was written here; 0: it is empty, or from an earlier daemon
}

func (h *Driver) openScript() (*script, error) {
	k, err := h.keepMemfd("text", "")
	return &script{heldFD: k}, err
}

// borrow returns a text with these contents.
func (h *Driver) takeScript(contents string) (*script, error) {
	t, err := h.scriptPool.Take()
	if err != nil {
		return nil, err
	}
	err = writeAll(t.fd, contents)
	if err == nil && t.size > len(contents) {
		err = unix.Ftruncate(t.fd, int64(len(contents)))
	}
	if err != nil {
		h.scriptPool.Drop(t)
		return nil, err
	}
	t.size = len(contents)
	return t, nil
}

// giveBack wipes the text: what a command said is nobody's when it is over.
func (h *Driver) returnScript(t *script) {
	if !t.overwrite() {
		t.size = 0
		if unix.Ftruncate(t.fd, 0) != nil {
			h.scriptPool.Drop(t)
			return
		}
	}
	h.scriptPool.Put(t)
}

// blanks is what a text is overwritten with, if that is long enough. To give up
// its page and get another for the next costs more than the command's own line.
var zeros [4096]byte

// blank overwrites what is in the text. It is false for one that must be emptied:
// it is long, or the command has changed its own text.
func (t *script) overwrite() bool {
	if t.size == 0 || t.size > len(zeros) {
		return false
	}
	var st unix.Stat_t
	if unix.Fstat(t.fd, &st) != nil || st.Size != int64(t.size) {
		return false
	}
	n, err := unix.Pwrite(t.fd, zeros[:t.size], 0)
	return err == nil && n == t.size
}

// keepText makes a memfd that is kept.
func (h *Driver) keepMemfd(name, contents string) (heldFD, error) {
	fd, err := memfd(name, contents)
	if err != nil {
		return noFD, err
	}
	k, err := h.keepFD(fd)
	if err == nil {
		err = h.keeper.Sync()
	}
	if err != nil {
		k.fd = fd
		h.drop(k)
		return noFD, err
	}
	return k, nil
}

// sealedMemfd returns a memfd that can't be changed any more. Every command can
// open what is kept, and later shells would run what a command wrote there.
func sealedMemfd(name, contents string) (int, error) {
	fd, err := newMemfd(name, contents, unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, err
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return -1, errors.Join(fmt.Errorf("seal a memfd: %w", err), unix.Close(fd))
	}
	return fd, nil
}

func memfd(name, contents string) (int, error) { return newMemfd(name, contents, 0) }

func newMemfd(name, contents string, flags int) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|flags)
	if err != nil {
		return -1, fmt.Errorf("memfd: %w", err)
	}
	if err := writeAll(fd, contents); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// writeAll fills an empty memfd.
func writeAll(fd int, contents string) error {
	at := int64(0)
	for b := []byte(contents); len(b) > 0; {
		n, err := unix.Pwrite(fd, b, at)
		if err != nil {
			return fmt.Errorf("memfd: %w", err)
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}
