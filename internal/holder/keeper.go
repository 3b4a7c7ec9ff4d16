package holder

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Slot names one kept descriptor: the number it has in the process that keeps
// it, and a generation. Numbers are used again; a number and a generation
// together never are while the holder lives. So a record that names a slot which
// has been dropped since can't lead to another owner's descriptor.
//
// Callers store a Slot as one opaque integer. 0 is no slot.
type Slot int64

const (
	// Root is the slot from which a restarted daemon finds everything else: that
	// of the ledger. It is Replaced, never Kept, and has no generation.
	Root Slot = 1000

	// numberBits is the part of a Slot that is the number. The kernel allows
	// 2^20 descriptors by default; what is left for generations lasts 17 years at
	// a thousand a second.
	numberBits = 24
	maxNumber  = 1<<numberBits - 1
)

func newSlot(number int, generation int64) Slot {
	return Slot(generation<<numberBits | int64(number))
}

// Number returns the number of the descriptor in the process that keeps it, and
// -1 for what is no slot.
func (s Slot) Number() int {
	if s < 0 {
		return -1
	}
	return int(s & maxNumber)
}

// Generation returns the generation of the slot. It is 0 for Root and for what
// was kept by a program that had no generations.
func (s Slot) Generation() int64 { return int64(s >> numberBits) }

// String returns the number, and the generation if there is one.
func (s Slot) String() string {
	if s < 0 || s.Generation() == 0 {
		return strconv.FormatInt(int64(s), 10)
	}
	return strconv.Itoa(s.Number()) + "." + strconv.FormatInt(s.Generation(), 10)
}

// Errors about a slot, for errors.Is.
var (
	// ErrOther says that the number of a slot belongs to another owner now.
	ErrStale = errors.New("the slot is another's")
	// ErrEmpty says that nothing is kept under the number of a slot.
	ErrEmpty = fmt.Errorf("nothing is kept in the slot: %w", unix.EBADF)
)

// Keeper keeps descriptors beyond the life of this process. It is safe for
// concurrent use.
type Keeper interface {
	// Keep gives a copy of fd to the holder. The slot is chosen here, so
	// nothing is waited for; its path is good only after Sync. With an error the
	// slot is 0.
	Keep(fd int) (Slot, error)
	// Replace puts a copy of fd in the place of what a slot had, in one step.
	Replace(slot Slot, fd int) error
	// Drop gives up a slot. Its number may be used again. It does nothing for
	// what is no slot, or has been given up already.
	Drop(slot Slot)
	// Sync returns when everything before it has been done, with an error if the
	// holder could not keep something that it was given.
	Sync() error
	// Path is how another process opens what is in the slot.
	Path(slot Slot) string
	// Take returns a descriptor of this process's own for what is in a slot:
	// the same open file description. The error is ErrOther where the number is
	// in use for something else, and ErrEmpty where it is not in use.
	Take(slot Slot) (int, error)
}

// Alone is the Keeper of a process that has no holder: it keeps copies itself,
// and they end with it.
func NewLocalKeeper() Keeper {
	return &localKeeper{root: -1, self: "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/"}
}

// alone's slots are descriptors of this process. Only Root is not, because its
// number may be somebody else's here.
type localKeeper struct {
	self string

	mu   sync.Mutex
	root int // descriptor of Root, or -1
}

func (a *localKeeper) Keep(fd int) (Slot, error) {
	n, err := dupAbove(fd, 2) // 0 is no slot
	if err != nil {
		return 0, err
	}
	return Slot(n), nil
}

func (a *localKeeper) Replace(slot Slot, fd int) error {
	if slot != Root {
		if err := dupTo(fd, int(slot)); err != nil {
			return fmt.Errorf("replace what is in slot %d: %w", slot, err)
		}
		return nil
	}
	n, err := dupAbove(fd, 2)
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

func (a *localKeeper) Drop(slot Slot) {
	if slot == Root {
		a.mu.Lock()
		defer a.mu.Unlock()
		slot, a.root = Slot(a.root), -1
	}
	if slot > 0 {
		_ = unix.Close(int(slot))
	}
}

func (a *localKeeper) Sync() error { return nil }

func (a *localKeeper) Path(slot Slot) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.self + strconv.Itoa(a.fd(slot))
}

func (a *localKeeper) Take(slot Slot) (int, error) {
	a.mu.Lock() // held until the copy is made: Replace closes the old root
	defer a.mu.Unlock()
	return dup(a.fd(slot))
}

// fd returns the descriptor of a slot. Callers hold mu.
func (a *localKeeper) fd(slot Slot) int {
	if slot != Root {
		return int(slot)
	}
	return a.root
}

func dup(fd int) (int, error) { return dupAbove(fd, -1) }

func dupAbove(fd, above int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, above+1)
	if err != nil {
		return -1, fmt.Errorf("copy a descriptor: %w", err)
	}
	return n, nil
}
