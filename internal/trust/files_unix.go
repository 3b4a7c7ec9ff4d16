//go:build unix

package trust

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is the maximum number of symbolic links in a path, as in the kernel.
const maxLinks = 40

// Directory returns an error unless only root and user can put a file into dir or
// change what its path leads to. Others must not be able to write to the directory
// itself, sticky or not: a socket is trusted because of its name in it. Each directory
// and symbolic link of the path must belong to root or to user, and a directory of the
// path that others can write to must be sticky.
func Directory(dir string, user int) error {
	info, path, err := walk(dir, user)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: %w", path, syscall.ENOTDIR)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return &Refusal{
			Message: fmt.Sprintf("others may write to %s (mode %04o)", path, modeOf(info)),
			Hint:    "run `chmod go-w` on it, or choose a socket in your own directory",
			Path:    path,
		}
	}
	return nil
}

// Program returns an error unless only root and user can change the executable at
// path, or what path leads to.
func Program(path string, user int) error {
	info, resolved, err := walk(path, user)
	if err != nil {
		return err
	}
	if err := checkFile(info, resolved, user); err != nil {
		return err
	}
	dir, err := os.Lstat(filepath.Dir(resolved))
	if err == nil && writableByOthers(dir) {
		return &Refusal{
			Message: fmt.Sprintf("others may write to %s (mode %04o), and so replace %s", filepath.Dir(resolved), modeOf(dir), resolved),
			Hint:    "run `chmod go-w` on that directory",
			Path:    filepath.Dir(resolved),
		}
	}
	return err
}

// File returns an error unless f belongs to root or to user and no other user can
// write to it. It does not check the directories of its path.
func File(f *os.File, user int) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeDevice != 0 && trusted(ownerOf(info), user) {
		return nil // reading /dev/null does not return what others write to it
	}
	return checkFile(info, f.Name(), user)
}

// ReadFile reads a file that File trusts.
func ReadFile(name string, user int) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := File(f, user); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

func checkFile(info fs.FileInfo, path string, user int) error {
	if owner := ownerOf(info); !trusted(owner, user) {
		return foreignOwner(path, owner)
	}
	if writableByOthers(info) {
		return &Refusal{
			Message: fmt.Sprintf("others may write to %s (mode %04o)", path, modeOf(info)),
			Hint:    "check its contents, then run `chmod go-w` on it",
			Path:    path,
		}
	}
	return nil
}

// Lock returns an error unless f, an open lock file, is a regular file of root or of
// user with one name, and no other user, not even a group, can write to it. It returns
// the owner. If the file was removed since it was opened, the error is
// fs.ErrNotExist.
func Lock(f *os.File, user int) (owner int, err error) {
	info, err := f.Stat()
	if err != nil {
		return -1, err
	}
	owner, links := ownerOf(info), linksOf(info)
	const hint = "check who created it; if no daemon serves there, remove it"
	switch {
	case !info.Mode().IsRegular():
		return owner, &Refusal{fmt.Sprintf("the lock %s is not a regular file", f.Name()), hint, f.Name()}
	case owner != 0 && owner != user:
		return owner, &Refusal{fmt.Sprintf("the lock %s belongs to another user (uid %d)", f.Name(), owner), hint, f.Name()}
	case info.Mode().Perm()&0o022 != 0:
		return owner, &Refusal{fmt.Sprintf("others may write to the lock %s (mode %04o)", f.Name(), modeOf(info)), hint, f.Name()}
	case links > 1:
		return owner, &Refusal{fmt.Sprintf("the lock %s has %d names", f.Name(), links), hint, f.Name()}
	case links == 0:
		return owner, &fs.PathError{Op: "open", Path: f.Name(), Err: syscall.ENOENT}
	}
	return owner, nil
}

// ServerUser returns the user, apart from root, who may serve on the socket at path,
// judging by its directory: the caller, or, if the caller is root, the owner of the
// directory. It returns an error where Directory does. An abstract address, which
// begins with @, has no directory.
func ServerUser(path string) (user int, err error) {
	user = os.Geteuid()
	if strings.HasPrefix(path, "@") {
		return user, nil
	}
	socket, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) { // there may be a lock next to it
		dir, name := filepath.Split(path)
		if socket, err = filepath.EvalSymlinks(filepath.Clean(dir)); err == nil {
			path, socket = dir, filepath.Join(socket, name)
		}
	}
	if err != nil {
		return user, err
	}
	dir := filepath.Dir(socket)
	if user == 0 {
		info, err := os.Stat(dir)
		if err != nil {
			return user, err
		}
		user = ownerOf(info)
	}
	if _, _, err := walk(path, user); err != nil {
		return user, err
	}
	return user, Directory(dir, user)
}

