package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupRoot is the directory that holds the cgroups of all trees.
type cgroupRoot struct {
	path  string
	fd    int // of path; tree cgroups are opened relative to it
	lists procLists
	mu    sync.Mutex // held while recreating the directory
}

// cgroupPrefix begins the name of a host's cgroup. The host's name follows, so
// that the cgroup of a killed daemon can be distinguished from that of a living
// one.
const cgroupPrefix = "trl-"

// probeCgroup looks for a cgroup v2 directory in which this process may create
// groups and start processes, and verifies it by starting one. It tries several
// mount points: on hybrid systems v2 is mounted in addition to v1, without
// controllers, which is enough to kill and freeze. With sweep it removes the
// groups of dead daemons there.
func (h *Host) probeCgroup(sweep bool) (*cgroupRoot, error) {
	candidates, err := cgroupCandidates()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, dir := range candidates {
		if sweep {
			sweepCgroups(dir)
		}
		root, err := h.tryCgroup(dir)
		if err == nil {
			return root, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", dir, err))
	}
	if len(errs) == 0 {
		return nil, errors.New("no cgroup v2 hierarchy is mounted")
	}
	return nil, errors.Join(errs...)
}

// cgroupCandidates returns this process's own group in each cgroup v2 mount, and
// the root of each mount.
func cgroupCandidates() ([]string, error) {
	own, _ := ownCgroup()
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var dirs []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		mount := fields[4]
		dirs = append(dirs, filepath.Join(mount, own))
		if own != "/" {
			dirs = append(dirs, mount)
		}
	}
	return dirs, nil
}

// ownCgroup returns the path of this process's group, or of the group around it if
// it has moved into a leaf.
func ownCgroup() (path string, inLeaf bool) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "/", false
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			path = strings.TrimSpace(path)
			if filepath.Base(path) == leafName {
				return filepath.Dir(path), true
			}
			return path, false
		}
	}
	return "/", false
}

func (h *Host) tryCgroup(dir string) (*cgroupRoot, error) {
	path := filepath.Join(dir, cgroupPrefix+h.Name().String())
	fd, made, err := openCgroup(path, h.holder != nil && h.holder.Hello().Restarted)
	if err != nil {
		return nil, err
	}
	root := &cgroupRoot{path: path, fd: fd, lists: procLists{linger: listLinger}}
	if !made {
		return root, nil // the daemon that created it has probed it
	}
	h.cgroup = root // the probe's tree needs it
	defer func() { h.cgroup = nil }()
	if err := h.probeStart(); err != nil {
		return nil, errors.Join(err, root.remove())
	}
	return root, nil
}

// openCgroup creates a directory and opens it. With existing it also opens one
// that exists; made reports whether it was created. If it can't be opened, only a
// directory that was created is removed.
func openCgroup(path string, existing bool) (fd int, made bool, err error) {
	err = os.Mkdir(path, 0o755)
	made = err == nil
	if !made && (!existing || !errors.Is(err, fs.ErrExist)) {
		return -1, false, err
	}
	fd, err = unix.Open(path, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil && made {
		err = errors.Join(err, os.Remove(path))
	}
	return fd, made, err
}

// probeStart starts a process in its own cgroup and kills it there.
func (h *Host) probeStart() error {
	// Open it before the tree exists: a tree must be killed.
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	t, err := h.NewTree("probe")
	if err != nil {
		return err
	}
	p, err := t.Start(Spec{Path: "/proc/self/exe", Argv: childArgv(childPause), Files: [3]int{null, null, null}})
	if err == nil && len(t.PIDs()) != 1 {
		err = errors.New("the started process is not in its cgroup")
	}
	left := t.Kill(time.Now().Add(2 * time.Second))
	if err == nil && len(left) > 0 {
		err = errors.New("cgroup.kill did not kill the process")
	}
	if p != nil && err == nil {
		<-p.Done()
	}
	return err
}

// sweepTimeout bounds killing the processes that a dead daemon left in its
// cgroup.
const sweepTimeout = 5 * time.Second

// sweepCgroups removes the groups of dead daemons and kills the processes left in
// them. It does not touch a group whose daemon's pid is alive, nor one of another
// PID namespace, where that cannot be determined.
func sweepCgroups(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	if _, inLeaf := ownCgroup(); !inLeaf {
		_ = os.Remove(filepath.Join(dir, leafName)) // succeeds only if it is empty
	}
	here := NameHost(0, 0).Namespace
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), cgroupPrefix)
		name, err := ParseHostName(rest)
		if ok && err == nil && name.Namespace == here && unix.Kill(name.Parent, 0) == unix.ESRCH {
			killCgroup(filepath.Join(dir, e.Name()), time.Now().Add(sweepTimeout))
		}
	}
}

