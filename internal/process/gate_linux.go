package process

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// startGated starts the helper, which waits at the gate while fork tags it, and
// then lets it become the program. The gate's end of file says that it has; a
// text says why it could not.
func (t *Tree) startGated(spec Spec, attr *syscall.ProcAttr) (*Proc, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "gate"), os.NewFile(uintptr(pair[1]), "gate")
	defer ours.Close()
	attr.Files = append(attr.Files, uintptr(pair[1]))
	mode := childStart
	if spec.Leads {
		mode = childStartThere
	}
	p, err := t.fork("/proc/self/exe", append(childArgv(mode, spec.Path), spec.Argv...), attr)
	theirs.Close()
	if err != nil {
		return nil, err
	}
	if _, err := ours.Write([]byte{1}); err != nil {
		return nil, err
	}
	said, err := io.ReadAll(ours)
	if err == nil && len(said) > 0 {
		err = errors.New(string(said))
		<-p.done
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}
