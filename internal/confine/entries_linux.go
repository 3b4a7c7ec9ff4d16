package confine

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mount mounts one entry.
func (v *view) mount(e entry) error {
	switch e.kind {
	case kindRead, kindWrite:
		return v.mountSource(e)
	case kindMade:
		target, err := v.target(e.path, true)
		if errors.Is(err, unix.EROFS) || errors.Is(err, unix.ELOOP) && e.optional {
			return nil // the host has no such directory
		}
		if err != nil {
			return err
		}
		defer unix.Close(target)
		return e.make(target)
	}
	return v.mountExisting(e)
}

// lookups is how often the path of an entry is looked up if what is there is removed
// before something is mounted on it. Sockets come and go; only a program that wants
// to disturb replaces a file as often as this.
const lookups = 100

// mountExisting mounts an entry on what is at its path; if nothing is there, there is
// nothing to do.
func (v *view) mountExisting(e entry) error {
	for range lookups {
		target, err := v.existing(e)
		if err != nil || target < 0 {
			return err
		}
		err = v.mountOn(e, target)
		_ = unix.Close(target)
		if !errors.Is(err, unix.ENOENT) { // else it has been removed: something else may be there now
			return err
		}
	}
	return errors.New("it is replaced again and again")
}

// existing opens what is at the path of an entry, or -1 if nothing is there.
func (v *view) existing(e entry) (int, error) {
	target, err := lookup(v.root, relative(e.path))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		if e.create == "" {
			return -1, nil
		}
		target, err = v.createReal(e)
		if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
			return -1, nil // the program cannot create it either
		}
	}
	if errors.Is(err, unix.ELOOP) {
		return -1, errors.New("it is a symbolic link, which cannot be protected; give the path that it leads to")
	}
	return target, err
}

// mountOn mounts an entry on target.
func (v *view) mountOn(e entry, target int) error {
	switch e.kind {
	case kindPin:
		return mountCopy(target, writable&^unix.MOUNT_ATTR_NODEV, target)
	case kindProtect:
		return mountCopy(target, unix.MOUNT_ATTR_RDONLY, target)
	default:
		return v.deny(e, target)
	}
}

// relative returns a path for a lookup from the root of the view.
func relative(p string) string { return "." + strings.TrimSuffix(p, "/") }

// mountSource mounts what the host has at the path of an entry.
func (v *view) mountSource(e entry) error {
	defer unix.Close(e.source)
	kind, err := fileType(e.source)
	if err != nil {
		return err
	}
	target, err := v.target(e.path, kind == unix.S_IFDIR)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	attributes := uint64(writable)
	if e.kind == kindRead {
		attributes = readOnly
	}
	if kind == unix.S_IFCHR {
		attributes &^= unix.MOUNT_ATTR_NODEV
	}
	return mountCopy(e.source, attributes, target)
}

