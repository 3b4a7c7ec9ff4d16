package confine

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A view is a new root. It is a read-only copy of the host's root if everything
// may be read, and else an empty directory; the entries of the view are mounted on
// it, outer ones first, and the old root is gone afterwards. So a view has nothing
// that is not listed here: no mounts that the host adds later, no devices but the
// harmless ones, an empty /run, and a /proc of its own PID namespace.
//
// The entries of a view are opened before anything is mounted, without following
// symbolic links, and mounted by descriptor.

// kind is the kind of an entry. Of two entries at one path the later kind wins.
type kind int

const (
	kindRead    kind = iota
	kindWrite        // writable
	kindPin          // as it was, but a mount, so that it cannot be renamed
	kindProtect      // as it was, but read-only
	kindMade         // made by the launcher
	kindDeny
)

// entry is a place in a view.
type entry struct {
	path   string
	kind   kind
	source int                    // for kindRead and kindWrite: what to mount
	make   func(target int) error // for kindMade
	create string                 // for kindPin and kindProtect: see Protected.Create
	// optional says that the path may be a symbolic link, whose target has an entry
	// of its own if it needs one.
	optional bool
}

func (e entry) depth() int { return strings.Count(strings.TrimSuffix(e.path, "/"), "/") }

// view is a view that is being built.
type view struct {
	order   order
	root    int // the root of the view, a mount
	scratch int // a tmpfs for everything in memory that the program may write; its size is the limit
	entries []entry
	fixed   []int // tmpfs mounts that become read-only when the view is complete
}

// enterView builds the view of a spec and makes it the root of this process.
func enterView(o order) error {
	v := &view{order: o}
	// The daemon's umask must not make directories of the view inaccessible to the
	// user of the program.
	defer unix.Umask(unix.Umask(0o022))
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"leave the host's mounts alone", makePrivate},
		{"find what the session may see", v.collect},
		{"make the root", v.makeRoot},
		{"make the scratch directory", v.makeScratch},
		{"fill the root", v.fill},
		{"enter the root", v.enter},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// makePrivate keeps mounts made here from the host and those of the host from here.
func makePrivate() error {
	root, err := lookup(unix.AT_FDCWD, "/")
	if err != nil {
		return err
	}
	defer unix.Close(root)
	return setAttributes(root, unix.AT_RECURSIVE, &unix.MountAttr{Propagation: unix.MS_PRIVATE})
}

// everything reports whether the view begins with a copy of the host's root.
func (v *view) everything() bool {
	return v.order.Spec.Files == nil || v.order.Spec.Files.all()
}

// collect lists the entries and opens what they mount.
func (v *view) collect() error {
	s := v.order.Spec
	if s.Files != nil {
		for _, list := range []struct {
			kind  kind
			paths []string
		}{{kindRead, s.Files.Read}, {kindWrite, s.Files.Write}} {
			for _, p := range list.paths {
				if err := v.addSource(list.kind, p); err != nil {
					return err
				}
			}
		}
		for _, p := range s.Files.Deny {
			v.add(entry{path: p, kind: kindDeny})
		}
		if s.Files.PrivateTmp {
			v.add(entry{path: "/tmp", kind: kindMade, make: v.useScratch("tmp")})
			v.add(entry{path: "/var/tmp", kind: kindMade, make: v.useScratch("tmp"), optional: true})
		}
	}
	for _, p := range slices.Concat(s.Hide, maskedPaths) {
		v.add(entry{path: p, kind: kindDeny})
	}
	for _, p := range fixedPaths {
		v.add(entry{path: p, kind: kindProtect})
	}
	for _, p := range s.Protect {
		v.protect(p)
	}
	if err := v.addProc(); err != nil {
		return err
	}
	if err := v.addDev(); err != nil {
		return err
	}
	return v.addRun()
}

func (v *view) add(e entry) { v.entries = append(v.entries, e) }

// addSource adds an entry that mounts what is at its path now.
func (v *view) addSource(k kind, p string) error {
	fd, err := lookup(unix.AT_FDCWD, p)
	if err != nil {
		return fmt.Errorf("open %s: %w", p, err)
	}
	v.add(entry{path: p, kind: k, source: fd})
	return nil
}

// protect adds a read-only entry. Every directory above it, up to one that is
// mounted anyway, becomes a mount too: renaming it would take the protected path
// away and leave room for another.
func (v *view) protect(p Protected) {
	v.add(entry{path: p.Path, kind: kindProtect, create: p.Create})
	for dir := path.Dir(p.Path); dir != "/"; dir = path.Dir(dir) {
		if slices.ContainsFunc(v.entries, func(e entry) bool { return e.path == dir && e.kind != kindProtect }) {
			return
		}
		above := entry{path: dir, kind: kindPin}
		if p.Create != "" {
			above.create = "dir"
		}
		v.add(above)
	}
}

// The attributes of the mounts of a view.
const (
	readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	writable = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
)

