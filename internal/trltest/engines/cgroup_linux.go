package engines

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupPrefix begins the names of the cgroups in which containers run. A cgroup is
// the only thing that does not end with the namespaces.
const cgroupPrefix = "trl-engines-"

const (
	// cgroupPatience is how long the kernel may take to release a cgroup whose
	// processes have ended.
	cgroupPatience = 10 * time.Second
	// maxCgroupAge is longer than any test process runs.
	maxCgroupAge = 6 * time.Hour
)

// cgroups returns the directories of the cgroups with a name, or a pattern of names,
// in each hierarchy.
func cgroups(name string) []string {
	unified, _ := filepath.Glob("/sys/fs/cgroup/" + name) // the pattern is valid
	split, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	return append(unified, split...)
}

// removeCgroup removes a cgroup whose processes have ended.
func removeCgroup(name string) error {
	for deadline := time.Now().Add(cgroupPatience); ; time.Sleep(10 * time.Millisecond) {
		var errs []error
		for _, dir := range cgroups(name) {
			errs = append(errs, removeTree(dir))
		}
		err := errors.Join(errs...)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

// removeTree removes a cgroup and those in it. Their files are the kernel's.
func removeTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	for _, dir := range slices.Backward(dirs) {
		if removeErr := unix.Rmdir(dir); removeErr != nil {
			err = errors.Join(err, &fs.PathError{Op: "rmdir", Path: dir, Err: removeErr})
		}
	}
	return err
}

// removeOldCgroups removes what test processes left that were killed. What can't be
// removed is retried next time.
func removeOldCgroups() {
	for _, dir := range cgroups(cgroupPrefix + "*") {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > maxCgroupAge {
			_ = removeTree(dir)
		}
	}
}
