package holder

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Slot is the number of a kept descriptor: its number in the process that
// keeps it.
type Slot int

// Root is the slot from which a restarted daemon finds everything else: that
// of the ledger. It is Replaced, never Kept.
const Root Slot = 1000

// Keeper keeps descriptors beyond the life of this process. It is safe for
// concurrent use.
type Keeper interface {
	// Keep gives a copy of fd to the holder. The slot is chosen here, so
	// nothing is waited for; its path is good only after Sync.
	Keep(fd int) (Slot, error)
	// Replace puts a copy of fd in the place of what a slot had, in one step.
	Replace(slot Slot, fd int) error
	// Drop gives up a slot. Its number may be used again.
	Drop(slot Slot)
	// Sync returns when everything before it has been done.
	Sync() error
	// Path is how another process opens what is in the slot.
	Path(slot Slot) string
	// Take returns a descriptor of this process's own for what is in a slot:
	// the same open file description.
	Take(slot Slot) (int, error)
}

// Alone is the Keeper of a process that has no holder: it keeps copies itself,
// and they end with it.
func Alone() Keeper { return &alone{root: -1, self: "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/"} }

// alone's slots are descriptors of this process. Only Root is not, because its
// number may be somebody else's here.
type alone struct {
	self string

	mu   sync.Mutex
	root int // descriptor of Root, or -1
}

func (a *alone) Keep(fd int) (Slot, error) {
	n, err := dup(fd)
	return Slot(n), err
}

func (a *alone) Replace(slot Slot, fd int) error {
	if slot != Root {
		if err := put(fd, int(slot)); err != nil {
			return fmt.Errorf("replace what is in slot %d: %w", slot, err)
		}
		return nil
	}
	n, err := dup(fd)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.root >= 0 {
		_ = unix.Close(a.root)
	}
	a.root = n
	return nil
}

func (a *alone) Drop(slot Slot) {
	if slot == Root {
		a.mu.Lock()
		defer a.mu.Unlock()
		slot, a.root = Slot(a.root), -1
	}
	if slot >= 0 {
		_ = unix.Close(int(slot))
	}
}

func (a *alone) Sync() error { return nil }

func (a *alone) Path(slot Slot) string { return a.self + strconv.Itoa(a.fd(slot)) }

func (a *alone) Take(slot Slot) (int, error) { return dup(a.fd(slot)) }

func (a *alone) fd(slot Slot) int {
	if slot != Root {
		return int(slot)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.root
}

func dup(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("copy a descriptor: %w", err)
	}
	return n, nil
}
