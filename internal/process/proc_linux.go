package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Spec describes a process to start.
type Spec struct {
	Path  string // absolute
	Argv  []string
	Env   []string
	Dir   string // "" means this process's working directory
	Files [3]int // stdin, stdout, stderr; nothing else is inherited
	// SessionLeader makes the program lead a session (setsid) whose controlling
	// terminal is its stdin.
	SessionLeader bool
}

// Proc is one tracked process: started in a tree, or adopted by it.
type Proc struct {
	pid    int
	tree   *Tree
	done   chan struct{} // closed by the reaper after it sets status
	status Status
}

// Status describes how a process ended.
type Status struct {
	Code   int         // exit code; 128+signal if a signal ended the process
	Signal unix.Signal // 0 means that it exited by itself
	CPU    time.Duration
}

func statusOf(ws unix.WaitStatus, ru *unix.Rusage) Status {
	s := Status{CPU: time.Duration(ru.Utime.Nano() + ru.Stime.Nano())}
	if ws.Signaled() {
		s.Signal = ws.Signal()
		s.Code = 128 + int(s.Signal)
	} else {
		s.Code = ws.ExitStatus()
	}
	return s
}

// PID returns the pid of the process. It is not reused before Done is closed.
func (p *Proc) PID() int { return p.pid }

// Done returns a channel that is closed when the process has been reaped.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Exited reports whether Done is closed.
func (p *Proc) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Status returns how the process ended. It is valid once Done is closed.
func (p *Proc) Status() Status { return p.status }

// Signal signals the process, unless it has been reaped.
func (p *Proc) Signal(sig unix.Signal) {
	if p.tree.host.holder != nil { // the holder may reap it at any time
		if !p.Exited() {
			p.tree.Signal(p.pid, sig)
		}
		return
	}
	p.tree.host.spawn.RLock() // keeps the reaper from freeing the pid meanwhile
	defer p.tree.host.spawn.RUnlock()
	if !p.Exited() {
		_ = unix.Kill(p.pid, sig)
	}
}

// Cwd returns the working directory of the process.
func (p *Proc) Cwd() (string, error) { return os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/cwd") }

// Start starts a process in the tree, in its own process group, without a
// controlling terminal and with default signal dispositions.
//
// The process shares the daemon's session (setsid) rather than leading one,
// because a shell's safety copy must be moved out of the shell's process group,
// and the kernel lets a parent do that only within its own session. CleanSelf, or
// the gate's helper, has detached that session from its terminal.
//
// Start does not wait at a gate until the process is tagged, which makes it three
// times faster: a shell forks nothing before its first line.
func (t *Tree) Start(spec Spec) (*Proc, error) {
	if t.host.gateAll {
		return t.startGated(spec)
	}
	return t.start(spec)
}

// start starts a program that inherits more descriptors than the first three.
func (t *Tree) start(spec Spec, more ...int) (*Proc, error) {
	attr, done, err := t.attributes(spec, more...)
	if err != nil {
		return nil, err
	}
	defer done()
	return t.fork(spec.Path, spec.Argv, attr)
}

// attributes returns what a process starts with. It is valid until done is
// called.
func (t *Tree) attributes(spec Spec, more ...int) (attr *syscall.ProcAttr, done func(), err error) {
	attr = &syscall.ProcAttr{
		Dir: spec.Dir,
		Env: spec.Env,
		Sys: &syscall.SysProcAttr{Setpgid: true},
	}
	if spec.SessionLeader {
		attr.Sys = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	}
	for _, fd := range append(spec.Files[:], more...) {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if t.host.holder != nil {
		// Make it a child of the holder from the start. The kernel does not let
		// such a child begin in another cgroup, so it is moved before it runs.
		attr.Sys.Cloneflags = unix.CLONE_PARENT
		return attr, func() {}, nil
	}
	if err := t.withCgroup(func(cg *cgroupRoot) (err error) {
		attr.Sys.CgroupFD, err = cg.open(t.name)
		attr.Sys.UseCgroupFD = err == nil
		return err
	}); err != nil {
		return nil, nil, fmt.Errorf("open the cgroup: %w", err)
	}
	return attr, func() {
		if attr.Sys.UseCgroupFD {
			_ = unix.Close(attr.Sys.CgroupFD)
		}
	}, nil
}

// fork starts, tags and registers a process. It holds spawn so that the reaper
// cannot see the child's death before the registration.
func (t *Tree) fork(path string, argv []string, attr *syscall.ProcAttr) (*Proc, error) {
	h := t.host
	h.spawn.RLock()
	defer h.spawn.RUnlock()
	if t.dying.Load() {
		return nil, errDying
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, err
	}
	p, err := t.track(pid)
	if err == nil && h.holder != nil {
		err = t.withCgroup(func(cg *cgroupRoot) error { return cg.join(t.name, pid) })
	}
	if err == nil {
		err = h.tag.set(pid, h.id, t.num, 0)
	}
	// A process that has exited already is reported like any other.
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, fs.ErrNotExist) {
		_ = unix.Kill(pid, unix.SIGKILL)
		return nil, err
	}
	return p, nil
}

// errDying means that the tree is being killed.
var errDying = errors.New("the process tree is being killed")

// errNotOurs means that a process to adopt is not, or no longer, in the tree.
var errNotOurs = errors.New("no such process in the tree")

// Adopt tracks a descendant of the tree whose parent is gone, so that it has
// become a child of this process (or of the holder), and moves it into its own
// process group. It waits a moment for the parent to exit.
func (t *Tree) Adopt(pid int) (*Proc, error) {
	h := t.host
	for wait := 20 * time.Microsecond; ; wait *= 2 {
		st, err := readStat(pid)
		if err != nil || st.dead() {
			return nil, errNotOurs
		}
		if st.ppid == h.parent {
			break
		}
		if wait > 100*time.Millisecond {
			return nil, fmt.Errorf("adopt %d: its parent %d is still alive", pid, st.ppid)
		}
		time.Sleep(wait)
	}
	h.spawn.RLock()
	defer h.spawn.RUnlock()
	if t.dying.Load() {
		return nil, errDying
	}
	if host, tree, _, ok := h.tag.read(pid); !ok || host != h.id || tree != t.num {
		return nil, errNotOurs
	}
	h.mu.Lock()
	p := h.procs[pid]
	h.mu.Unlock()
	if p != nil {
		return p, nil
	}
	group := func(pid int) error { return unix.Setpgid(pid, pid) }
	if h.holder != nil {
		group = h.holder.Group
	}
	if err := group(pid); err != nil && !errors.Is(err, unix.EPERM) { // EPERM: it already leads a session
		return nil, fmt.Errorf("adopt %d: %w", pid, err)
	}
	return t.track(pid)
}

// track registers a process; its exit is reported from then on.
func (t *Tree) track(pid int) (*Proc, error) {
	h := t.host
	p := &Proc{pid: pid, tree: t, done: make(chan struct{})}
	h.mu.Lock()
	_, before := h.exits[pid] // of an earlier process with this pid
	delete(h.exits, pid)
	h.procs[pid] = p
	t.procs = append(t.procs, p)
	h.mu.Unlock()
	if h.holder == nil {
		return p, nil
	}
	if before {
		h.holder.Forget(pid)
	}
	return p, h.holder.Track(pid)
}