// The directories of the scratch tmpfs.
const (
	scratchRoot  = "root"  // where the view is mounted until it is entered
	scratchEmpty = "empty" // what is mounted on denied directories
	scratchNone  = "none"  // what is mounted on other denied files
)

// minInodes is enough for the directories of the launcher and a small program.
const minInodes = 1024

// makeScratch makes the tmpfs of the program, and mounts it and the root of the
// view where the old root goes away with them: on the host's /proc, of which
// nothing is needed any more and which always exists. Mounts can be copied, and
// mounted on, only where they are mounted themselves.
func (v *view) makeScratch() (err error) {
	options := []option{{"mode", "0755"}}
	if v.order.Spec.DiskBytes > 0 {
		// An empty file takes memory too, about a KiB.
		inodes := max(minInodes, v.order.Spec.DiskBytes>>10)
		options = append(options, option{"size", strconv.FormatInt(v.order.Spec.DiskBytes, 10)}, option{"nr_inodes", strconv.FormatInt(inodes, 10)})
	}
	if v.scratch, err = newMount("tmpfs", writable, options...); err != nil {
		return err
	}
	for _, d := range []struct {
		name string
		mode uint32
		uid  bool // it belongs to the program's user
	}{{"tmp", 0o1777, false}, {"shm", 0o1777, false}, {"run", 0o755, true}, {scratchRoot, 0o700, false}, {scratchEmpty, 0, false}} {
		if err := unix.Mkdirat(v.scratch, d.name, 0o700); err != nil {
			return err
		}
		if err := unix.Fchmodat(v.scratch, d.name, d.mode, 0); err != nil {
			return err
		}
		if u := v.order.Spec.User; d.uid && u != nil && v.order.UID == 0 {
			if err := unix.Fchownat(v.scratch, d.name, u.UID, u.GID, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return err
			}
		}
	}
	if err := unix.Mknodat(v.scratch, scratchNone, unix.S_IFREG, 0); err != nil {
		return err
	}
	proc, err := lookup(unix.AT_FDCWD, "/proc")
	if err != nil {
		return err
	}
	defer unix.Close(proc)
	if err := attach(v.scratch, proc); err != nil {
		return err
	}
	target, err := lookup(v.scratch, scratchRoot)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	return attach(v.root, target)
}

// useScratch returns a function that mounts a directory of the scratch tmpfs.
func (v *view) useScratch(name string) func(int) error {
	return func(target int) error { return v.mountScratch(name, writable, target) }
}

func (v *view) mountScratch(name string, attributes uint64, target int) error {
	fd, err := lookup(v.scratch, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return mountCopy(fd, attributes, target)
}

// mountCopy mounts a copy of what is at fd.
func mountCopy(fd int, attributes uint64, target int) error {
	tree, err := clone(fd)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := setTree(tree, attributes); err != nil {
		return err
	}
	return attach(tree, target)
}

// makeRoot makes the root of the view, which is not mounted yet.
func (v *view) makeRoot() (err error) {
	if v.everything() {
		return v.copyRoot()
	}
	if v.root, err = newMount("tmpfs", writable, option{"mode", "0755"}); err != nil {
		return err
	}
	v.fixed = append(v.fixed, v.root)
	return copyLinks(v.root)
}

// fill mounts the entries, outer ones first.
func (v *view) fill() error {
	slices.SortStableFunc(v.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.depth(), b.depth()), cmp.Compare(a.kind, b.kind))
	})
	for _, e := range v.entries {
		if e.path == "/" {
			continue // see copyRoot
		}
		if err := v.mount(e); err != nil {
			return fmt.Errorf("%s: %w", e.path, err)
		}
	}
	for _, fd := range v.fixed {
		if err := setAttributes(fd, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return err
		}
	}
	return nil
}

// enter makes the view the root of this process and removes the old root.
func (v *view) enter() error {
	old, err := lookup(unix.AT_FDCWD, "/")
	if err != nil {
		return err
	}
	defer unix.Close(old)
	if err := unix.Fchdir(v.root); err != nil {
		return err
	}
	switch err := unix.PivotRoot(".", "."); {
	case errors.Is(err, unix.EINVAL):
		return errors.New("the root of this process is no mount that can be replaced: it is a chroot or an initramfs")
	case err != nil:
		return fmt.Errorf("pivot: %w", err)
	}
	// The old root lies on the new one. Only from the old one "." means the old one.
	if err := unix.Fchdir(old); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("remove the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return v.checkRoot()
}

// checkRoot makes sure that "/" is the view.
func (v *view) checkRoot() error {
	var want, got unix.Statx_t
	if err := unix.Statx(v.root, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID|unix.STATX_INO, &want); err != nil {
		return err
	}
	if err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_MNT_ID|unix.STATX_INO, &got); err != nil {
		return err
	}
	if want.Mnt_id != got.Mnt_id || want.Ino != got.Ino {
		return errors.New("the root is not the view")
	}
	return nil
}
