package process

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Gated is a process that waits at a gate before it executes its program. Any
// process with a copy of the gate's descriptor can open the gate, even if the
// process that created it is gone. The gated process exits when no copy is left.
type Gated struct {
	*Proc
	gate *os.File
}

// Prepare starts a tagged process that executes the program of spec when its gate
// is opened. Use it for programs that may fork at once: their children must carry
// the tag too.
func (t *Tree) Prepare(spec Spec) (*Gated, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "gate"), os.NewFile(uintptr(pair[1]), "gate")
	defer theirs.Close()
	mode := childStart
	if spec.SessionLeader {
		mode = childStartKeepTTY
	}
	p, err := t.fork(spec.helper(mode, t.rlimits()), pair[1])
	if err != nil {
		ours.Close()
		return nil, err
	}
	return &Gated{p, ours}, nil
}

// AtGate returns p as a process that an earlier daemon prepared. It takes
// ownership of the descriptor gate. The process may have executed its program
// since.
func (p *Proc) AtGate(gate int) *Gated { return &Gated{p, os.NewFile(uintptr(gate), "gate")} }

// Gate returns the descriptor of the gate, valid until Open.
func (g *Gated) Gate() int { return int(g.gate.Fd()) }

// Close closes the gate without opening it.
func (g *Gated) Close() error { return g.gate.Close() }

// Open lets the process execute its program, unless that has happened already,
// and returns when it has. End of file on the gate means success; any text is the
// reason why it failed, and then the process has exited.
func (g *Gated) Open() error {
	defer g.gate.Close()
	if _, err := g.gate.Write([]byte{1}); err != nil && !errors.Is(err, unix.EPIPE) {
		return err
	}
	text, err := io.ReadAll(g.gate)
	if len(text) > 0 {
		<-g.done
		return errors.New(string(text))
	}
	if err != nil && !errors.Is(err, unix.ECONNRESET) { // the gate was opened before, so this byte was not read
		return err
	}
	return nil
}

// startGated prepares a process and opens its gate.
func (t *Tree) startGated(spec Spec) (*Proc, error) {
	w, err := t.Prepare(spec)
	if err != nil {
		return nil, err
	}
	if err := w.Open(); err != nil {
		return nil, err
	}
	return w.Proc, nil
}
