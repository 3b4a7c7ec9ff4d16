package confine

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rights of Landlock that this package grants.
const (
	rightsRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	rightsWrite = rightsRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	rightsDevice = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// rightsProc lets programs change what /proc lets them change about themselves.
	rightsProc = rightsRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	// rightsOfFiles are those that a rule for something that is no directory may have.
	rightsOfFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV | unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
)

// fileRights returns the rights on files that a version of Landlock knows.
func fileRights(abi int) uint64 {
	rights := uint64(1<<13 - 1)
	for _, r := range []struct {
		abi   int
		right uint64
	}{
		{2, unix.LANDLOCK_ACCESS_FS_REFER},
		{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
		{9, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX},
	} {
		if abi >= r.abi {
			rights |= r.right
		}
	}
	return rights
}

// ruleset returns what a version of Landlock controls, and how many bytes of it
// that version knows.
func ruleset(abi int, files bool) (attr unix.LandlockRulesetAttr, size uintptr) {
	if files {
		attr.Handled_access_fs = fileRights(abi)
	}
	switch {
	case abi >= 6:
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		return attr, 24
	case abi >= 4:
		return attr, 16
	default:
		return attr, 8
	}
}

// landlockABI returns the version of Landlock of the kernel.
func landlockABI() (int, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(abi), nil
}

// rule grants rights on what is at a path and below.
type rule struct {
	path     string
	rights   uint64
	optional bool // the path may be missing
}

// rules returns the rules of a spec, for paths in its view.
func rules(o order) []rule {
	f := o.Spec.Files
	if f == nil {
		return nil
	}
	list := []rule{{"/proc", rightsProc, false}}
	read := f.Read
	if len(read) == 0 {
		read = []string{"/"}
	}
	for _, p := range read {
		list = append(list, rule{p, rightsRead, false})
	}
	for _, p := range f.Write {
		list = append(list, rule{p, rightsWrite, false})
	}
	list = append(list, rule{"/dev/shm", rightsWrite, true}, rule{"/dev/pts", rightsDevice, true})
	if !o.Namespaces.Mount {
		for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx"} {
			list = append(list, rule{"/dev/" + name, rightsDevice, true})
		}
		return list
	}
	// The directories that lead to what is listed are the launcher's own.
	list = append(list, rule{"/dev", rightsDevice, false}, rule{"/", unix.LANDLOCK_ACCESS_FS_READ_DIR, false})
	if f.all() {
		list = append(list, rule{"/run", rightsWrite, true})
	}
	if f.PrivateTmp {
		list = append(list, rule{"/tmp", rightsWrite, true}, rule{"/var/tmp", rightsWrite, true})
	}
	return list
}

// restrict puts this thread into a Landlock domain of exactly the version of the
// order. The program may always execute this binary, exe, which may be out of its
// view: the inner daemon starts its helpers from it.
func restrict(o order, exe int) error {
	attr, size := ruleset(o.Landlock, o.Spec.Files != nil)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("make Landlock rules of ABI %d: %w", o.Landlock, errno)
	}
	defer unix.Close(int(fd))
	for _, r := range rules(o) {
		at, err := lookup(unix.AT_FDCWD, r.path)
		if r.optional && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP)) {
			continue
		}
		if errors.Is(err, unix.EACCES) {
			continue // the user of the program cannot get there, rule or not
		}
		if err == nil {
			err = allow(int(fd), at, r.rights&attr.Handled_access_fs)
			_ = unix.Close(at)
		}
		if err != nil {
			return fmt.Errorf("allow %s by Landlock: %w", r.path, err)
		}
	}
	if o.Spec.Files != nil {
		if err := allow(int(fd), exe, rightsRead); err != nil {
			return fmt.Errorf("allow this program by Landlock: %w", err)
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("enter the Landlock domain: %w", errno)
	}
	return nil
}

// allow adds a rule for the file at fd.
func allow(ruleset, fd int, rights uint64) error {
	kind, err := fileType(fd)
	if err != nil {
		return err
	}
	if kind != unix.S_IFDIR {
		rights &= rightsOfFiles
	}
	if rights == 0 {
		return nil
	}
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)} //nolint:gosec // a descriptor
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
