//go:build unix

package trust

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// tempTree returns a directory for the paths of a test.
func tempTree(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestDirectory(t *testing.T) {
	const other = 65533
	for name, tc := range map[string]struct {
		needsRoot bool
		prepare   func(dir string) error // dir/a/b exists, and is checked
		want      string                 // in the error; "": trusted
	}{
		"own":                {false, func(string) error { return nil }, ""},
		"writable by group":  {false, func(d string) error { return os.Chmod(d+"/a/b", 0o770) }, "others may write to"},
		"sticky":             {false, func(d string) error { return os.Chmod(d+"/a/b", 0o777|fs.ModeSticky) }, "others may write to"},
		"above, by all":      {false, func(d string) error { return os.Chmod(d+"/a", 0o757) }, "which is above"},
		"above, sticky":      {false, func(d string) error { return os.Chmod(d+"/a", 0o777|fs.ModeSticky) }, ""},
		"another's":          {true, func(d string) error { return os.Chown(d+"/a/b", other, -1) }, "belongs to another user"},
		"above, another's":   {true, func(d string) error { return os.Chown(d+"/a", other, -1) }, "belongs to another user"},
		"a file":             {false, func(d string) error { return errors.Join(os.Remove(d+"/a/b"), os.WriteFile(d+"/a/b", nil, 0o600)) }, "not a directory"},
		"missing":            {false, func(d string) error { return os.Remove(d + "/a/b") }, "no such file"},
		"a link":             {false, func(d string) error { return relink(d, "real") }, ""},
		"an absolute link":   {false, func(d string) error { return relink(d, d+"/a/real") }, ""},
		"a link by way of":   {false, func(d string) error { return relink(d, "../a/./real") }, ""},
		"a loop":             {false, func(d string) error { return errors.Join(os.Remove(d+"/a/b"), os.Symlink("b", d+"/a/b")) }, "too many levels"},
		"another's link":     {true, func(d string) error { return errors.Join(relink(d, "real"), os.Lchown(d+"/a/b", other, -1)) }, "belongs to another user"},
		"a link into others": {false, func(d string) error { return errors.Join(relink(d, "real"), os.Chmod(d+"/a/real", 0o777)) }, "others may write to"},
		"a link past others": {false, func(d string) error {
			return errors.Join(os.Mkdir(d+"/open", 0o700), os.Mkdir(d+"/open/x", 0o700), os.Remove(d+"/a/b"), os.Symlink("../open/x", d+"/a/b"), os.Chmod(d+"/open", 0o777))
		}, "which is above"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.needsRoot && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			dir := tempTree(t)
			must(t, os.MkdirAll(dir+"/a/b", 0o700), tc.prepare(dir))
			err := Directory(dir+"/a/b", os.Geteuid())
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v; want %q", err, tc.want)
			}
			if again := Directory(dir+"/a/../a/b/.", os.Geteuid()); (again == nil) != (err == nil) {
				t.Errorf("by another path: %v, %v", again, err)
			}
		})
	}
}

// relink moves the directory a/b to a/real, and replaces it with a link to target.
func relink(dir, target string) error {
	return errors.Join(os.Rename(dir+"/a/b", dir+"/a/real"), os.Symlink(target, dir+"/a/b"))
}

// A relative path is resolved from the working directory, with .. as in the kernel.
func TestRelativeDirectory(t *testing.T) {
	dir := tempTree(t)
	must(t, os.MkdirAll(dir+"/a/b", 0o700), os.MkdirAll(dir+"/elsewhere/deep", 0o700), os.Symlink(dir+"/elsewhere/deep", dir+"/a/link"))
	t.Chdir(dir + "/a")
	must(t, Directory("b", os.Geteuid()), Directory("./link/../deep", os.Geteuid()))
	if err := Directory("link/../b", os.Geteuid()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf(".. after a link leads to the link's directory: %v", err)
	}
}

// A person's private group has their number and no other members.
func TestPrivateGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, tc := range []struct {
		uid, gid int
		mode     fs.FileMode
		ok       bool
	}{
		{1000, 1000, 0o664, true},
		{1000, 1000, 0o666, false},
		{1000, 100, 0o664, false},
		{100, 100, 0o664, false}, // a service; its group may contain all users
		{0, 0, 0o664, false},
		{65534, 65534, 0o664, false},
		{1000, 100, 0o644, true},
	} {
		path := filepath.Join(tempTree(t), "file")
		must(t, os.WriteFile(path, nil, 0o600), os.Chown(path, tc.uid, tc.gid), os.Chmod(path, tc.mode))
		file, err := os.Open(path)
		must(t, err)
		if err := File(file, tc.uid); (err == nil) != tc.ok {
			t.Errorf("%+v: %v", tc, err)
		}
		// A lock must not be group-writable, not even by a private group.
		if _, err := Lock(file, tc.uid); (err == nil) != (tc.mode&0o022 == 0) {
			t.Errorf("%+v as a lock: %v", tc, err)
		}
		file.Close()
	}
}

func TestRemovedLockIsNoRefusal(t *testing.T) {
	path := filepath.Join(tempTree(t), "lock")
	file, err := os.Create(path)
	must(t, err, os.Chmod(path, 0o600), os.Remove(path))
	defer file.Close()
	if _, err := Lock(file, os.Geteuid()); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v", err)
	}
}

// Reading a device does not return what others wrote to it.
func TestDeviceOfOthers(t *testing.T) {
	file, err := os.Open(os.DevNull)
	must(t, err)
	defer file.Close()
	must(t, File(file, os.Geteuid()))
}

func TestUserNamespace(t *testing.T) {
	for table, want := range map[string]bool{
		"         0          0 4294967295\n": true,
		"         0       1000          1\n": false,
		"      1000       1000          1\n": false,
		"0 1000 1\n1 100000 65536\n":         true,
		"0 1000 1\n65534 100000 1\n":         true,
		"":                                   false,
	} {
		if got := mapsUID(table, unmapped); got != want {
			t.Errorf("%q: %t", table, got)
		}
	}
}