// killCgroup kills the processes in a host's group and in the groups of its
// trees, frozen or not, and removes the groups. It reports whether they are gone.
func killCgroup(path string, deadline time.Time) bool {
	for wait := time.Millisecond; ; wait = min(wait*2, 50*time.Millisecond) {
		// Repeat it each time: processes forked into a group meanwhile die with
		// it, but a process may be moved into one.
		_ = os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
		trees, _ := os.ReadDir(path)
		for _, tree := range trees {
			if tree.IsDir() {
				_ = os.Remove(filepath.Join(path, tree.Name()))
			}
		}
		if err := os.Remove(path); err == nil || errors.Is(err, fs.ErrNotExist) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(wait) // the kernel has no event for "can be removed now"
	}
}

func (r *cgroupRoot) remove() error {
	r.lists.closeAll()
	unix.Close(r.fd)
	if err := os.Remove(r.path); !errors.Is(err, fs.ErrNotExist) { // KillOrphans may have removed it first
		return err
	}
	return nil
}

// join moves a process into a group.
func (r *cgroupRoot) join(name string, pid int) error {
	return r.write(name, "cgroup.procs", strconv.Itoa(pid))
}

// names lists the groups.
func (r *cgroupRoot) names() ([]string, error) {
	entries, err := os.ReadDir(r.path)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// make creates a group, and the directory of all groups if it is gone: root may
// have removed it, with everything in it.
func (r *cgroupRoot) make(name string) error {
	err := unix.Mkdirat(r.fd, name, 0o755)
	if err != unix.ENOENT {
		return err
	}
	if err := r.recreate(); err != nil {
		return err
	}
	return unix.Mkdirat(r.fd, name, 0o755)
}

func (r *cgroupRoot) recreate() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.has("cgroup.procs") {
		return nil // another session recreated it first
	}
	if err := os.Mkdir(r.path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fd, err := unix.Open(r.path, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Dup3(fd, r.fd, unix.O_CLOEXEC) // the number stays the same: others use it concurrently
}

// has reports whether the directory contains name.
func (r *cgroupRoot) has(name string) bool {
	return unix.Faccessat(r.fd, name, unix.F_OK, 0) == nil
}

func (r *cgroupRoot) removeGroup(name string) error {
	return unix.Unlinkat(r.fd, name, unix.AT_REMOVEDIR)
}

func (r *cgroupRoot) open(name string) (int, error) {
	return unix.Openat(r.fd, name, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

func (r *cgroupRoot) write(name, file, value string) error {
	fd, err := unix.Openat(r.fd, name+"/"+file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// read reads a whole control file. kernfs may return a long list in several
// reads.
func (r *cgroupRoot) read(name, file string, buf []byte) ([]byte, error) {
	return readKernelFile(r.fd, name+"/"+file, buf)
}

// pids lists the processes of one group.
func (r *cgroupRoot) pids(name string) ([]int, error) {
	var small [512]byte // a shell and a few commands; longer lists grow
	b, err := r.read(name, "cgroup.procs", small[:])
	if err != nil {
		return nil, err
	}
	return parsePIDs(b), nil
}

// pidsCached is pids for callers that will soon ask again: it keeps the list
// open.
func (r *cgroupRoot) pidsCached(name string) ([]int, error) {
	var small [512]byte
	if l := r.lists.of(r.fd, name); l != nil {
		if b, ok := l.read(small[:]); ok {
			return parsePIDs(b), nil
		}
	}
	return r.pids(name)
}

func parsePIDs(b []byte) []int {
	pids := make([]int, 0, 4)
	n := 0
	for _, c := range b {
		if c == '\n' {
			if n > 0 { // 0: a process of another PID namespace
				pids = append(pids, n)
			}
			n = 0
			continue
		}
		n = n*10 + int(c-'0')
	}
	return pids
}

// freeze freezes every process of a group, or thaws it, and waits until the
// kernel confirms it.
func (r *cgroupRoot) freeze(name string, on bool) error {
	value, want := "0", []byte("frozen 0")
	if on {
		value, want = "1", []byte("frozen 1")
	}
	if err := r.write(name, "cgroup.freeze", value); err != nil {
		return err
	}
	// Freezing takes about a millisecond. A process in uninterruptible sleep can
	// delay it, so do not wait forever: killing continues either way.
	for wait := 100 * time.Microsecond; wait < 100*time.Millisecond; wait *= 2 {
		var buf [128]byte
		b, err := r.read(name, "cgroup.events", buf[:])
		if err != nil || bytes.Contains(b, want) {
			return err
		}
		time.Sleep(wait)
	}
	return nil
}

// cpu returns the total processor time that a group has used.
func (r *cgroupRoot) cpu(name string) (time.Duration, bool) {
	var buf [512]byte
	b, err := r.read(name, "cpu.stat", buf[:])
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte("usage_usec ")); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			return time.Duration(n) * time.Microsecond, err == nil
		}
	}
	return 0, false
}