// walk resolves a path component by component, as the kernel does, and returns an
// error if another user could change what it leads to. It returns the file at its end,
// which belongs to root or to user, and the path without symbolic links.
func walk(path string, user int) (info fs.FileInfo, resolved string, err error) {
	if !filepath.IsAbs(path) {
		dir, err := os.Getwd()
		if err != nil {
			return nil, "", err
		}
		path = dir + "/" + path // not cleaned: .. is resolved below
	}
	resolved = "/"
	if info, err = os.Lstat(resolved); err != nil {
		return nil, "", err
	}
	left := strings.Split(path, "/")
	for links := 0; ; {
		if owner := ownerOf(info); !trusted(owner, user) {
			return nil, "", foreignOwner(resolved, owner)
		}
		for len(left) > 0 && (left[0] == "" || left[0] == ".") {
			left = left[1:]
		}
		if len(left) == 0 {
			return info, resolved, nil
		}
		if info.IsDir() && writableByOthers(info) && info.Mode()&fs.ModeSticky == 0 {
			return nil, "", &Refusal{
				Message: fmt.Sprintf("others may write to %s (mode %04o), which is above %s", resolved, modeOf(info), path),
				Hint:    "run `chmod go-w` on it, or choose a path in your own directory",
				Path:    resolved,
			}
		}
		next := filepath.Join(resolved, left[0]) // without links, .. is the parent
		left = left[1:]
		if info, err = os.Lstat(next); err != nil {
			return nil, "", err
		}
		if info.Mode().Type() != fs.ModeSymlink {
			resolved = next
			continue
		}
		// Its owner cannot change a link but can replace it, even in a sticky
		// directory.
		if owner := ownerOf(info); !trusted(owner, user) {
			return nil, "", foreignOwner(next, owner)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return nil, "", err
		}
		if links++; links > maxLinks {
			return nil, "", fmt.Errorf("%s: %w", path, syscall.ELOOP)
		}
		left = append(strings.Split(target, "/"), left...)
		if filepath.IsAbs(target) {
			resolved = "/"
		}
		if info, err = os.Lstat(resolved); err != nil {
			return nil, "", err
		}
	}
}

func foreignOwner(path string, owner int) error {
	return &Refusal{
		Message: fmt.Sprintf("%s belongs to another user (uid %d)", path, owner),
		Hint:    "choose a path in your own directory",
		Path:    path,
	}
}

// unmapped is the owner that the kernel shows for users that the user namespace does
// not map.
const unmapped = 65534

// trusted reports whether owner is root or user. In a user namespace that does not
// map root, root's files show as unmapped and cannot be distinguished from those of
// other users outside. They are trusted there, since otherwise nothing would be, not
// even /.
func trusted(owner, user int) bool {
	return owner == 0 || owner == user || owner == unmapped && !mapsNobody()
}

// mapsNobody reports whether uid 65534 is a real user in this namespace.
func mapsNobody() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return true // no such namespaces
	}
	return mapsUID(string(text), unmapped)
}

// mapsUID reports whether a uid_map has a line for uid.
func mapsUID(table string, uid int) bool {
	for line := range strings.Lines(table) {
		var inside, outside, length int
		if _, err := fmt.Sscan(line, &inside, &outside, &length); err == nil && uid >= inside && uid-inside < length {
			return true
		}
	}
	return false
}

// firstUserUID is the first uid of a person on common systems; lower uids belong to
// services.
const firstUserUID = 1000

// writableByOthers reports whether anyone except its owner can write to a file. A
// group with the same number as the owner is that person's private group, by the
// convention of useradd, where files are group-writable by default.
func writableByOthers(info fs.FileInfo) bool {
	owner, group := ownerOf(info), groupOf(info)
	private := owner == group && owner >= firstUserUID && owner != unmapped
	mode := info.Mode().Perm()
	return mode&0o002 != 0 || mode&0o020 != 0 && !private
}

func modeOf(info fs.FileInfo) uint32 {
	mode := uint32(info.Mode().Perm())
	if info.Mode()&fs.ModeSticky != 0 {
		mode |= 0o1000
	}
	return mode
}

func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
func groupOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Gid) }
func linksOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Nlink) }
