package holder

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Slot names one kept descriptor: its number in the process that keeps it, and
// a generation. Numbers are reused; a pair of number and generation is never
// reused while the holder lives. So a stored slot that has been dropped since
// can't lead to another owner's descriptor.
//
// Callers store a Slot as one opaque integer. 0 means no slot.
type Slot int64

const (
	// Root is the slot of the ledger, from which a restarted daemon finds
	// everything else. It is set with Replace, never with Keep, and has no
	// generation.
	Root Slot = 1000

	// numberBits is how many bits of a Slot hold the number. The kernel allows
	// 2^20 descriptors by default; the bits left for generations last 17 years
	// at a thousand a second.
	numberBits = 24
	maxNumber  = 1<<numberBits - 1
)

func newSlot(number int, generation int64) Slot {
	return Slot(generation<<numberBits | int64(number))
}

// Number returns the number of the descriptor in the process that keeps it, and
// -1 for a negative slot.
func (s Slot) Number() int {
	if s < 0 {
		return -1
	}
	return int(s & maxNumber)
}

// Generation returns the generation of the slot. It is 0 for Root and for slots
// kept by a version that had no generations.
func (s Slot) Generation() int64 { return int64(s >> numberBits) }

// String returns the number, followed by the generation if there is one.
func (s Slot) String() string {
	if s < 0 || s.Generation() == 0 {
		return strconv.FormatInt(int64(s), 10)
	}
	return strconv.Itoa(s.Number()) + "." + strconv.FormatInt(s.Generation(), 10)
}

// Errors about a slot, for use with errors.Is.
var (
	// ErrStale means that the slot was dropped and its number is in use for
	// something else.
	ErrStale = errors.New("slot was dropped and its number is in use for something else")
	// ErrEmpty means that nothing is kept under the number of the slot.
	ErrEmpty = fmt.Errorf("slot is empty: %w", unix.EBADF)
)

// Keeper keeps descriptors beyond the life of this process. It is safe for
// concurrent use.
type Keeper interface {
	// Keep gives a copy of fd to the holder. The slot is chosen locally, so
	// Keep does not wait; Path is valid only after Sync. On error the slot is
	// 0.
	Keep(fd int) (Slot, error)
	// Replace atomically replaces the descriptor in a slot with a copy of fd.
	Replace(slot Slot, fd int) error
	// Drop releases a slot. Its number may be reused. Drop does nothing for 0,
	// for negative slots, and for slots that were dropped already.
	Drop(slot Slot)
	// Sync waits until the holder has processed all earlier calls. It returns
	// an error if the holder could not keep a descriptor.
	Sync() error
	// Path returns the path by which another process opens the descriptor in
	// the slot.
	Path(slot Slot) string
	// Take returns a new descriptor for the open file description in a slot.
	// The error is ErrStale if the number is in use for something else, and
	// ErrEmpty if it is not in use.
	Take(slot Slot) (int, error)
}

// NewLocalKeeper returns a Keeper for a process that has no holder. It keeps
// the copies in this process, so they are closed when it ends.
func NewLocalKeeper() Keeper {
	return &localKeeper{root: -1, self: "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/"}
}

// localKeeper uses descriptors of this process as slots, except for Root, whose
// number may be taken by an unrelated descriptor here.
type localKeeper struct {
	self string

	mu   sync.Mutex
	root int // descriptor of Root, or -1
}

func (k *localKeeper) Keep(fd int) (Slot, error) {
	n, err := dupAbove(fd, 2) // not 0, which means no slot
	if err != nil {
		return 0, err
	}
	return Slot(n), nil
}

func (k *localKeeper) Replace(slot Slot, fd int) error {
	if slot != Root {
		if err := dupTo(fd, int(slot)); err != nil {
			return fmt.Errorf("replace slot %d: %w", slot, err)
		}
		return nil
	}
	n, err := dupAbove(fd, 2)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.root >= 0 {
		_ = unix.Close(k.root)
	}
	k.root = n
	return nil
}

func (k *localKeeper) Drop(slot Slot) {
	if slot == Root {
		k.mu.Lock()
		defer k.mu.Unlock()
		slot, k.root = Slot(k.root), -1
	}
	if slot > 0 {
		_ = unix.Close(int(slot))
	}
}

func (k *localKeeper) Sync() error { return nil }

func (k *localKeeper) Path(slot Slot) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.self + strconv.Itoa(k.fd(slot))
}

func (k *localKeeper) Take(slot Slot) (int, error) {
	k.mu.Lock() // until the copy is made: Replace closes the old root
	defer k.mu.Unlock()
	return dup(k.fd(slot))
}

// fd returns the descriptor of a slot. The caller must hold mu.
func (k *localKeeper) fd(slot Slot) int {
	if slot != Root {
		return int(slot)
	}
	return k.root
}

func dup(fd int) (int, error) { return dupAbove(fd, -1) }

func dupAbove(fd, above int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, above+1)
	if err != nil {
		return -1, fmt.Errorf("duplicate descriptor: %w", err)
	}
	return n, nil
}
