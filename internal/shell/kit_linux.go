package shell

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// kit is the pair of pipes a shell needs in order to leave a copy of itself: one
// on which the copy sleeps, one through which the shell's traps are told. A
// kit that was not used is as good as new.
type kit struct {
	wake, traps [2]int
}

// maxKits is how many unused kits are kept: enough for a burst of commands on
// a small machine, at four descriptors each.
const maxKits = 64

// kits are the spare ones. There is never more than one more of them than are
// in use, so that a daemon which has become idle holds a single one.
type kits struct {
	mu    sync.Mutex
	spare []*kit
	inUse int
}

// take returns a spare kit or a new one, which put or drop takes back.
func (ks *kits) take() (*kit, error) {
	ks.mu.Lock()
	ks.inUse++
	if last := len(ks.spare) - 1; last >= 0 {
		k := ks.spare[last]
		ks.spare = ks.spare[:last]
		ks.mu.Unlock()
		return k, nil
	}
	ks.mu.Unlock()
	k, err := newKit()
	if err != nil {
		ks.release()
	}
	return k, err
}

func newKit() (*kit, error) {
	k := &kit{}
	if err := unix.Pipe2(k.wake[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	if err := unix.Pipe2(k.traps[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, errors.Join(err, closeFDs(k.wake[:]...))
	}
	return k, nil
}

// put takes back a kit that no copy was made with.
func (ks *kits) put(k *kit) {
	ks.mu.Lock()
	ks.spare = append(ks.spare, k)
	ks.mu.Unlock()
	ks.release()
}

// drop closes a kit that somebody else may still have open.
func (ks *kits) drop(k *kit) {
	_ = k.close()
	ks.release()
}

// release counts a kit as no longer in use, and closes the spare ones that are
// now too many.
func (ks *kits) release() {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	ks.inUse--
	for len(ks.spare) > min(ks.inUse+1, maxKits) {
		last := len(ks.spare) - 1
		_ = ks.spare[last].close()
		ks.spare = ks.spare[:last]
	}
}

func (k *kit) close() error {
	return closeFDs(k.wake[0], k.wake[1], k.traps[0], k.traps[1])
}

// readTraps takes what the shell wrote into the kit before it forked.
func (k *kit) readTraps() []byte {
	var out []byte
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(k.traps[0], buf)
		if n <= 0 || err != nil {
			return out
		}
		out = append(out, buf[:n]...)
	}
}