// target opens the place of an entry in the view. It creates what is missing,
// which is possible only in the file systems that the launcher has made.
func (v *view) target(p string, dir bool) (int, error) {
	at, err := lookup(v.root, ".")
	if err != nil {
		return -1, err
	}
	names := strings.Split(strings.Trim(p, "/"), "/")
	for i, name := range names {
		next, err := lookup(at, name)
		if errors.Is(err, unix.ENOENT) {
			if dir || i < len(names)-1 {
				err = unix.Mkdirat(at, name, 0o755)
			} else {
				err = unix.Mknodat(at, name, unix.S_IFREG|0o644, 0)
			}
			if err == nil {
				next, err = lookup(at, name)
			}
		}
		_ = unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// createReal creates an empty file or directory in the real file system, where a
// program could otherwise create it.
func (v *view) createReal(e entry) (int, error) {
	parent, err := lookup(v.root, relative(path.Dir(e.path)))
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	name := path.Base(e.path)
	// The user of the program creates it: root must not change the owner of
	// something that others could replace meanwhile.
	if u := v.order.Spec.User; u != nil && v.order.UID == 0 {
		if err := errors.Join(unix.Setfsgid(u.GID), unix.Setfsuid(u.UID)); err != nil {
			return -1, err
		}
		defer func() { _, _ = unix.Setfsuid(v.order.UID), unix.Setfsgid(v.order.GID) }()
	}
	if e.create == "dir" {
		err = unix.Mkdirat(parent, name, 0o755)
	} else {
		err = unix.Mknodat(parent, name, unix.S_IFREG|0o644, 0)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, fmt.Errorf("create a placeholder: %w", err)
	}
	return lookup(parent, name)
}

// deny hides what is at target.
func (v *view) deny(e entry, target int) error {
	kind, err := fileType(target)
	if err != nil {
		return err
	}
	if kind != unix.S_IFDIR {
		return v.mountScratch(scratchNone, readOnly, target)
	}
	inside := slices.ContainsFunc(v.entries, func(o entry) bool { return o.kind <= kindWrite && strings.HasPrefix(o.path, e.path+"/") })
	if !inside {
		return v.mountScratch(scratchEmpty, readOnly, target)
	}
	// Entries inside stay reachable by their full path; nothing can be listed.
	mount, err := newMount("tmpfs", writable, option{"mode", "0111"})
	if err != nil {
		return err
	}
	if err := attach(mount, target); err != nil {
		return errors.Join(err, unix.Close(mount))
	}
	v.fixed = append(v.fixed, mount)
	return nil
}

// copyRoot makes a root that begins as a copy of the host's.
func (v *view) copyRoot() error {
	fd, err := lookup(unix.AT_FDCWD, "/")
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if v.root, err = clone(fd); err != nil {
		return err
	}
	attributes := uint64(readOnly)
	if f := v.order.Spec.Files; f == nil || slices.Contains(f.Write, "/") {
		attributes = writable
	}
	return setTree(v.root, attributes)
}

// copyLinks copies the symbolic links of the host's root directory, such as /bin,
// to root.
func copyLinks(root int) error {
	list, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Type() != os.ModeSymlink {
			continue
		}
		to, err := os.Readlink("/" + e.Name())
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(to, root, e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// fixedPaths are read-only in every view, and maskedPaths are hidden: root owns
// them even without capabilities, and some change the whole machine.
var (
	fixedPaths = []string{
		"/proc/bus", "/proc/driver", "/proc/dynamic_debug", "/proc/fs", "/proc/irq", "/proc/mtrr", "/proc/pressure", "/proc/sys",
		"/proc/sysrq-trigger", "/proc/tty",
	}
	maskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
		"/proc/scsi", "/proc/timer_list", "/sys/firmware",
	}
)

// addProc adds /proc, that of the new PID namespace if there is one. Without one
// the program is in a new user namespace, whose programs cannot look into others.
func (v *view) addProc() error {
	if !v.order.Namespaces.PID {
		return v.addHostProc()
	}
	v.add(entry{path: "/proc", kind: kindMade, make: func(target int) error {
		mount, err := newMount("proc", writable|unix.MOUNT_ATTR_NOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(mount)
		return attach(mount, target)
	}})
	return nil
}

// addHostProc adds the host's /proc. It is copied now: the scratch directory will be
// mounted on it.
func (v *view) addHostProc() error {
	proc, err := lookup(unix.AT_FDCWD, "/proc")
	if err != nil {
		return err
	}
	defer unix.Close(proc)
	tree, err := clone(proc)
	if err != nil {
		return err
	}
	if err := setTree(tree, writable|unix.MOUNT_ATTR_NOEXEC); err != nil {
		return err
	}
	v.add(entry{path: "/proc", kind: kindMade, make: func(target int) error {
		defer unix.Close(tree)
		return attach(tree, target)
	}})
	return nil
}

// devices are the nodes of /dev in a view; a host may lack the optional ones.
var devices = []struct {
	name     string
	optional bool
}{{"null", false}, {"zero", false}, {"urandom", false}, {"full", true}, {"random", true}, {"tty", true}}

// addDev adds a /dev with harmless devices and terminals of its own.
func (v *view) addDev() error {
	nodes := map[string]int{}
	for _, d := range devices {
		fd, err := lookup(unix.AT_FDCWD, "/dev/"+d.name)
		if err != nil {
			if d.optional {
				continue
			}
			return fmt.Errorf("open /dev/%s: %w", d.name, err)
		}
		if kind, err := fileType(fd); err != nil || kind != unix.S_IFCHR {
			return fmt.Errorf("/dev/%s is no device", d.name)
		}
		nodes[d.name] = fd
	}
	v.add(entry{path: "/dev", kind: kindMade, make: func(target int) error { return v.makeDev(target, nodes) }})
	return nil
}

// makeDev mounts a /dev on target.
func (v *view) makeDev(target int, nodes map[string]int) error {
	dev, err := newMount("tmpfs", writable, option{"mode", "0755"})
	if err != nil {
		return err
	}
	v.fixed = append(v.fixed, dev)
	if err := attach(dev, target); err != nil {
		return err
	}
	for name, node := range nodes {
		at, err := makeAt(dev, name, unix.S_IFREG)
		if err != nil {
			return err
		}
		if err := mountCopy(node, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, at); err != nil {
			return err
		}
		_, _ = unix.Close(at), unix.Close(node)
	}
	shm, err := makeAt(dev, "shm", unix.S_IFDIR)
	if err != nil {
		return err
	}
	defer unix.Close(shm)
	if err := v.mountScratch("shm", writable, shm); err != nil {
		return err
	}
	pts, err := makeAt(dev, "pts", unix.S_IFDIR)
	if err != nil {
		return err
	}
	defer unix.Close(pts)
	terminals, err := newMount("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, option{"mode", "0620"}, option{"ptmxmode", "0666"})
	if err != nil {
		return err
	}
	defer unix.Close(terminals)
	if err := attach(terminals, pts); err != nil {
		return err
	}
	for _, l := range [][2]string{{"ptmx", "pts/ptmx"}, {"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"}} {
		if err := unix.Symlinkat(l[1], dev, l[0]); err != nil {
			return err
		}
	}
	return nil
}

// makeAt creates a directory or a file and opens it.
func makeAt(dir int, name string, kind uint32) (int, error) {
	var err error
	if kind == unix.S_IFDIR {
		err = unix.Mkdirat(dir, name, 0o755)
	} else {
		err = unix.Mknodat(dir, name, kind|0o644, 0)
	}
	if err != nil {
		return -1, err
	}
	return lookup(dir, name)
}

// harmlessRun lists what programs need of /run, which is otherwise full of sockets
// of services.
var harmlessRun = []string{
	"/run/systemd/resolve/stub-resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/resolvconf/resolv.conf",
	"/run/NetworkManager/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf", "/run/current-system", "/run/opengl-driver",
}

// addRun adds an empty /run, and in it what is harmless. A program that sees only
// what is listed has no /run unless that is listed.
func (v *view) addRun() error {
	if !v.everything() {
		return nil
	}
	links := map[string]string{}
	for _, p := range harmlessRun {
		if to, err := os.Readlink(p); err == nil {
			links[strings.TrimPrefix(p, "/run/")] = to
			continue
		}
		if err := v.addSource(kindRead, p); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
	}
	v.add(entry{path: "/run", kind: kindMade, make: func(target int) error {
		for name, to := range links {
			if strings.Contains(name, "/") {
				continue
			}
			if err := unix.Symlinkat(to, v.scratch, "run/"+name); err != nil {
				return err
			}
		}
		return v.mountScratch("run", writable, target)
	}})
	return nil
}
