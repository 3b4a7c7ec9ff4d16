//go:build unix

package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links a path may have, as in the kernel.
const maxLinks = 40

// Directory refuses a directory of a socket unless nobody but root and user can
// put something into it or change what its path leads to. Others must not be able
// to write to the directory itself, sticky or not: the names in it are what is
// believed. Each directory and each symbolic link on the way to it must belong to
// root or to user, and a directory on the way that others can write to must be
// sticky.
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
			Hint:    "run `chmod go-w` on it, or choose a socket in a directory of your own",
			Path:    path,
		}
	}
	return nil
}

// Program refuses a file that is to be executed unless nobody but root and user
// can change it or what its path leads to.
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

// File refuses an open file unless it belongs to root or to user, and nobody else
// can write to it. It does not look at the directories of its path.
func File(f *os.File, user int) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeDevice != 0 && trusted(ownerOf(info), user) {
		return nil // what others write to /dev/null is not read here
	}
	return checkFile(info, f.Name(), user)
}

func checkFile(info fs.FileInfo, path string, user int) error {
	if owner := ownerOf(info); !trusted(owner, user) {
		return foreignOwner(path, owner)
	}
	if writableByOthers(info) {
		return &Refusal{
			Message: fmt.Sprintf("others may write to %s (mode %04o)", path, modeOf(info)),
			Hint:    "look at what is in it, then run `chmod go-w` on it",
			Path:    path,
		}
	}
	return nil
}

// Lock refuses an open lock file unless it is a regular file of root or of user
// with one name, to which nobody else can write, not even a group. It returns the
// owner. A file without a name has been removed since it was opened: the error is
// fs.ErrNotExist then.
func Lock(f *os.File, user int) (owner int, err error) {
	info, err := f.Stat()
	if err != nil {
		return -1, err
	}
	owner, links := ownerOf(info), linksOf(info)
	const hint = "look at who made it; if no daemon serves there, remove it"
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

// Server returns the user who may serve on the socket at path besides root, as
// far as its directory tells: the caller; for root also another user, if the
// socket is in a directory of theirs. It refuses what Directory refuses. An
// abstract address, which begins with @, has no directory.
func ServerUser(path string) (user int, err error) {
	user = os.Geteuid()
	if strings.HasPrefix(path, "@") {
		return user, nil
	}
	socket, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) { // there may be a lock beside it
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

// walk follows a path name by name, as the kernel does, and refuses it where
// somebody else could change what it leads to. It returns what is at its end,
// which belongs to root or to user, and the path without symbolic links.
func walk(path string, user int) (info fs.FileInfo, resolved string, err error) {
	if !filepath.IsAbs(path) {
		dir, err := os.Getwd()
		if err != nil {
			return nil, "", err
		}
		path = dir + "/" + path // not cleaned: what .. means is seen on the way
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
				Hint:    "run `chmod go-w` on it, or choose a path in a directory of your own",
				Path:    resolved,
			}
		}
		next := filepath.Join(resolved, left[0]) // .. of a path without links is its parent
		left = left[1:]
		if info, err = os.Lstat(next); err != nil {
			return nil, "", err
		}
		if info.Mode().Type() != fs.ModeSymlink {
			resolved = next
			continue
		}
		// Its owner can't change it, but put another in its place, in a sticky
		// directory too.
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
		Hint:    "choose a path in a directory of your own",
		Path:    path,
	}
}

// unmapped is the owner that the kernel shows for users whom a user namespace
// does not know.
const unmapped = 65534

// believed reports whether what belongs to owner is root's or user's. In a user
// namespace that does not map root, what is root's shows as nobody's: it can't be
// told from what belongs to other users outside. There it is believed, for else
// nothing would be, / included.
func trusted(owner, user int) bool {
	return owner == 0 || owner == user || owner == unmapped && !mapsNobody()
}

// mapsNobody reports whether uid 65534 is a user of its own here.
func mapsNobody() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return true // no such namespaces
	}
	return mapsUID(string(text), unmapped)
}

// maps reports whether a uid_map has a line for uid.
func mapsUID(table string, uid int) bool {
	for line := range strings.Lines(table) {
		var inside, outside, length int
		if _, err := fmt.Sscan(line, &inside, &outside, &length); err == nil && uid >= inside && uid-inside < length {
			return true
		}
	}
	return false
}

// firstPerson is the first number of a person's account, below which are those of
// services, on the common systems.
const firstUserUID = 1000

// writableByOthers reports whether somebody besides its owner can write to a
// file. A group with the number of its owner is that person's own, by the
// convention of useradd: under it files are writable by their group by default.
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
