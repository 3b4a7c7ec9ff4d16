package confine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// This file has the calls of the mount API that work on descriptors (Linux 5.12
// and later). Nothing is mounted by path, so a path that is replaced while the
// view is built changes nothing.

// clone returns a detached copy of the tree of mounts at fd.
func clone(fd int) (int, error) {
	tree, err := unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("copy a mount: %w", err)
	}
	return tree, nil
}

// setTree sets attributes of all mounts of a tree.
func setTree(tree int, attributes uint64) error {
	return setAttributes(tree, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attributes})
}

func setAttributes(fd int, flags uint, attr *unix.MountAttr) error {
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|flags, attr); err != nil {
		return fmt.Errorf("set the attributes of a mount: %w", err)
	}
	return nil
}

// attach mounts a detached mount on the file or directory at fd.
func attach(mount, fd int) error {
	if err := unix.MoveMount(mount, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach a mount: %w", err)
	}
	return nil
}

// option is an option of a new file system; one without a value is a flag.
type option struct{ name, value string }

// newMount makes a file system and returns a detached mount of it.
func newMount(kind string, attributes int, options ...option) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("make a %s: %w", kind, err)
	}
	defer unix.Close(fs)
	for _, o := range options {
		if err := unix.FsconfigSetString(fs, o.name, o.value); err != nil {
			return -1, fmt.Errorf("make a %s with %s=%s: %w", kind, o.name, o.value, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("make a %s: %w", kind, err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return -1, fmt.Errorf("mount a %s: %w", kind, err)
	}
	return mount, nil
}

// noSymlinks makes a lookup fail at a symbolic link, which the caller has not seen.
const noSymlinks = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// lookup opens a path without following any symbolic link. An absolute path begins
// at the root of this process, others at dir.
func lookup(dir int, path string) (int, error) {
	return unix.Openat2(dir, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: noSymlinks})
}

// fileType returns the type of the file at fd, as in S_IFMT.
func fileType(fd int) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return st.Mode & unix.S_IFMT, nil
}
