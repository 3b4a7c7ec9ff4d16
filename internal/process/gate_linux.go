package process

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Waiting is a process that waits at a gate until it may become its program.
// Whoever has a copy of the gate can open it, also when the one who made it is
// gone; it ends when nobody has one.
type Gated struct {
	*Proc
	gate *os.File
}

// Prepare starts a process that is tagged and becomes the program of spec when the
// gate is opened. Programs that may fork at once are started so, for a child of theirs
// is to carry the tag too.
func (t *Tree) Prepare(spec Spec) (*Gated, error) {
	attr, done, err := t.attributes(spec)
	if err != nil {
		return nil, err
	}
	defer done()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "gate"), os.NewFile(uintptr(pair[1]), "gate")
	defer theirs.Close()
	attr.Files = append(attr.Files, uintptr(pair[1]))
	mode := childStart
	if spec.SessionLeader {
		mode = childStartKeepTTY
	}
	p, err := t.fork("/proc/self/exe", append(childArgv(mode, spec.Path), spec.Argv...), attr)
	if err != nil {
		ours.Close()
		return nil, err
	}
	return &Gated{p, ours}, nil
}

// AtGate is a process that an earlier one prepared, whose gate is gate, which it owns
// from now on. It may have become its program since.
func (p *Proc) AtGate(gate int) *Gated { return &Gated{p, os.NewFile(uintptr(gate), "gate")} }

// Gate is the descriptor of the gate, valid until Open.
func (w *Gated) Gate() int { return int(w.gate.Fd()) }

// Close leaves the gate shut.
func (w *Gated) Close() error { return w.gate.Close() }

// Open lets the process become its program, if nobody has yet, and returns when it
// has. The gate's end of file says that; a text says why it could not, and then the
// process has ended.
func (w *Gated) Open() error {
	defer w.gate.Close()
	if _, err := w.gate.Write([]byte{1}); err != nil && !errors.Is(err, unix.EPIPE) {
		return err
	}
	said, err := io.ReadAll(w.gate)
	if len(said) > 0 {
		<-w.done
		return errors.New(string(said))
	}
	if err != nil && !errors.Is(err, unix.ECONNRESET) { // it was opened before, and did not read this byte
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
