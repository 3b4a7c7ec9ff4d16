package shell

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/nowait"
)

// heldFD is a descriptor of which the holder has a copy. Shells open it by path,
// whether this process lives or not.
type heldFD struct {
	fd   int // of this process; -1 if only the path is needed
	slot holder.Slot
	path string
}

// noFD is no descriptor.
var noFD = heldFD{fd: -1, slot: -1}

func (h heldFD) valid() bool { return h.slot >= 0 }

// slotOrZero returns the slot as it is persisted: 0 means none.
func (h heldFD) slotOrZero() holder.Slot {
	if !h.valid() {
		return 0
	}
	return h.slot
}

// keeper makes and releases held descriptors.
type keeper struct{ holder.Keeper }

// keepFD gives a copy of fd to the holder. The path is valid after Sync.
func (k keeper) keepFD(fd int) (heldFD, error) {
	slot, err := k.Keep(fd)
	if err != nil {
		return noFD, err
	}
	return heldFD{fd: fd, slot: slot, path: k.Path(slot)}, nil
}

// keepAndClose gives a copy of fd to the holder and closes fd.
func (k keeper) keepAndClose(fd int) (heldFD, error) {
	h, err := k.keepFD(fd)
	h.fd = -1
	return h, errors.Join(err, unix.Close(fd))
}

// heldSlot returns what an earlier daemon has kept, without a descriptor of this
// process.
func (k keeper) heldSlot(slot holder.Slot) heldFD {
	if slot <= 0 {
		return noFD
	}
	return heldFD{fd: -1, slot: slot, path: k.Path(slot)}
}

// takeHeld returns what an earlier daemon has kept.
func (k keeper) takeHeld(slot holder.Slot) (heldFD, error) {
	fd, err := k.Take(slot)
	if err != nil {
		return noFD, fmt.Errorf("take a held descriptor: %w", err)
	}
	return heldFD{fd: fd, slot: slot, path: k.Path(slot)}, nil
}

// drop closes a descriptor and releases its slot.
func (k keeper) drop(h heldFD) {
	if h.fd >= 0 {
		_ = unix.Close(h.fd)
	}
	if h.valid() {
		k.Drop(h.slot)
	}
}

// keepMemfd makes a held memfd.
func (k keeper) keepMemfd(name, contents string) (heldFD, error) {
	fd, err := memfd(name, contents)
	if err != nil {
		return noFD, err
	}
	h, err := k.keepFD(fd)
	if err == nil {
		err = k.Sync()
	}
	if err != nil {
		h.fd = fd
		k.drop(h)
		return noFD, err
	}
	return h, nil
}

// adoption takes over the held descriptors of one owner. It owns nothing except
// descriptors of this process until all of it has succeeded.
type adoption struct {
	keeper keeper
	fds    []int
	err    error // the first one; nothing is taken after it
}

// take returns what is in a slot, noFD for slot 0 and after an error.
func (a *adoption) take(slot holder.Slot) heldFD {
	if slot == 0 || a.err != nil {
		return noFD
	}
	h, err := a.keeper.takeHeld(slot)
	if err != nil {
		a.err = err
		return noFD
	}
	a.fds = append(a.fds, h.fd)
	return h
}

// undo closes what was taken. The slots stay, for a daemon that can adopt them.
func (a *adoption) undo() error { return closeFDs(a.fds...) }

// sealedMemfd returns a memfd that cannot be changed. Every command can open what
// is held, and later shells would run what a command wrote there.
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
		n, err := nowait.Pwrite(fd, b, at)
		if err != nil {
			return fmt.Errorf("memfd: %w", err)
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

func closeFDs(fds ...int) error {
	var errs error
	for _, fd := range fds {
		errs = errors.Join(errs, unix.Close(fd))
	}
	return errs
}
