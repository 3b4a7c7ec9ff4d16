package process

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file is the one path by which a process enters a tree. Only the process
// that forks it differs: this process (Tree.Start and Tree.Prepare), the leader of
// a terminal (Terminal.Start), or any process of the tree (Tree.Adopt).
//
//   - Spec describes a process. A terminal's leader receives the same Spec.
//   - Spec.attributes is what the process gets at fork and exec, whether this
//     process or the leader forks it.
//   - Tree.register makes it a tracked member of the tree. What the leader or
//     another process of the tree forks has inherited its tag and cgroup;
//     Tree.fork gives both to what this process forks.

// Spec describes a process to start.
//
// A terminal's leader receives it as JSON. The leader may be an earlier version of
// this program, which ignores fields that it does not know. So fields are not
// renamed, and a terminal must work if its leader ignores a new one.
type Spec struct {
	Path  string // absolute
	Argv  []string
	Env   []string
	Dir   string // "" means the working directory of the process that forks
	Files [3]int `json:"-"` // stdin, stdout, stderr; nothing else is inherited
	// Inherit are the descriptors that follow the first three. A process with any
	// must not be started through a gate: see Waits.
	Inherit []int `json:"-"`
	// Cloneflags are flags of clone(2) for namespaces, and AmbientCaps the
	// capabilities that the process keeps through exec in a new user namespace.
	Cloneflags  uintptr   `json:"-"`
	AmbientCaps []uintptr `json:"-"`
	// Waits says that the program does nothing until its caller lets it go, so
	// that Start needs no gate of its own.
	Waits bool `json:"-"`
	// SessionLeader makes the program lead a session (setsid) whose controlling
	// terminal is its stdin. Terminal.Start ignores it.
	SessionLeader bool `json:"-"`
	// Spared keeps the kernel from killing the process before others of the tree.
	Spared bool `json:"-"`
}

// attributes returns what the process gets at fork and exec. A sibling is a child
// of the parent of the process that forks it, from its first instant. The
// descriptors in more follow the first three.
func (s Spec) attributes(sibling bool, more ...int) *syscall.ProcAttr {
	attr := &syscall.ProcAttr{Dir: s.Dir, Env: s.Env, Sys: &syscall.SysProcAttr{Setpgid: true}}
	if s.SessionLeader {
		attr.Sys = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	}
	attr.Sys.Cloneflags, attr.Sys.AmbientCaps = s.Cloneflags, s.AmbientCaps
	if sibling {
		attr.Sys.Cloneflags |= unix.CLONE_PARENT
	}
	for _, fd := range slices.Concat(s.Files[:], more, s.Inherit) {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	return attr
}

// helper returns the spec of a helper that does its work in the child, and then
// becomes the program of s.
func (s Spec) helper(mode, rlimits string) Spec {
	s.Argv = append(childArgv(mode, rlimits, s.Path), s.Argv...)
	s.Path = "/proc/self/exe"
	return s
}

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
	if (t.host.gateAll || t.rlimits() != "") && !spec.Waits {
		return t.startGated(spec)
	}
	return t.fork(spec)
}

// fork starts a process that inherits the descriptors in more after its first
// three, and gives it the tree's tag and cgroup.
func (t *Tree) fork(spec Spec, more ...int) (*Proc, error) {
	h := t.host
	attr := spec.attributes(h.holder != nil, more...)
	// The kernel does not let a sibling begin in another cgroup, so that is moved
	// after the fork.
	if h.holder == nil {
		if err := t.withCgroup(func(cg *cgroupRoot) (err error) {
			attr.Sys.CgroupFD, err = cg.open(t.name)
			attr.Sys.UseCgroupFD = err == nil
			return err
		}); err != nil {
			return nil, fmt.Errorf("open the cgroup: %w", err)
		}
	}
	if attr.Sys.UseCgroupFD {
		defer unix.Close(attr.Sys.CgroupFD)
	}
	return t.register(func() (*Proc, error) {
		pid, err := syscall.ForkExec(spec.Path, spec.Argv, attr)
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
		if !spec.Spared {
			t.raiseOOMScore(pid)
		}
		// A process that has exited already is reported like any other.
		if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, fs.ErrNotExist) {
			_ = unix.Kill(pid, unix.SIGKILL)
			return nil, err
		}
		return p, nil
	})
}

// register calls add, which tracks a process, unless the tree is being killed. It
// holds spawn so that the reaper cannot see the death of a process that add forks
// before it is tracked.
func (t *Tree) register(add func() (*Proc, error)) (*Proc, error) {
	t.host.spawn.RLock()
	defer t.host.spawn.RUnlock()
	if t.dying.Load() {
		return nil, errDying
	}
	return add()
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
		if wait > 400*time.Millisecond { // after 0.65 s in all: a busy machine stalls for tenths of a second
			return nil, fmt.Errorf("adopt %d: its parent %d is still alive", pid, st.ppid)
		}
		time.Sleep(wait)
	}
	return t.register(func() (*Proc, error) {
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
		t.raiseOOMScore(pid)
		return t.track(pid)
	})
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
