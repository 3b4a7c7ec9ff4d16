package confine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The descriptors of a launcher.
const (
	gateFD   = 3 // a SOCK_SEQPACKET socket; see Launch.Open
	specFD   = 4 // the order, as JSON
	listenFD = 5 // the first of the descriptors for the program
)

// Start describes a process that the caller must fork.
type Start struct {
	Path string
	Argv []string
	Env  []string
	// Cloneflags are the flags of clone(2) for the namespaces. They go together
	// with CLONE_PARENT.
	Cloneflags uintptr
	// AmbientCaps are the capabilities that the process keeps in its new user
	// namespace through exec. Its ids are not mapped by the parent.
	AmbientCaps []uintptr
	// Files become the descriptors 3, 4, … of the process. They stay the property
	// of the Launch.
	Files []int
}

// order is what a launcher gets.
type order struct {
	Spec       Spec       `json:"spec"`
	Namespaces namespaces `json:"namespaces"`
	Landlock   int        `json:"landlock"`
	Listeners  int        `json:"listeners"`
	UID        int        `json:"uid"` // of the daemon, for the map of a user namespace
	GID        int        `json:"gid"`
	// Probe names an ability: the launcher tries that instead, and exits.
	Probe string `json:"probe,omitempty"`
}

// Launch is a launcher that is started or about to be.
type Launch struct {
	Start Start
	gate  *os.File // ours
	close []*os.File
}

// Launch prepares a launcher for a spec that passed Check. The program inherits
// listeners as its descriptors 3, 4, …, announced as LISTEN_FDS; they stay the
// property of the caller and must be open until the caller has forked. A program
// that gets other files among them must know which. Close must be called.
func (a Abilities) Launch(s Spec, listeners ...int) (*Launch, error) {
	if err := a.Check(s); err != nil {
		return nil, err
	}
	o := order{Spec: s, Namespaces: a.flags(s), Landlock: a.landlock(s), Listeners: len(listeners), UID: os.Geteuid(), GID: os.Getegid()}
	return prepare(o, listeners...)
}

// prepare makes the descriptors of a launcher.
func prepare(o order, listeners ...int) (*Launch, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	l := &Launch{}
	fd, err := unix.MemfdCreate("order", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("pass the order to the launcher: %w", err)
	}
	spec := os.NewFile(uintptr(fd), "order")
	l.close = append(l.close, spec)
	if _, err := spec.WriteAt(text, 0); err != nil {
		l.Close()
		return nil, fmt.Errorf("pass the order to the launcher: %w", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("make the gate of the launcher: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true) // so that a deadline applies
	l.gate = os.NewFile(uintptr(pair[0]), "gate")
	theirs := os.NewFile(uintptr(pair[1]), "gate")
	l.close = append(l.close, l.gate, theirs)
	l.Start = Start{
		Path: "/proc/self/exe", Argv: []string{"trl", childCommand}, Env: []string{"PATH=/usr/bin:/bin"},
		Files: append([]int{pair[1], fd}, listeners...),
	}
	l.Start.Cloneflags, l.Start.AmbientCaps = o.Namespaces.clone()
	return l, nil
}

// clone returns the flags for clone(2), and the capabilities that the launcher
// must keep through exec: it has them in a new user namespace only.
func (n namespaces) clone() (flags uintptr, ambient []uintptr) {
	if n.Mount {
		flags |= unix.CLONE_NEWNS
	}
	if n.PID {
		flags |= unix.CLONE_NEWPID | unix.CLONE_NEWIPC
	}
	if n.Net {
		flags |= unix.CLONE_NEWNET
	}
	if n.User {
		flags |= unix.CLONE_NEWUSER
		ambient = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_DAC_OVERRIDE, unix.CAP_CHOWN}
	}
	return flags, ambient
}

// openTimeout bounds Open. A launcher needs a few milliseconds; a machine that
// swaps needs seconds.
const openTimeout = 30 * time.Second

// ErrDir means that the program may not enter its working directory: it has no
// capabilities, and may have another user.
var ErrDir = errors.New("enter the working directory")

// failure returns the error that a launcher has sent.
func failure(text string) error {
	if why, ok := strings.CutPrefix(text, ErrDir.Error()); ok {
		return fmt.Errorf("%w%s", ErrDir, why)
	}
	return errors.New(text)
}

// Open lets a started launcher go and returns when it has executed its program, or
// with the reason why it could not; then it has exited or is about to. The file is
// the listening TCP socket in the network namespace of the program for
// NetworkProxy, else nil; the caller must close it.
func (l *Launch) Open(ctx context.Context) (*os.File, error) {
	// The launcher must have the only copy of its end, or its death shows no end.
	for _, f := range l.close {
		if f != l.gate {
			_ = f.Close()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.gate.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := l.gate.Write([]byte{messageGo}); err != nil {
		return nil, l.failed(ctx, err)
	}
	var listener *os.File
	ready := false
	for {
		kind, text, fd, err := receive(l.gate)
		switch {
		case err == nil && kind == messageReady:
			ready = true
			continue
		case err == nil && kind == messageListener && fd >= 0 && listener == nil:
			listener = os.NewFile(uintptr(fd), "proxy")
			continue
		case errors.Is(err, io.EOF) && ready:
			return listener, nil
		case err == nil:
			err = failure(text)
		default:
			err = l.failed(ctx, err)
		}
		if listener != nil {
			_ = listener.Close()
		}
		return nil, err
	}
}

func (l *Launch) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("the launcher did not answer: %w", err)
}

// Close releases the descriptors. A launcher that was not let go exits.
func (l *Launch) Close() {
	for _, f := range l.close {
		_ = f.Close() // may be closed already
	}
}
