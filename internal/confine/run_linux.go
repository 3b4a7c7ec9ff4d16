package confine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// launch confines this process and becomes the program. It returns only an error.
func launch(o order) error {
	s := o.Spec
	exe, err := openSelf(o)
	if err != nil {
		return fmt.Errorf("open this program: %w", err)
	}
	if err := confineSelf(o, exe); err != nil {
		return err
	}
	if s.Dir == "" {
		s.Dir = "/"
	}
	if err := unix.Chdir(s.Dir); err != nil {
		return fmt.Errorf("%w: %w", ErrDir, err)
	}
	env := slices.Clone(s.Env)
	if o.Listeners > 0 {
		env = append(env, "LISTEN_FDS="+strconv.Itoa(o.Listeners), "LISTEN_PID="+strconv.Itoa(os.Getpid()))
	}
	gate, exe, err := passOn(exe, o.Listeners)
	if err != nil {
		return err
	}
	if err := send(gate, messageReady, "", -1); err != nil {
		return err
	}
	// The gate has another number now, so the failure is sent here.
	_ = send(gate, messageFailure, fmt.Sprintf("execute the program: %v", become(s, exe, env)), -1)
	os.Exit(127)
	return nil
}

// openSelf opens this binary. In a mount namespace it is opened on a read-only
// mount of its own, so that no session can write to it through /proc/PID/exe.
func openSelf(o order) (int, error) {
	exe, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil || !o.Namespaces.Mount {
		return exe, err
	}
	name, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return -1, err
	}
	fd, err := lookup(unix.AT_FDCWD, name)
	if err != nil {
		return exe, nil // replaced or removed; the kernel refuses writing while the daemon executes it
	}
	defer unix.Close(fd)
	var want, got unix.Stat_t
	if err := errors.Join(unix.Fstat(exe, &want), unix.Fstat(fd, &got)); err != nil {
		return -1, err
	}
	if want.Dev != got.Dev || want.Ino != got.Ino {
		return exe, nil
	}
	tree, err := clone(fd)
	if err != nil {
		return -1, err
	}
	return tree, setTree(tree, readOnly)
}

// confineSelf does steps 2 to 7 of the package comment.
func confineSelf(o order, exe int) error {
	s := o.Spec
	if err := leaveTerminal(); err != nil {
		return err
	}
	if err := mapIDs(o); err != nil {
		return err
	}
	if o.Namespaces.Mount {
		if err := enterView(o); err != nil {
			return err
		}
	}
	if err := enterNetwork(s); err != nil {
		return err
	}
	if err := limit(s); err != nil {
		return err
	}
	if !s.weak() {
		if err := dropBounding(o); err != nil {
			return err
		}
	}
	if err := becomeUser(s.User); err != nil {
		return err
	}
	if !s.weak() {
		if err := dropCapabilities(); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if o.Landlock > 0 {
		if err := restrict(o, exe); err != nil {
			return err
		}
	}
	switch {
	case s.Seccomp:
		return installFilter(filterAll)
	case s.Network != NetworkHost:
		return installFilter(filterSockets)
	}
	return nil
}

// leaveTerminal makes sure that the program has no controlling terminal: that of a
// daemon on a terminal would be its /dev/tty, to read from and to write to.
func leaveTerminal() error {
	if _, err := unix.Setsid(); err == nil {
		return nil
	}
	// The leader of a process group cannot begin a session.
	tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
		return nil // it has none
	}
	if err != nil {
		return fmt.Errorf("find the controlling terminal: %w", err)
	}
	defer unix.Close(tty)
	if err := unix.IoctlSetInt(tty, unix.TIOCNOTTY, 0); err != nil {
		return fmt.Errorf("leave the controlling terminal: %w", err)
	}
	return nil
}

// limit sets the resource limits. A hard limit below the asked one is kept.
func limit(s Spec) error {
	for _, l := range []struct {
		name  string
		what  int
		value uint64
	}{{"open files", unix.RLIMIT_NOFILE, s.OpenFiles}, {"file size", unix.RLIMIT_FSIZE, s.FileSizeBytes}} {
		if l.value == 0 {
			continue
		}
		if err := unix.Prlimit(0, l.what, &unix.Rlimit{Cur: l.value, Max: l.value}, nil); err != nil {
			return fmt.Errorf("limit %s to %d: %w", l.name, l.value, err)
		}
	}
	if s.OOMScoreAdj == 0 {
		return nil
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(s.OOMScoreAdj)), 0); err != nil {
		return fmt.Errorf("set oom_score_adj: %w", err)
	}
	return nil
}

// passOn moves the listeners to descriptors 3, 4, …, and the gate and the program
// to others, and marks everything that the program must not get.
func passOn(exe, listeners int) (gate, program int, err error) {
	above := listenFD + listeners
	if gate, err = unix.FcntlInt(gateFD, unix.F_DUPFD_CLOEXEC, above); err != nil {
		return 0, 0, fmt.Errorf("move the gate: %w", err)
	}
	if program, err = unix.FcntlInt(uintptr(exe), unix.F_DUPFD_CLOEXEC, above); err != nil {
		return 0, 0, fmt.Errorf("move the program: %w", err)
	}
	for i := range listeners {
		if err := unix.Dup3(listenFD+i, gateFD+i, 0); err != nil {
			return 0, 0, fmt.Errorf("pass a listener: %w", err)
		}
	}
	if err := unix.CloseRange(uint(gateFD+listeners), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return 0, 0, fmt.Errorf("mark descriptors: %w", err)
	}
	return gate, program, nil
}

// become executes the program.
func become(s Spec, exe int, env []string) error {
	if s.Program != "" {
		return unix.Exec(s.Program, s.Args, env)
	}
	argv, err := pointers(s.Args)
	if err != nil {
		return err
	}
	envv, err := pointers(env)
	if err != nil {
		return err
	}
	empty := []byte{0}
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(exe), uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envv[0])), unix.AT_EMPTY_PATH, 0)
	return errno
}

// pointers returns a list of C strings.
func pointers(list []string) ([]*byte, error) {
	out := make([]*byte, 0, len(list)+1)
	for _, s := range list {
		p, err := unix.BytePtrFromString(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return append(out, nil), nil
}
