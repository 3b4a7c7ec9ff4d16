package shell

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/freelist"
	"github.com/terminal-runtime/trl/internal/nowait"
)

// copyFDs are what a shell needs in order to fork a sleeping copy of itself: a pipe
// on which the copy sleeps, and a memfd into which the shell writes its traps. Those
// that no copy was forked with can be used again.
type copyFDs struct {
	wake  heldFD // reading end: a copy opens it for reading and writing
	traps heldFD
}

func (k keeper) openCopyFDs() (*copyFDs, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	wake, err := k.keepAndClose(p[0])
	if err = errors.Join(err, unix.Close(p[1])); err != nil {
		k.drop(wake)
		return nil, err
	}
	traps, err := k.keepMemfd("traps", "")
	if err != nil {
		k.drop(wake)
		return nil, err
	}
	return &copyFDs{wake: wake, traps: traps}, nil
}

func (k keeper) closeCopyFDs(c *copyFDs) {
	k.drop(c.wake)
	k.drop(c.traps)
}

// readTraps returns what the shell wrote before it forked the copy.
func (c *copyFDs) readTraps() []byte {
	var out []byte
	buf := make([]byte, 4096)
	for {
		n, err := unix.Pread(c.traps.fd, buf, int64(len(out)))
		if n <= 0 || err != nil {
			return out
		}
		out = append(out, buf[:n]...)
	}
}

// script is a memfd that one shell sources by path. It is never on a disk.
type script struct {
	heldFD
	size int // of the file, if it was written here; 0: it is empty, or from an earlier daemon
}

func (k keeper) openScript() (*script, error) {
	h, err := k.keepMemfd("text", "")
	return &script{heldFD: h}, err
}

// scriptPool reuses the memfds of scripts.
type scriptPool struct{ freelist.List[*script] }

// write returns a script with these contents.
func (p *scriptPool) write(contents string) (*script, error) {
	t, err := p.Take()
	if err != nil {
		return nil, err
	}
	err = writeAll(t.fd, contents)
	if err == nil && t.size > len(contents) {
		err = unix.Ftruncate(t.fd, int64(len(contents)))
	}
	if err != nil {
		p.Drop(t)
		return nil, err
	}
	t.size = len(contents)
	return t, nil
}

// wipe returns a script to the pool. It erases the contents: nothing of a command
// may stay readable after its end.
func (p *scriptPool) wipe(t *script) {
	if !t.overwrite() {
		t.size = 0
		if unix.Ftruncate(t.fd, 0) != nil {
			p.Drop(t)
			return
		}
	}
	p.Put(t)
}

// zeros overwrite a script that is short enough. To free its page and get another
// for the next command costs more than the command's own line.
var zeros [4096]byte

// overwrite erases the contents. It returns false for a script that must be
// truncated: it is long, or the command has changed its own script.
func (t *script) overwrite() bool {
	if t.size == 0 || t.size > len(zeros) {
		return false
	}
	if size, err := nowait.Size(t.fd); err != nil || size != int64(t.size) {
		return false
	}
	n, err := nowait.Pwrite(t.fd, zeros[:t.size], 0)
	return err == nil && n == t.size
}

// pendingRelease is what is released after the next save.
type pendingRelease struct {
	fds                   []heldFD
	reusable, usedCopyFDs []*copyFDs
	scripts               []*script
}

func (p *pendingRelease) add(h heldFD) {
	if h.valid() {
		p.fds = append(p.fds, h)
	}
}

// dropCopyFDs is for those that another process may still have open.
func (p *pendingRelease) dropCopyFDs(c *copyFDs) {
	if c != nil {
		p.usedCopyFDs = append(p.usedCopyFDs, c)
	}
}

func (p *pendingRelease) reuseCopyFDs(c *copyFDs) {
	if c != nil {
		p.reusable = append(p.reusable, c)
	}
}

func (p *pendingRelease) addScript(t *script) {
	if t != nil {
		p.scripts = append(p.scripts, t)
	}
}
